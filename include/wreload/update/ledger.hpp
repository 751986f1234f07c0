#pragma once
/// `ledger`: what has arrived in this update, per landing and in checkpoint coordinates, and what is still missing.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../core/job.hpp"
#include "../core/on_use.hpp"
#include "../core/status.hpp"
#include "coverage.hpp"
#include "piece.hpp"
#include "registry.hpp"
#include "scope.hpp"

namespace wreload {

/// One rectangle of one landing that a load has claimed; kept so that a refused batch can give it back.
struct claim {
  std::int32_t source = no_index;
  std::int32_t landing = no_index;  ///< no_index: the claim is the source's spelling
  rect part = {};                   ///< checkpoint coordinates
  bool stored = false;              ///< in the stored format of a view that converts
  bool to_group = false;            ///< counted for the twin group, not for the landing
};

/// What an admitted load has to do, and what it claimed. Owned by a lane; buffers are reused.
struct admission {
  std::vector<land_job> lands = {};
  std::vector<land_job> pads = {};             ///< after `lands`, over some of the same bytes
  std::vector<land_job> compares = {};         ///< against bytes that a twin has brought
  std::vector<std::int32_t> compared_groups = {};  ///< twin group of each compare
  std::vector<claim> claims = {};
  std::int64_t needed_bytes = 0;

  void clear() {
    lands.clear();
    pads.clear();
    compares.clear();
    compared_groups.clear();
    claims.clear();
    needed_bytes = 0;
  }
};

/// Arrivals of one update. Not thread safe: the update holds a lock around it.
template <class = on_use>
class basic_ledger {
 public:
  explicit basic_ledger(const registry& records) : records_(records) {}

  /// Sizes the tables; the registry is indexed by now.
  void seal() {
    arrived_.resize(records_.landings.size());
    together_.resize(records_.twin_groups.size());
    declared_.assign(records_.sources.size(), true);
    spelling_.assign(records_.sources.size(), no_index);
    written_.assign(records_.sources.size(), false);
    kept_valid_.assign(records_.sources.size(), false);
  }

  /// Opens the books of an update. Refuses a declared name that is neither of the model nor `elsewhere(name)`, and a
  /// partial scope of nothing.
  template <class Elsewhere>
  status open(const update_scope& scope, Elsewhere&& elsewhere) {
    clear();
    complete_ = scope.is_complete;
    declared_.assign(records_.sources.size(), scope.is_complete);
    if (scope.is_complete) return {};
    bool any = false;
    const auto declare = [&](name_record name) {
      at(declared_, name.source) = 1;
      any = true;
    };
    for (const std::string_view name : scope.names) {
      const std::int32_t id = records_.find_name(name);
      if (id == no_index && !elsewhere(name))
        return refuse(error_code::unknown_name, name, "a checkpoint tensor of the model", "a declared name it lacks");
      any = true;
      if (id != no_index) declare(at(records_.names, id));
    }
    for (const name_record name : records_.names) {
      const std::string_view text = records_.spelling(name);
      if ((!scope.prefix.empty() && text.starts_with(scope.prefix)) ||
          (scope.predicate != nullptr && scope.predicate(text, scope.context)))
        declare(name);
    }
    if (any) return {};
    return refuse(error_code::bad_argument, scope.prefix, "a partial scope that declares a tensor of the model", "none");
  }

  /// Forgets all arrivals and returns what they took from the heap.
  void clear() {
    for (arrivals& landing : arrived_) landing.clear();
    for (arrivals& group : together_) group.clear();
    std::fill(spelling_.begin(), spelling_.end(), no_index);
    std::fill(written_.begin(), written_.end(), false);
  }

  /// Claims a piece of a checkpoint tensor and appends its jobs. On a refusal nothing is claimed by this call.
  status admit(name_record name, const tensor_ref& tensor, const box& part, admission& out) {
    const source_record& source = at(records_.sources, name.source);
    const std::string_view text = records_.spelling(name);
    if (status refused = check_piece(text, source, tensor, part); !refused.ok()) return refused;
    std::int32_t& spelled = at(spelling_, name.source);
    if (spelled != no_index && spelled != name.spelling)
      return refuse(error_code::duplicate, text, "one spelling in an update",
                    "also " + records_.spelling({name.source, spelled}));
    status refused;
    for_each_run_of(source, tensor, part, [&](const piece_run& run) {
      for (const std::int32_t l : source.landings)
        if (refused.ok()) refused = check_arrival(text, l, intersect(run.part, landing(l).needed), tensor.type);
    });
    if (!refused.ok()) return refused;
    if (spelled == no_index) {
      spelled = name.spelling;
      out.claims.push_back({.source = name.source});
    }
    for_each_run_of(source, tensor, part, [&](const piece_run& run) {
      for (const std::int32_t l : source.landings)
        claim_run(l, intersect(run.part, landing(l).needed), run, tensor.type, out);
    });
    return {};
  }

