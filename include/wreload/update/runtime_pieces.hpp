#pragma once
/// `runtime_pieces`: parts of runtime tensors that come as kernels read them, under a runtime name.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "../core/on_use.hpp"
#include "../core/status.hpp"
#include "../core/tensor_ref.hpp"
#include "admission.hpp"
#include "declared_scope.hpp"
#include "kernel_order.hpp"
#include "landing_arrivals.hpp"
#include "landing_jobs.hpp"
#include "piece.hpp"
#include "registry.hpp"

namespace wreload {

/// A part of a param is a part of each landing that it covers, claimed in checkpoint coordinates as any other. Rows
/// that no landing covers are pad.
template <class Use = on_use>
class basic_runtime_pieces {
  using admission = dependent<wreload::admission, Use>;

 public:
  basic_runtime_pieces(const basic_registry<Use>& records, const basic_declared_scope<Use>& declared,
                       basic_landing_arrivals<Use>& arrived)
      : records_(records), declared_(declared), arrived_(arrived) {}

  /// Claims a part and appends its jobs. On a refusal nothing is claimed. The box is in the param's matrix form; or, of
  /// a stacked param and for a tensor [slots, rows, cols], in the param's own three dims.
  status admit(std::int32_t id, const tensor_ref& tensor, const box& part, admission& out) {
    const param_record& param = at(records_.params, id);
    const shape matrix{param.plan.rows, param.plan.cols};
    if (param.plan.spec.fixed)
      return refuse(error_code::unknown_name, param.name(), "a param that is loaded", "a static one");
    if (param.plan.spec.is_computed())
      return refuse(error_code::unknown_name, param.name(), "a param that is loaded", "a computed one");
    const bool is_packed = tensor.type == dtype::u8 && param.plan.spec.runtime == dtype::fp4_e2m1x2;
    if (tensor.type != param.plan.spec.runtime && !is_packed)
      return refuse(error_code::wrong_dtype, param.name(), std::string(name_of(param.plan.spec.runtime)),
                    std::string(name_of(tensor.type)));
    tensor_ref rows = tensor;
    if (part.whole && tensor.extents == param.plan.extents && tensor.row_major()) rows.extents = matrix;
    const bool by_slot = rows.extents.rank() == 3 && param.plan.is_stack();
    const shape& target = by_slot ? param.plan.extents : matrix;
    const auto name = [&] { return std::string_view(param.name()); };
    if (status refused = check_box(name, target, rows, part); !refused.ok()) return refused;
    const auto for_each_stored = [&](auto&& visit) {
      by_slot ? for_each_bundle_run(rows, part, target, visit) : for_each_run(rows, part, target, visit);
    };
    return param.map == unmapped ? admit_rows(param, for_each_stored, tensor.type, out)
                                 : admit_mapped(param, for_each_stored, part, out);
  }

 private:
  const landing_record& landing(std::int32_t l) const { return at(records_.landings, l); }

  /// A rectangle of a landing's place in its param, in checkpoint coordinates.
  rect in_checkpoint(std::int32_t l, const rect& local) const {
    const std::int64_t down = landing(l).needed.row_begin - landing(l).local_row;
    const std::int64_t right = landing(l).needed.col_begin;
    return {local.row_begin + down, local.row_end + down, local.col_begin + right, local.col_end + right};
  }

  /// Whether a part of a landing may arrive in runtime form; refused by the checkpoint name.
  status check(std::int32_t l, const rect& part, dtype type) const {
    const name_record name{.source = landing(l).source};
    return declared_.has_landing(l) ? arrived_.check(name, l, part, type)
                                    : declared_.not_declared(records_.spelling(name));
  }

  template <class ForEachRun>
  status admit_rows(const param_record& param, ForEachRun&& for_each_stored, dtype type, admission& out) {
    const auto for_each_part = [&](auto&& visit) {
      for_each_stored([&](const piece_run& run) {
        for (std::int32_t l = param.first_landing; l < param.first_landing + param.landing_count; ++l) {
          piece_run shifted = run;
          shifted.part = in_checkpoint(l, run.part);
          visit(l, in_checkpoint(l, intersect(run.part, landing(l).local())), shifted);
        }
      });
    };
    status refused;
    for_each_part([&](std::int32_t l, const rect& inside, const piece_run&) {
      if (refused.ok() && !inside.empty()) refused = check(l, inside, type);
    });
    if (!refused.ok()) return refused;
    for_each_part([&](std::int32_t l, const rect& inside, const piece_run& run) {
      arrived_.admit(l, inside, run, type, out);
    });
    return {};
  }

  /// Claims what a part in kernel order holds, and copies its bytes as they are, but for the pads.
  ///
  /// Swizzled: the part is cut on 128 rows and 4 columns; it lies dense, in 128x4 order of its own
  template <class ForEachRun>
  status admit_mapped(const param_record& param, ForEachRun&& for_each_stored, const box& part, admission& out) {
    const dtype type = param.plan.spec.runtime;
    const auto for_each_part = [&](const piece_run& run, auto&& visit) {
      detail::for_each_held(param.plan, run.part, [&](const rect& held) {
        for (std::int32_t l = param.first_landing; l < param.first_landing + param.landing_count; ++l)
          if (const rect inside = intersect(held, landing(l).local()); !inside.empty())
            visit(l, in_checkpoint(l, inside));
      });
    };
    status refused;
    for_each_stored([&](const piece_run& run) {
      if (refused.ok()) refused = detail::check_order(param, run, part);
      for_each_part(run, [&](std::int32_t l, const rect& inside) {
        if (refused.ok()) refused = check(l, inside, type);
        if (refused.ok() && landing(l).twins != no_index)
          refused = refuse(error_code::unsupported, param.name(), "a tensor of one name", "a twin's");
      });
    });
    if (!refused.ok()) return refused;
    for_each_stored([&](const piece_run& run) {
      const std::size_t claimed = out.claims.size();
      for_each_part(run, [&](std::int32_t l, const rect& inside) {
        out.claims.push_back({landing(l).source, l, inside, false, false});
        arrived_.insert(out.claims.back());
        out.needed_bytes += inside.elements() * bytes_of(type);
      });
      if (out.claims.size() == claimed) return;  // nothing but pads
      out.lands.push_back(detail::copy_job(param, run));
      out.landed.push_back({param.first_landing, {}, true, false});
      detail::for_each_held(param.plan, run.part, [&](const rect& held) {
        for (const planned_pad& pad : param.plan.pads)
          detail::append_zeros(param, intersect(held, detail::rect_of(pad)), out.pads);
      });
      out.padded.resize(out.pads.size(), param.first_landing);
    });
    return {};
  }

  const basic_registry<Use>& records_;
  const basic_declared_scope<Use>& declared_;
  basic_landing_arrivals<Use>& arrived_;
};

}  // namespace wreload
