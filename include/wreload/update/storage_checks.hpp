#pragma once
/// What is refused of the memory that an engine gives for its params.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../core/on_use.hpp"
#include "../core/status.hpp"
#include "../layout/landing.hpp"
#include "records.hpp"

namespace wreload::detail {

/// Refuses, by the param's name, memory that cannot hold it: null, misaligned, or with rows that it cannot have.
template <class = on_use>
status check_storage(const planned_param& param, const storage& given) {
  if (given.data == nullptr && param.bytes() > 0)
    return refuse(error_code::bad_argument, param.name, std::to_string(param.bytes()) + " bytes", "a null pointer");
  if (given.row_stride_bytes != 0 && given.row_stride_bytes < param.row_bytes())
    return refuse(error_code::bad_argument, param.name,
                  "a row stride of at least " + std::to_string(param.row_bytes()) + " bytes",
                  std::to_string(given.row_stride_bytes));
  const std::int64_t element = bytes_of(param.spec.runtime);
  if (reinterpret_cast<std::uintptr_t>(given.data) % static_cast<std::uintptr_t>(element) != 0 ||
      given.row_stride_bytes % element != 0)
    return refuse(error_code::bad_argument, param.name,
                  "an address and a row stride in multiples of " + std::to_string(element) + " bytes", "others");
  const bool must_be_dense =
      !keeps_rows(param.map) || param.spec.is_computed() || param.spec.kind == param_kind::per_shard;
  if (must_be_dense && given.row_stride_bytes != 0 && given.row_stride_bytes != param.row_bytes())
    return refuse(error_code::bad_argument, param.name, "dense rows, as its order or arithmetic needs",
                  "a row stride of " + std::to_string(given.row_stride_bytes) + " bytes");
  return {};
}

/// Params may interleave inside common rows (same stride), but never share a byte.
template <class Use>
status check_overlaps(const dependent<std::vector<param_record>, Use>& params) {
  dependent<std::vector<const param_record*>, Use> order;
  for (const param_record& param : params)
    if (param.plan.bytes() > 0) order.push_back(&param);
  const auto address = [](const std::byte* data) { return reinterpret_cast<std::uintptr_t>(data); };
  const auto end = [](const param_record& param) {
    return param.row(param.plan.rows - 1) + param.plan.row_bytes();
  };
  std::sort(order.begin(), order.end(), [&](auto* a, auto* b) { return address(a->data) < address(b->data); });
  dependent<std::vector<const param_record*>, Use> open;  // params that reach beyond the current address
  for (const param_record* param : order) {
    std::erase_if(open, [&](const param_record* other) { return address(param->data) >= address(end(*other)); });
    for (const param_record* other : open) {
      const std::int64_t stride = other->row_stride_bytes;
      const std::int64_t offset = (param->data - other->data) % stride;
      const bool apart = param->row_stride_bytes == stride && offset >= other->plan.row_bytes() &&
                         offset + param->plan.row_bytes() <= stride;
      if (!apart)
        return refuse(error_code::bad_layout, param->name(), "bytes of its own (or same_as)",
                      "bytes of " + other->name());
    }
    open.push_back(param);
  }
  return {};
}

}  // namespace wreload::detail