  /// Claims a part of a runtime tensor, whose box is in the param's matrix form. Rows that no landing covers are pad.
  status admit_runtime(std::int32_t id, const tensor_ref& tensor, const box& part, admission& out) {
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
    if (status refused = check_box(param.name(), matrix, rows, part); !refused.ok()) return refused;
    if (param.map != unmapped) return admit_mapped(id, rows, part, out);
    const auto for_each_part = [&](auto&& visit) {
      for_each_run(rows, part, matrix, [&](const piece_run& run) {
        for (std::int32_t l = param.first_landing; l < param.first_landing + param.landing_count; ++l) {
          rect inside = intersect(run.part, landing(l).local());
          piece_run shifted = run;
          const std::int64_t down = landing(l).needed.row_begin - landing(l).local_row;
          const std::int64_t right = landing(l).needed.col_begin;
          for (rect* moved : {&inside, &shifted.part})
            *moved = {moved->row_begin + down, moved->row_end + down, moved->col_begin + right, moved->col_end + right};
          visit(l, inside, shifted);
        }
      });
    };
    status refused;
    for_each_part([&](std::int32_t l, const rect& inside, const piece_run&) {
      if (!refused.ok() || inside.empty()) return;
      const std::string& name = at(records_.sources, landing(l).source).name;
      refused = is_declared(l) ? check_arrival(name, l, inside, tensor.type) : not_declared(name);
    });
    if (!refused.ok()) return refused;
    for_each_part([&](std::int32_t l, const rect& inside, const piece_run& run) {
      claim_run(l, inside, run, tensor.type, out);
    });
    return {};
  }

  /// The jobs that write a param's pads: landings of zeros.
  static void append_pads(const param_record& param, std::vector<land_job>& jobs) {
    static constexpr std::byte zeros[8] = {};
    if (param.plan.bytes() == 0) return;  // no storage
    for (const planned_pad& pad : param.plan.pads) {
      // A slot at a time where the param is mapped.
      for (std::int64_t row = pad.local_row; row < pad.local_row + pad.rows;) {
        const std::int64_t end = std::min(pad.local_row + pad.rows, (row / param.plan.slot_rows + 1) * param.plan.slot_rows);
        land_job job{.source = zeros,
                     .rows = end - row,
                     .cols = pad.cols,
                     .destination_row_stride_bytes = param.row_stride_bytes,
                     .from = param.plan.spec.runtime,
                     .to = param.plan.spec.runtime};
        place(job, param, row, pad.local_col);
        jobs.push_back(job);
        row = end;
      }
    }
  }

  /// Gives claims back, latest first (a refused batch).
  void release(std::span<const claim> claims) {
    for (std::size_t i = claims.size(); i-- > 0;) {
      const claim& old = claims[i];
      if (old.landing == no_index)
        at(spelling_, old.source) = no_index;
      else if (old.to_group)
        form(at(together_, landing(old.landing).twins), old.stored).erase(old.part);
      else
        form(at(arrived_, old.landing), old.stored).erase(old.part);
    }
  }

  /// Remembers that these claims are being written: their kept values serve only if this update succeeds.
  void note_written(std::span<const claim> claims) {
    for (const claim& part : claims) at(written_, part.source) = 1;
  }

  /// Forgets what arrived under a source, and under its twins, whose bytes it shares.
  void retract(std::int32_t source) {
    for (const std::int32_t l : at(records_.sources, source).landings) retract_landing(l);
    at(spelling_, source) = no_index;
  }

  void retract_landing(std::int32_t l) {
    for_each_twin(l, [&](std::int32_t each) {
      at(arrived_, each).clear();
      at(spelling_, landing(each).source) = no_index;
    });
    if (landing(l).twins != no_index) at(together_, landing(l).twins).clear();
  }

