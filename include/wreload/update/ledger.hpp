#pragma once
/// `ledger`: what has arrived in this update, per landing and in checkpoint coordinates, and what is still missing.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../core/job.hpp"
#include "../core/on_use.hpp"
#include "../core/prefetch.hpp"
#include "../core/status.hpp"
#include "arrivals.hpp"
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

/// What a job lands or compares: a part of a landing, in checkpoint coordinates.
struct landed_part {
  std::int32_t landing = no_index;
  rect part = {};
  bool shared = false;         ///< the job also lands parts of other landings of the param
  bool is_transposed = false;  ///< the job's rows are the part's columns
};

/// What an admitted load has to do, and what it claimed. Owned by a lane; buffers are reused.
struct admission {
  std::vector<land_job> lands = {};
  std::vector<landed_part> landed = {};        ///< of each of `lands`
  std::vector<land_job> pads = {};             ///< after `lands`, over some of the same bytes
  std::vector<std::int32_t> padded = {};       ///< of each of `pads`: a landing of the param
  std::vector<land_job> compares = {};         ///< against bytes that a twin has brought
  std::vector<landed_part> compared = {};      ///< of each of `compares`
  std::vector<std::int32_t> compared_groups = {};  ///< twin group of each compare
  std::vector<claim> claims = {};
  std::int64_t needed_bytes = 0;

  void clear() {
    lands.clear();
    landed.clear();
    pads.clear();
    padded.clear();
    compares.clear();
    compared.clear();
    compared_groups.clear();
    claims.clear();
    needed_bytes = 0;
  }
};

/// Arrivals of one update. Not thread safe: the update holds a lock around it.
template <class Use = on_use>
class basic_ledger {
  template <class T>
  using vector = dependent<std::vector<T>, Use>;
  using admission = dependent<wreload::admission, Use>;
  using arrivals = basic_arrivals<Use>;

