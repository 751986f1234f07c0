#pragma once
/// Where the engine says its tensors are; compared with what was registered at every `start` and `audit`.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../core/name_index.hpp"
#include "../core/on_use.hpp"
#include "registry.hpp"

namespace wreload {

/// One tensor as the engine knows it now. `row_stride_bytes` 0: dense rows.
struct tensor_address {
  std::string_view name = {};
  const void* data = nullptr;
  dtype type = dtype::none;
  shape extents = {};
  std::int64_t row_stride_bytes = 0;
};

/// A list, or a callback that fills in one tensor and returns false for a name that is gone. Empty: not checked.
struct engine_addresses {
  std::span<const tensor_address> list = {};
  bool (*find)(std::string_view name, tensor_address* found, void* context) = nullptr;
  void* context = nullptr;

  bool given() const { return find != nullptr || !list.empty(); }
};

/// Names of the registered tensors whose address, stride, size or dtype is not what the engine has now.
template <class Use>
std::vector<std::string> moved_tensors(const basic_registry<Use>& records, const engine_addresses& addresses) {
  dependent<std::vector<std::string>, Use> moved;
  if (!addresses.given()) return moved;
  const auto name_of = [&](std::int32_t id) { return addresses.list[static_cast<std::size_t>(id)].name; };
  basic_name_index<Use> listed;
  for (std::size_t i = 0; i < addresses.list.size(); ++i)
    if (listed.find(addresses.list[i].name, name_of) == no_index)
      listed.add(addresses.list[i].name, static_cast<std::int32_t>(i));
  for (const param_record& param : records.params) {
    tensor_address now;
    const std::int32_t entry = listed.find(param.name(), name_of);
    const bool is_there = addresses.find != nullptr ? addresses.find(param.name(), &now, addresses.context)
                                                    : entry != no_index;
    if (addresses.find == nullptr && is_there) now = addresses.list[static_cast<std::size_t>(entry)];
    const std::int64_t stride = now.row_stride_bytes == 0 ? param.plan.row_bytes() : now.row_stride_bytes;
    const bool same = is_there && now.data == param.data && now.type == param.plan.spec.runtime &&
                      now.extents == param.plan.extents && stride == param.row_stride_bytes;
    if (!same) moved.push_back(param.name());
  }
  return moved;
}

}  // namespace wreload