  /// Calls `missing(landing, rect)`, checkpoint coordinates, for everything that must still arrive before `finish`:
  /// each declared part, the scale of each FP8 row, the weight of each scale.
  template <class Missing>
  void for_each_gap(Missing&& missing) const {
    for (std::int32_t l = 0; l < static_cast<std::int32_t>(records_.landings.size()); ++l) {
      const landing_record& part = landing(l);
      if (!is_first_twin(l)) continue;
      const auto report = [&](const rect& gap) { missing(l, gap); };
      if (part.weight != no_index && param_of(part.weight).plan.spec.converts()) {
        for_each_scale_gap(l, report);
        continue;
      }
      const std::int32_t partner = part.weight != no_index ? part.weight : part.scale;
      // Block FP8 and its scale come together; each part of NVFP4 may come alone.
      const std::int32_t weight = part.weight != no_index ? part.weight : l;
      const bool paired = partner != no_index && param_of(weight).plan.spec.stored != dtype::fp4_e2m1x2;
      const bool partner_came = paired && !effective(partner).empty();
      if (partner_came || (is_declared(l) && !is_kept(l))) for_each_hole(effective(l), part.needed, report);
    }
  }

  /// Calls `visit(landing, rect)` for each run of rows that arrived in the stored format of a view that converts.
  template <class Visit>
  void for_each_stored_run(Visit&& visit) const {
    for (std::int32_t l = 0; l < static_cast<std::int32_t>(records_.landings.size()); ++l)
      if (is_first_twin(l) && param_of(l).plan.spec.converts())
        effective(l).stored.for_each_covered(landing(l).needed, [&](const rect& run) { visit(l, run); });
  }

  /// Whether anything of the source arrived in this update, needed here or not.
  bool arrived(std::int32_t source) const {
    if (at(spelling_, source) != no_index) return true;
    for (const std::int32_t l : at(records_.sources, source).landings)
      if (!at(arrived_, l).empty()) return true;
    return false;
  }
  /// Whether anything of a param arrived in this update.
  bool param_arrived(std::int32_t id) const {
    const param_record& param = at(records_.params, id);
    for (std::int32_t l = param.first_landing; l < param.first_landing + param.landing_count; ++l)
      if (!effective(l).empty()) return true;
    return false;
  }
  bool arrived_any(std::int32_t twin_group) const { return !at(together_, twin_group).empty(); }
  bool is_declared_source(std::int32_t source) const { return at(declared_, source) != 0; }

  /// Ends an update that wrote: after a success the kept values that came are valid, after a failure they are not.
  void settle(bool succeeded) {
    for (std::size_t i = 0; i < written_.size(); ++i) {
      if (written_[i] == 0) continue;
      kept_valid_[i] = succeeded;
      if (succeeded) continue;
      for (const std::int32_t l : records_.sources[i].landings)  // nor is it what another name of these bytes brought
        for_each_twin(l, [&](std::int32_t each) { at(kept_valid_, landing(each).source) = 0; });
    }
  }

 private:
  struct arrivals {
    coverage stored = {};
    coverage runtime = {};
    bool empty() const { return stored.empty() && runtime.empty(); }
    void clear() {
      stored.clear();
      runtime.clear();
    }
  };

  static coverage& form(arrivals& of, bool stored) { return stored ? of.stored : of.runtime; }
  const landing_record& landing(std::int32_t l) const { return at(records_.landings, l); }
  const param_record& param_of(std::int32_t l) const { return at(records_.params, landing(l).param); }
  const arrivals& effective(std::int32_t l) const {
    return landing(l).twins == no_index ? at(arrived_, l) : at(together_, landing(l).twins);
  }
  bool is_first_twin(std::int32_t l) const {
    return landing(l).twins == no_index || at(records_.twin_groups, landing(l).twins).front() == l;
  }
  /// Calls `visit(landing)` for the landing and its twins.
  template <class Visit>
  void for_each_twin(std::int32_t l, Visit&& visit) const {
    if (landing(l).twins == no_index) return visit(l);
    for (const std::int32_t twin : at(records_.twin_groups, landing(l).twins)) visit(twin);
  }
  template <class Predicate>
  bool any_twin(std::int32_t l, Predicate&& any) const {
    bool found = false;
    for_each_twin(l, [&](std::int32_t each) { found |= any(each); });
    return found;
  }
  bool is_declared(std::int32_t l) const {
    return any_twin(l, [&](std::int32_t each) { return at(declared_, landing(each).source) != 0; });
  }
  /// The last successful update's value serves: this complete update has not written it (not even to retract it).
  bool is_kept(std::int32_t l) const {
    return complete_ && param_of(l).plan.spec.kept &&
           any_twin(l, [&](std::int32_t each) { return at(kept_valid_, landing(each).source) != 0; }) &&
           !any_twin(l, [&](std::int32_t each) { return at(written_, landing(each).source) != 0; });
  }