 public:
  explicit basic_ledger(const basic_registry<Use>& records) : records_(records) {}

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
    if (!scope.is_complete || !all_declared_) declared_.assign(records_.sources.size(), scope.is_complete);
    all_declared_ = scope.is_complete;
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
    if (!is_used_) return;
    is_used_ = false;
    arrived_.clear();
    together_.clear();
    std::fill(spelling_.begin(), spelling_.end(), no_index);
    std::fill(written_.begin(), written_.end(), false);
  }

  /// Starts to fetch what the loads of names (indices into registry::names, or -1) will read, for each as far as what
  /// it points to is at hand: `last` is to be loaded last, `first` soonest.
  void prefetch(std::int32_t last, std::int32_t middle, std::int32_t first) const {
    if (last != no_index) wreload::prefetch(&at(records_.names, last));
    if (middle != no_index) {
      const std::int32_t source = at(records_.names, middle).source;
      wreload::prefetch(&at(records_.sources, source));
      wreload::prefetch(&at(records_.sources, source).name);
      wreload::prefetch(&at(spelling_, source));
    }
    if (first == no_index) return;
    const index_list& landings = at(records_.sources, at(records_.names, first).source).landings;
    if (landings.empty()) return;
    wreload::prefetch(&landing(landings[0]));  // a bundle has many
    wreload::prefetch(&landing(landings[0]).twins);
    arrived_.prefetch(landings[0]);
  }

  /// Claims a piece of a checkpoint tensor and appends its jobs. On a refusal nothing is claimed by this call.
  status admit(name_record name, const tensor_ref& tensor, const box& part, admission& out) {
    is_used_ = true;
    const source_record& source = at(records_.sources, name.source);
    if (!is_usual(name, source, tensor, part))
      if (status refused = check_piece(name, source, tensor, part); !refused.ok()) return refused;
    std::int32_t& spelled = at(spelling_, name.source);
    if (spelled != no_index && spelled != name.spelling)
      return refuse(error_code::duplicate, records_.spelling(name), "one spelling in an update",
                    "also " + std::string(records_.spelling({name.source, spelled})));
    if (!is_new(source))
      if (status refused = check_arrivals(name, source, tensor, part); !refused.ok()) return refused;
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

  /// Claims a part of a runtime tensor. Its box is in the param's matrix form; or, of a stacked param and for a tensor
  /// [slots, rows, cols], in the param's own three dims. Rows that no landing covers are pad.
  status admit_runtime(std::int32_t id, const tensor_ref& tensor, const box& part, admission& out) {
    is_used_ = true;
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
    if (param.map != unmapped) return admit_mapped(id, for_each_stored, part, out);
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
      if (refused.ok() && !inside.empty()) refused = check_runtime_arrival(l, inside, tensor.type);
    });
    if (!refused.ok()) return refused;
    for_each_part([&](std::int32_t l, const rect& inside, const piece_run& run) {
      claim_run(l, inside, run, tensor.type, out);
    });
    return {};
  }

  /// The jobs that write a param's pads: landings of zeros.
  static void append_pads(const param_record& param, vector<land_job>& jobs) {
    for (const planned_pad& pad : param.plan.pads) append_zeros(param, rect_of(pad), jobs);
  }

  /// Gives claims back, latest first (a refused batch).
  void release(std::span<const claim> claims) {
    for (std::size_t i = claims.size(); i-- > 0;) {
      const claim& old = claims[i];
      if (old.landing == no_index)
        at(spelling_, old.source) = no_index;
      else if (old.to_group)
        together_.erase(landing(old.landing).twins, old.stored, old.part, landing(old.landing).needed);
      else
        arrived_.erase(old.landing, old.stored, old.part, landing(old.landing).needed);
    }
  }

  /// Enters claims of landings that are known to fit: those of a plan's bucket, which came while nothing was entered.
  void enter(std::span<const claim> claims) {
    is_used_ = true;
    for (const claim& part : claims) {
      if (part.to_group)
        together_.insert(landing(part.landing).twins, part.stored, part.part, landing(part.landing).needed);
      else
        arrived_.insert(part.landing, part.stored, part.part, landing(part.landing).needed);
      at(written_, part.source) = 1;
    }
  }
  /// The same for a name; true where it is the first piece of its tensor.
  bool enter(name_record name) {
    is_used_ = true;
    at(written_, name.source) = 1;
    return std::exchange(at(spelling_, name.source), name.spelling) == no_index;
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
      arrived_.clear(each);
      at(spelling_, landing(each).source) = no_index;
    });
    if (landing(l).twins != no_index) together_.clear(landing(l).twins);
  }

  /// Calls `missing(landing, rect)`, checkpoint coordinates, for everything of `count` landings that must still arrive
  /// before they can be committed: each declared part, the scale of each FP8 row, the weight of each scale.
  template <class Missing>
  void for_each_gap(std::int32_t first, std::int32_t count, Missing&& missing) const {
    for (std::int32_t l = first; l < first + count; ++l) {
      if (arrived_.is_whole(l)) continue;  // under this name alone, or under each: no gap either way
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
      const bool partner_came = paired && anything_of(partner);
      if (partner_came || (is_declared(l) && !is_kept(l))) for_each_hole(l, part.needed, report);
    }
  }

  /// Calls `visit(rect)` for each run of a landing's rows that arrived in the stored format of a view that converts; for
  /// one of the names that share bytes.
  template <class Visit>
  void for_each_stored_run(std::int32_t l, Visit&& visit) const {
    if (is_first_twin(l) && param_of(l).plan.spec.converts())
      effective(l, true).for_each_covered(landing(l).needed, visit);
  }

  /// Whether anything of the source arrived in this update, needed here or not.
  bool arrived(std::int32_t source) const {
    if (at(spelling_, source) != no_index) return true;
    for (const std::int32_t l : at(records_.sources, source).landings)
      if (!arrived_.empty(l)) return true;
    return false;
  }
  /// Whether anything of a param arrived in this update.
  bool param_arrived(std::int32_t id) const {
    const param_record& param = at(records_.params, id);
    for (std::int32_t l = param.first_landing; l < param.first_landing + param.landing_count; ++l)
      if (anything_of(l)) return true;
    return false;
  }
  /// Whether all of a landing has arrived, in one form.
  bool is_whole(std::int32_t l) const {
    return landing(l).twins == no_index ? arrived_.is_whole(l) : together_.is_whole(landing(l).twins);
  }
  bool arrived_any(std::int32_t twin_group) const { return !together_.empty(twin_group); }
  bool is_complete() const { return complete_; }
  bool is_declared_source(std::int32_t source) const { return at(declared_, source) != 0; }

  /// Ends an update whose writes lasted: after a success the kept values that came are valid, after a failure they are
  /// not.
  void settle(bool succeeded) {
    if (!is_used_) return;
    for (std::size_t i = 0; i < written_.size(); ++i) {
      if (written_[i] == 0) continue;
      kept_valid_[i] = succeeded;
      if (succeeded) continue;
      for (const std::int32_t l : records_.sources[i].landings)  // nor is it what another name of these bytes brought
        for_each_twin(l, [&](std::int32_t each) { at(kept_valid_, landing(each).source) = 0; });
    }
  }

  /// Per source: whether a successful update has brought its value, which then serves where the source is kept.
  const std::vector<std::uint8_t>& kept() const { return kept_valid_; }
  void restore_kept(const std::vector<std::uint8_t>& kept) { kept_valid_ = kept; }

 private:
  const landing_record& landing(std::int32_t l) const { return at(records_.landings, l); }
  const param_record& param_of(std::int32_t l) const { return at(records_.params, landing(l).param); }
  /// What has come of a landing in one form, under any of its names.
  typename arrivals::form_view effective(std::int32_t l, bool stored) const {
    const landing_record& where = landing(l);
    return where.twins == no_index ? arrived_.form(l, stored, where.needed)
                                   : together_.form(where.twins, stored, where.needed);
  }
  bool anything_of(std::int32_t l) const {
    return landing(l).twins == no_index ? !arrived_.empty(l) : !together_.empty(landing(l).twins);
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

  /// Whether `check_piece` has nothing to say, found out quickly: a status costs more than these comparisons.
  bool is_usual(name_record name, const source_record& source, const tensor_ref& tensor, const box& part) const {
    return part.whole && at(declared_, name.source) != 0 && source.accepted.contains(tensor.type) &&
           tensor.row_major() && tensor.data != nullptr && tensor.extents == source.extents;
  }
  /// Whether nothing of a source has come under any name: then any part of it may.
  bool is_new(const source_record& source) const {
    for (const std::int32_t l : source.landings)
      if (!arrived_.empty(l) || landing(l).twins != no_index) return false;
    return true;
  }
  status check_arrivals(name_record name, const source_record& source, const tensor_ref& tensor,
                        const box& part) const {
    status refused;
    for_each_run_of(source, tensor, part, [&](const piece_run& run) {
      for (const std::int32_t l : source.landings)
        if (refused.ok()) refused = check_arrival(name, l, intersect(run.part, landing(l).needed), tensor.type);
    });
    return refused;
  }

  // Texts of names are looked up for messages alone: that would be a cache miss a load.
  status check_piece(name_record name, const source_record& source, const tensor_ref& tensor, const box& part) const {
    if (at(declared_, name.source) == 0) return not_declared(records_.spelling(name));
    if (!source.accepted.contains(tensor.type))
      return refuse(error_code::wrong_dtype, records_.spelling(name),
                    to_string(source.accepted) + " " + to_string(source.extents), to_string(tensor));
    return check_box([&] { return records_.spelling(name); }, source.extents, tensor, part);
  }

  template <class Name>
  static status check_box(Name&& name, const shape& target, const tensor_ref& tensor, const box& part) {
    if (!fits(part, target))
      return refuse(error_code::wrong_shape, name(), "a box inside " + to_string(target), to_string(part));
    const shape& size = part.whole ? target : part.extent;
    const bool one_element = size.elements() == 1 && tensor.extents.valid() && tensor.extents.elements() == 1;
    if (!(tensor.extents == size) && !one_element)
      return refuse(error_code::wrong_shape, name(), std::string(name_of(tensor.type)) + " " + to_string(size),
                    to_string(tensor));
    if (!tensor.row_major() && tensor.strides.rank() != tensor.extents.rank())
      return refuse(error_code::bad_argument, name(), "a stride per dim", to_string(tensor.strides));
    if (tensor.data == nullptr && size.elements() > 0)
      return refuse(error_code::bad_argument, name(), to_string(tensor), "a null pointer");
    return {};
  }

  /// Whether the rectangle of a landing may arrive: each byte once, each row in one format.
  status check_arrival(name_record name, std::int32_t l, const rect& part, dtype type) const {
    if (part.empty()) return {};
    const rect& needed = landing(l).needed;
    if (!arrived_.empty(l) &&
        (arrived_.form(l, true, needed).overlaps(part) || arrived_.form(l, false, needed).overlaps(part)))
      return refuse(error_code::duplicate, records_.spelling(name), "each byte once in an update",
                    to_string(part) + " again");
    const param_spec& spec = param_of(l).plan.spec;
    if (!spec.converts()) return {};
    const rect rows{part.row_begin, part.row_end, needed.col_begin, needed.col_end};
    const bool stored = type == spec.stored;
    if (effective(l, !stored).overlaps(rows))
      return refuse(error_code::mixed_formats, records_.spelling(name), "a row in one format",
                    std::string(name_of(type)) + " for rows that came as " +
                        std::string(name_of(stored ? spec.runtime : spec.stored)) + " (" + to_string(part) + ")");
    return {};
  }

  /// Appends what lands a rectangle of a param's matrix form (of one slot where it is mapped); `job` says from where.
  static void append_landing(land_job job, const param_record& param, const rect& local, vector<land_job>& jobs) {
    const storage_map& map = param.plan.map;
    job.rows = local.rows();
    job.cols = local.cols();
    job.destination_row_stride_bytes = param.row_stride_bytes;
    if (param.map == unmapped) {
      job.destination = param.row(local.row_begin) + local.col_begin * bytes_of(job.to);
      jobs.push_back(job);
      return;
    }
    job.destination = param.slot_of(local.row_begin);
    if (map.mn_major_bytes == 0) {
      job.map = param.map;
      job.map_row = local.row_begin % param.plan.slot_rows;
      job.map_col = local.col_begin;
      jobs.push_back(job);
      return;
    }
    // Rows that stay neighbours are columns of the transpose.
    const std::byte* source = job.source;
    std::byte* slot = job.destination + local.col_begin * param.row_stride_bytes;
    std::swap(job.source_row_stride_bytes, job.source_col_stride_bytes);
    job.rows = local.cols();
    const std::int64_t first = local.row_begin % param.plan.slot_rows, last = first + local.rows();
    for (std::int64_t row = first; row < last; row += job.cols) {
      const std::int64_t to = map_row(map, row);
      job.cols = 1;
      while (row + job.cols < last && map_row(map, row + job.cols) == to + job.cols) ++job.cols;
      job.source = source + (row - first) * job.source_col_stride_bytes;
      job.destination = slot + to * map.mn_major_bytes;
      jobs.push_back(job);
    }
  }

  static rect rect_of(const planned_pad& pad) {
    return {pad.local_row, pad.local_row + pad.rows, pad.local_col, pad.local_col + pad.cols};
  }

  /// Appends landings of zeros, a slot at a time.
  static void append_zeros(const param_record& param, const rect& local, vector<land_job>& jobs) {
    static constexpr std::byte zeros[8] = {};
    if (param.plan.bytes() == 0 || local.empty()) return;  // maybe no storage
    const land_job job{.source = zeros, .from = param.plan.spec.runtime, .to = param.plan.spec.runtime};
    for (std::int64_t row = local.row_begin; row < local.row_end;) {
      const std::int64_t end = std::min(local.row_end, (row / param.plan.slot_rows + 1) * param.plan.slot_rows);
      append_landing(job, param, {row, end, local.col_begin, local.col_end}, jobs);
      row = end;
    }
  }

  /// A rectangle of a landing's place in its param, in checkpoint coordinates.
  rect in_checkpoint(std::int32_t l, const rect& local) const {
    const std::int64_t down = landing(l).needed.row_begin - landing(l).local_row;
    const std::int64_t right = landing(l).needed.col_begin;
    return {local.row_begin + down, local.row_end + down, local.col_begin + right, local.col_end + right};
  }

  /// Whether a part of a landing may arrive in runtime form; refused by the checkpoint name.
  status check_runtime_arrival(std::int32_t l, const rect& part, dtype type) const {
    const name_record name{.source = landing(l).source};
    return is_declared(l) ? check_arrival(name, l, part, type) : not_declared(records_.spelling(name));
  }

  /// Calls `visit(rect)`, in the matrix form before the map, for what a part of the matrix in kernel order holds: runs
  /// of rows of one slot, ascending.
  template <class Visit>
  static void for_each_held(const planned_param& plan, const rect& part, Visit&& visit) {
    // Shuffles stay inside 32 rows; steps with halves do not.
    bool is_near = true;
    for (const row_step& step : plan.map.steps) is_near &= step.half_rows == 0;
    for (std::int64_t row = part.row_begin; row < part.row_end;) {
      const std::int64_t slot = row / plan.slot_storage_rows, slot_begin = slot * plan.slot_storage_rows;
      const std::int64_t row_end = std::min(part.row_end, slot_begin + plan.slot_storage_rows);
      rect kept{row - slot_begin, row_end - slot_begin, part.col_begin, part.col_end};  // rows as the steps leave them
      if (plan.map.mn_major_bytes != 0) kept = {kept.col_begin, kept.col_end, kept.row_begin, kept.row_end};
      row = row_end;
      const std::int64_t first = is_near ? kept.row_begin / 32 * 32 : 0;
      const std::int64_t last = is_near ? std::min(ceil_div(kept.row_end, 32) * 32, plan.slot_rows) : plan.slot_rows;
      const bool is_whole = kept.row_begin == first && kept.row_end == last;
      const auto is_held = [&](std::int64_t r) {
        const std::int64_t to = map_row(plan.map, r);
        return kept.row_begin <= to && to < kept.row_end;
      };
      for (std::int64_t begin = first; begin < last;) {
        std::int64_t end = is_whole ? last : begin;
        while (end < last && is_held(end)) ++end;
        if (begin < end)
          visit(rect{slot * plan.slot_rows + begin, slot * plan.slot_rows + end, kept.col_begin, kept.col_end});
        begin = end + 1;
      }
    }
  }

  /// What a run of a tensor in kernel order must be, so that its bytes can be copied as they are.
  static status check_order(const param_record& param, const piece_run& run, const box& part) {
    if (!param.plan.map.swizzled) return {};
    const rect& cut = run.part;
    if ((cut.row_begin | cut.row_end) % 128 != 0 || (cut.col_begin | cut.col_end) % 4 != 0)
      return refuse(error_code::unsupported, param.name(), "a part cut on 128 rows and 4 columns (Swizzle128x4)",
                    to_string(part));
    if (run.col_stride_bytes != 1 || run.row_stride_bytes != cut.cols())
      return refuse(error_code::unsupported, param.name(), "dense bytes in 128x4 order (Swizzle128x4)",
                    "a strided tensor");
    return {};
  }

  /// The job that copies a run of a tensor in kernel order as it is. A swizzled one is [rows / 128, cols * 128] bytes,
  /// whatever part of the param's columns it has.
  static land_job copy_job(const param_record& param, const piece_run& run) {
    const rect& part = run.part;
    const dtype type = param.plan.spec.runtime;
    land_job job{.source = run.source,
                 .destination = param.row(part.row_begin) + part.col_begin * bytes_of(type),
                 .rows = part.rows(),
                 .cols = part.cols(),
                 .source_row_stride_bytes = run.row_stride_bytes,
                 .source_col_stride_bytes = run.col_stride_bytes,
                 .destination_row_stride_bytes = param.row_stride_bytes,
                 .from = type,
                 .to = type,
                 .memory = run.memory};
    if (!param.plan.map.swizzled) return job;
    job.destination = param.row(part.row_begin) + part.col_begin * 128;
    job.rows /= 128;
    job.cols *= 128;
    job.source_row_stride_bytes *= 128;
    job.destination_row_stride_bytes *= 128;
    return job;
  }

  /// Claims what a part of a runtime tensor in kernel order holds, and copies its bytes as they are, but for the pads.
  ///
  /// Swizzled: the part is cut on 128 rows and 4 columns; it lies dense, in 128x4 order of its own
  template <class ForEachRun>
  status admit_mapped(std::int32_t id, ForEachRun&& for_each_stored, const box& part, admission& out) {
    const param_record& param = at(records_.params, id);
    const dtype type = param.plan.spec.runtime;
    const auto for_each_part = [&](const piece_run& run, auto&& visit) {
      for_each_held(param.plan, run.part, [&](const rect& held) {
        for (std::int32_t l = param.first_landing; l < param.first_landing + param.landing_count; ++l)
          if (const rect inside = intersect(held, landing(l).local()); !inside.empty())
            visit(l, in_checkpoint(l, inside));
      });
    };
    status refused;
    for_each_stored([&](const piece_run& run) {
      if (refused.ok()) refused = check_order(param, run, part);
      for_each_part(run, [&](std::int32_t l, const rect& inside) {
        if (refused.ok()) refused = check_runtime_arrival(l, inside, type);
        if (refused.ok() && landing(l).twins != no_index)
          refused = refuse(error_code::unsupported, param.name(), "a tensor of one name", "a twin's");
      });
    });
    if (!refused.ok()) return refused;
    for_each_stored([&](const piece_run& run) {
      const std::size_t claimed = out.claims.size();
      for_each_part(run, [&](std::int32_t l, const rect& inside) {
        arrived_.insert(l, false, inside, landing(l).needed);
        out.claims.push_back({landing(l).source, l, inside, false, false});
        out.needed_bytes += inside.elements() * bytes_of(type);
      });
      if (out.claims.size() == claimed) return;  // nothing but pads
      out.lands.push_back(copy_job(param, run));
      out.landed.push_back({param.first_landing, {}, true, false});
      for_each_held(param.plan, run.part, [&](const rect& held) {
        for (const planned_pad& pad : param.plan.pads) append_zeros(param, intersect(held, rect_of(pad)), out.pads);
      });
      out.padded.resize(out.pads.size(), param.first_landing);
    });
    return {};
  }

  /// Claims a checked rectangle and appends its jobs; bytes that a twin has brought are compared, not written again.
  void claim_run(std::int32_t l, const rect& part, const piece_run& run, dtype type, admission& out) {
    if (part.empty()) return;
    const landing_record& where = landing(l);
    const param_record& param = param_of(l);
    const bool stored = param.plan.spec.converts() && type == param.plan.spec.stored;
    const auto append = [&](const rect& of, vector<land_job>& jobs, vector<landed_part>& parts) {
      const std::size_t first = jobs.size();
      const dtype to = stored ? type : param.plan.spec.runtime;
      const land_job job{.source = run.at(of.row_begin, of.col_begin),
                         .source_row_stride_bytes = run.row_stride_bytes,
                         .source_col_stride_bytes = run.col_stride_bytes,
                         .from = to == dtype::fp4_e2m1x2 ? to : type,  // files spell packed fp4 U8
                         .to = to,
                         .memory = run.memory};
      const std::int64_t row = where.local_row + of.row_begin - where.needed.row_begin;
      const std::int64_t col = of.col_begin - where.needed.col_begin;
      append_landing(job, param, {row, row + of.rows(), col, col + of.cols()}, jobs);
      const bool is_transposed = param.plan.map.mn_major_bytes != 0;
      std::int64_t begin = of.row_begin;
      for (std::size_t i = first; i < jobs.size(); ++i) {
        const std::int64_t end = begin + (is_transposed ? jobs[i].cols : of.rows());
        parts.push_back({l, {begin, end, of.col_begin, of.col_end}, false, is_transposed});
        begin = end;
      }
    };
    out.needed_bytes += part.elements() * bytes_of(type);
    arrived_.insert(l, stored, part, where.needed);
    out.claims.push_back({where.source, l, part, stored, false});
    if (where.twins == no_index) {
      append(part, out.lands, out.landed);
      return;
    }
    const typename arrivals::form_view together = together_.form(where.twins, stored, where.needed);
    together.for_each_covered(part, [&](const rect& again) {
      append(again, out.compares, out.compared);
      out.compared_groups.resize(out.compares.size(), where.twins);
    });
    const std::size_t first_new = out.claims.size();
    together.for_each_missing(part, [&](const rect& fresh) {
      append(fresh, out.lands, out.landed);
      out.claims.push_back({where.source, l, fresh, stored, true});
    });
    for (std::size_t i = first_new; i < out.claims.size(); ++i)
      together_.insert(where.twins, stored, out.claims[i].part, where.needed);
  }

  template <class Report>
  void for_each_hole(std::int32_t l, const rect& needed, Report&& report) const {
    const typename arrivals::form_view runtime = effective(l, false);
    effective(l, true).for_each_missing(needed, [&](const rect& gap) { runtime.for_each_missing(gap, report); });
  }

  /// The blocks of a scale that FP8 rows of this update use and that did not come. Other blocks are not needed.
  template <class Report>
  void for_each_scale_gap(std::int32_t l, Report&& report) const {
    const landing_record& scale = landing(l);
    const landing_record& weight = landing(scale.weight);
    const std::int64_t block = param_of(l).plan.spec.block_rows;
    effective(scale.weight, true).for_each_covered(weight.needed, [&](const rect& run) {
      const std::int64_t first = weight.row_phase + run.row_begin - weight.needed.row_begin;
      const rect blocks{scale.needed.row_begin + first / block,
                        scale.needed.row_begin + ceil_div(first + run.rows(), block), scale.needed.col_begin,
                        scale.needed.col_end};
      for_each_hole(l, blocks, report);
    });
  }

  const basic_registry<Use>& records_;
  bool complete_ = true;
  bool all_declared_ = true;
  bool is_used_ = false;  ///< something was entered since `clear`
  arrivals arrived_ = {};                 ///< per landing
  arrivals together_ = {};                ///< per twin group: what came under any of its names
  vector<std::uint8_t> declared_ = {};    ///< per source
  vector<std::int32_t> spelling_ = {};    ///< per source: the spelling used in this update
  vector<std::uint8_t> written_ = {};     ///< per source
  vector<std::uint8_t> kept_valid_ = {};  ///< per source: a successful update has brought its value
};

using ledger = basic_ledger<>;

}  // namespace wreload
