#pragma once
/// `gaps`: what must still arrive before landings can be committed.

#include <cstdint>

#include "../core/box.hpp"
#include "../core/on_use.hpp"
#include "declared_scope.hpp"
#include "kept_values.hpp"
#include "landing_arrivals.hpp"
#include "registry.hpp"

namespace wreload {

/// Each declared part, the scale of each FP8 row, the weight of each scale; but for kept values in complete scope.
template <class Use = on_use>
class basic_gaps {
 public:
  basic_gaps(const basic_registry<Use>& records, const basic_landing_arrivals<Use>& arrived,
             const basic_declared_scope<Use>& declared, const basic_kept_values<Use>& kept)
      : records_(records), arrived_(arrived), declared_(declared), kept_(kept) {}

  /// Calls `missing(landing, rect)`, checkpoint coordinates, for the gaps of `count` landings.
  template <class Missing>
  void for_each(std::int32_t first, std::int32_t count, Missing&& missing) const {
    for (std::int32_t l = first; l < first + count; ++l) {
      if (arrived_.is_whole_alone(l)) continue;  // under this name alone, or under each: no gap either way
      const landing_record& part = landing(l);
      if (!records_.is_first_twin(l)) continue;
      const auto report = [&](const rect& gap) { missing(l, gap); };
      if (part.weight != no_index && spec_of(part.weight).converts()) {
        for_each_scale_gap(l, report);
        continue;
      }
      const std::int32_t partner = part.weight != no_index ? part.weight : part.scale;
      // Block FP8 and its scale come together; each part of NVFP4 may come alone.
      const std::int32_t weight = part.weight != no_index ? part.weight : l;
      const bool paired = partner != no_index && spec_of(weight).stored != dtype::fp4_e2m1x2;
      const bool partner_came = paired && arrived_.any(partner);
      if (partner_came || (declared_.has_landing(l) && !is_kept(l))) for_each_hole(l, part.needed, report);
    }
  }

 private:
  const landing_record& landing(std::int32_t l) const { return at(records_.landings, l); }
  const param_spec& spec_of(std::int32_t l) const { return at(records_.params, landing(l).param).plan.spec; }
  bool is_kept(std::int32_t l) const { return declared_.is_complete() && kept_.serves(l); }

  template <class Report>
  void for_each_hole(std::int32_t l, const rect& needed, Report&& report) const {
    const auto runtime = arrived_.form(l, false);
    arrived_.form(l, true).for_each_missing(needed, [&](const rect& gap) { runtime.for_each_missing(gap, report); });
  }

  /// The blocks of a scale that FP8 rows of this update use and that did not come. Other blocks are not needed.
  template <class Report>
  void for_each_scale_gap(std::int32_t l, Report&& report) const {
    const landing_record& scale = landing(l);
    const landing_record& weight = landing(scale.weight);
    const std::int64_t block = spec_of(l).block_rows;
    arrived_.form(scale.weight, true).for_each_covered(weight.needed, [&](const rect& run) {
      const std::int64_t first = weight.row_phase + run.row_begin - weight.needed.row_begin;
      const rect blocks{scale.needed.row_begin + first / block,
                        scale.needed.row_begin + ceil_div(first + run.rows(), block), scale.needed.col_begin,
                        scale.needed.col_end};
      for_each_hole(l, blocks, report);
    });
  }

  const basic_registry<Use>& records_;
  const basic_landing_arrivals<Use>& arrived_;
  const basic_declared_scope<Use>& declared_;
  const basic_kept_values<Use>& kept_;
};

}  // namespace wreload