  template <class Visit>
  static void for_each_run_of(const source_record& source, const tensor_ref& tensor, const box& part, Visit&& visit) {
    if (source.bundled) return for_each_bundle_run(tensor, part, source.extents, visit);
    for_each_run(tensor, part, source.extents, visit);
  }

  static status not_declared(std::string_view name) {
    return refuse(error_code::out_of_scope, name, "a tensor that this partial update declared", "another one");
  }

  status check_piece(std::string_view name, const source_record& source, const tensor_ref& tensor,
                     const box& part) const {
    if (declared_[static_cast<std::size_t>(&source - records_.sources.data())] == 0) return not_declared(name);
    if (!source.accepted.contains(tensor.type))
      return refuse(error_code::wrong_dtype, name, to_string(source.accepted) + " " + to_string(source.extents),
                    to_string(tensor));
    return check_box(name, source.extents, tensor, part);
  }

  static status check_box(std::string_view name, const shape& target, const tensor_ref& tensor, const box& part) {
    if (!fits(part, target))
      return refuse(error_code::wrong_shape, name, "a box inside " + to_string(target), to_string(part));
    const shape& size = part.whole ? target : part.extent;
    const bool one_element = size.elements() == 1 && tensor.extents.valid() && tensor.extents.elements() == 1;
    if (!(tensor.extents == size) && !one_element)
      return refuse(error_code::wrong_shape, name, std::string(name_of(tensor.type)) + " " + to_string(size),
                    to_string(tensor));
    if (!tensor.row_major() && tensor.strides.rank() != tensor.extents.rank())
      return refuse(error_code::bad_argument, name, "a stride per dim", to_string(tensor.strides));
    if (tensor.data == nullptr && size.elements() > 0)
      return refuse(error_code::bad_argument, name, to_string(tensor), "a null pointer");
    return {};
  }

  /// Whether the rectangle of a landing may arrive: each byte once, each row in one format.
  status check_arrival(std::string_view name, std::int32_t l, const rect& part, dtype type) const {
    if (part.empty()) return {};
    const arrivals& own = at(arrived_, l);
    if (own.stored.overlaps(part) || own.runtime.overlaps(part))
      return refuse(error_code::duplicate, name, "each byte once in an update", to_string(part) + " again");
    const param_spec& spec = param_of(l).plan.spec;
    if (!spec.converts()) return {};
    const rect rows{part.row_begin, part.row_end, landing(l).needed.col_begin, landing(l).needed.col_end};
    const bool stored = type == spec.stored;
    const arrivals& both = effective(l);
    if ((stored ? both.runtime : both.stored).overlaps(rows))
      return refuse(error_code::mixed_formats, name, "a row in one format",
                    std::string(name_of(type)) + " for rows that came as " +
                        std::string(name_of(stored ? spec.runtime : spec.stored)) + " (" + to_string(part) + ")");
    return {};
  }

  /// Points a job at an element of a param's matrix form.
  static void place(land_job& job, const param_record& param, std::int64_t row, std::int64_t col) {
    job.map = param.map;
    if (param.map == unmapped) {
      job.destination = param.row(row) + col * bytes_of(job.to);
      return;
    }
    job.destination = param.slot_of(row);
    job.map_row = row % param.plan.slot_rows;
    job.map_col = col;
  }

  /// Claims a whole runtime tensor in kernel order: its bytes are copied as they are, but for the pads.
  status admit_mapped(std::int32_t id, const tensor_ref& rows, const box& part, admission& out) {
    const param_record& param = at(records_.params, id);
    if (!part.whole || !rows.row_major())
      return refuse(error_code::unsupported, param.name(), "the whole tensor in kernel order, row-major",
                    part.whole ? "a strided one" : to_string(part));
    for (std::int32_t l = param.first_landing; l < param.first_landing + param.landing_count; ++l) {
      const std::string& name = at(records_.sources, landing(l).source).name;
      status refused = is_declared(l) ? check_arrival(name, l, landing(l).needed, rows.type) : not_declared(name);
      if (refused.ok() && landing(l).twins != no_index)
        refused = refuse(error_code::unsupported, param.name(), "a tensor of one name", "a twin's");
      if (!refused.ok()) return refused;
    }
    for (std::int32_t l = param.first_landing; l < param.first_landing + param.landing_count; ++l) {
      at(arrived_, l).runtime.insert(landing(l).needed);
      out.claims.push_back({landing(l).source, l, landing(l).needed, false, false});
    }
    out.needed_bytes += param.plan.bytes();
    out.lands.push_back({.source = static_cast<const std::byte*>(rows.data),
                         .destination = param.data,
                         .rows = param.plan.rows,
                         .cols = param.plan.cols,
                         .source_row_stride_bytes = param.plan.row_bytes(),
                         .source_col_stride_bytes = bytes_of(rows.type),
                         .destination_row_stride_bytes = param.row_stride_bytes,
                         .from = rows.type,
                         .to = rows.type,
                         .memory = rows.memory});
    append_pads(param, out.pads);
    return {};
  }

  /// Claims a checked rectangle and appends its jobs; bytes that a twin has brought are compared, not written again.
  void claim_run(std::int32_t l, const rect& part, const piece_run& run, dtype type, admission& out) {
    if (part.empty()) return;
    const landing_record& where = landing(l);
    const param_record& param = param_of(l);
    const bool stored = param.plan.spec.converts() && type == param.plan.spec.stored;
    const auto job_for = [&](const rect& of) {
      const dtype to = stored ? type : param.plan.spec.runtime;
      land_job job{.source = run.at(of.row_begin, of.col_begin),
                   .rows = of.rows(),
                   .cols = of.cols(),
                   .source_row_stride_bytes = run.row_stride_bytes,
                   .source_col_stride_bytes = run.col_stride_bytes,
                   .destination_row_stride_bytes = param.row_stride_bytes,
                   .from = to == dtype::fp4_e2m1x2 ? to : type,  // files spell packed fp4 U8
                   .to = to,
                   .memory = run.memory};
      place(job, param, where.local_row + of.row_begin - where.needed.row_begin,
            of.col_begin - where.needed.col_begin);
      return job;
    };
    out.needed_bytes += part.elements() * bytes_of(type);
    form(at(arrived_, l), stored).insert(part);
    out.claims.push_back({where.source, l, part, stored, false});
    if (where.twins == no_index) {
      out.lands.push_back(job_for(part));
      return;
    }
    coverage& together = form(at(together_, where.twins), stored);
    together.for_each_covered(part, [&](const rect& again) {
      out.compares.push_back(job_for(again));
      out.compared_groups.push_back(where.twins);
    });
    const std::size_t first_new = out.claims.size();
    together.for_each_missing(part, [&](const rect& fresh) {
      out.lands.push_back(job_for(fresh));
      out.claims.push_back({where.source, l, fresh, stored, true});
    });
    for (std::size_t i = first_new; i < out.claims.size(); ++i) together.insert(out.claims[i].part);
  }

  template <class Report>
  static void for_each_hole(const arrivals& have, const rect& needed, Report&& report) {
    have.stored.for_each_missing(needed, [&](const rect& gap) { have.runtime.for_each_missing(gap, report); });
  }

  /// The blocks of a scale that FP8 rows of this update use and that did not come. Other blocks are not needed.
  template <class Report>
  void for_each_scale_gap(std::int32_t l, Report&& report) const {
    const landing_record& scale = landing(l);
    const landing_record& weight = landing(scale.weight);
    const std::int64_t block = param_of(l).plan.spec.block_rows;
    effective(scale.weight).stored.for_each_covered(weight.needed, [&](const rect& run) {
      const std::int64_t first = weight.row_phase + run.row_begin - weight.needed.row_begin;
      const rect blocks{scale.needed.row_begin + first / block,
                        scale.needed.row_begin + ceil_div(first + run.rows(), block), scale.needed.col_begin,
                        scale.needed.col_end};
      for_each_hole(effective(l), blocks, report);
    });
  }

  const registry& records_;
  bool complete_ = true;
  std::vector<arrivals> arrived_ = {};       ///< per landing
  std::vector<arrivals> together_ = {};      ///< per twin group: what came under any of its names
  std::vector<std::uint8_t> declared_ = {};          ///< per source
  std::vector<std::int32_t> spelling_ = {};  ///< per source: the spelling used in this update
  std::vector<std::uint8_t> written_ = {};           ///< per source
  std::vector<std::uint8_t> kept_valid_ = {};        ///< per source: a successful update has brought its value
};

using ledger = basic_ledger<>;

}  // namespace wreload
