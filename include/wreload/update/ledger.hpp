#pragma once
/// `ledger`: what has arrived in this update, per landing and in checkpoint coordinates, and what is still missing.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../core/on_use.hpp"
#include "../core/prefetch.hpp"
#include "../core/status.hpp"
#include "admission.hpp"
#include "declared_scope.hpp"
#include "gaps.hpp"
#include "kept_values.hpp"
#include "landing_arrivals.hpp"
#include "piece.hpp"
#include "registry.hpp"
#include "runtime_pieces.hpp"
#include "scope.hpp"

namespace wreload {

/// The books of one update at a time: its scope, what has come, under which spelling; and the kept values, which
/// outlive it. Not thread safe: the update holds a lock around it.
template <class Use = on_use>
class basic_ledger {
  using admission = dependent<wreload::admission, Use>;

 public:
  explicit basic_ledger(const basic_registry<Use>& records)
      : records_(records), declared_(records), arrived_(records), kept_(records) {}

  /// Sizes the tables; the registry is indexed by now.
  void seal() {
    declared_.seal();
    arrived_.seal();
    kept_.seal();
    spelling_.assign(records_.sources.size(), no_index);
  }

  /// Opens the books of an update; see `declared_scope::open`.
  template <class Elsewhere>
  status open(const update_scope& scope, Elsewhere&& elsewhere) {
    clear();
    return declared_.open(scope, elsewhere);
  }

  /// Forgets all arrivals and returns what they took from the heap.
  void clear() {
    if (!is_used_) return;
    is_used_ = false;
    arrived_.clear();
    kept_.clear();
    std::fill(spelling_.begin(), spelling_.end(), no_index);
  }

  /// Starts to fetch what the loads of names (indices into registry::names, or -1) will read, for each as far as what
  /// it points to is at hand: `last` is to be loaded last, `first` soonest.
  void prefetch(std::int32_t last, std::int32_t middle, std::int32_t first) const {
    if (last != no_index) records_.names.prefetch_record(last);
    if (middle != no_index) {
      const std::int32_t source = records_.names[middle].source;
      wreload::prefetch(&at(records_.sources, source));
      wreload::prefetch(&at(records_.sources, source).name);
      wreload::prefetch(&at(spelling_, source));
    }
    if (first == no_index) return;
    const index_list& landings = at(records_.sources, records_.names[first].source).landings;
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
        arrived_.admit(l, intersect(run.part, landing(l).needed), run, tensor.type, out);
    });
    return {};
  }

  /// The same for a part of a runtime tensor; see `runtime_pieces`.
  status admit_runtime(std::int32_t param, const tensor_ref& tensor, const box& part, admission& out) {
    is_used_ = true;
    return basic_runtime_pieces<Use>(records_, declared_, arrived_).admit(param, tensor, part, out);
  }

  /// Gives claims back, latest first (a refused batch).
  void release(std::span<const claim> claims) {
    for (std::size_t i = claims.size(); i-- > 0;) {
      if (claims[i].landing == no_index)
        at(spelling_, claims[i].source) = no_index;
      else
        arrived_.erase(claims[i]);
    }
  }

  /// Enters claims of landings that are known to fit: those of a plan's bucket, which came while nothing was entered.
  void enter(std::span<const claim> claims) {
    is_used_ = true;
    for (const claim& part : claims) {
      arrived_.insert(part);
      kept_.note_written(part.source);
    }
  }
  /// The same for a name; true where it is the first piece of its tensor.
  bool enter(name_record name) {
    is_used_ = true;
    kept_.note_written(name.source);
    return std::exchange(at(spelling_, name.source), name.spelling) == no_index;
  }

  /// Remembers that these claims are being written: their kept values serve only if this update succeeds.
  void note_written(std::span<const claim> claims) {
    is_used_ = true;
    for (const claim& part : claims) kept_.note_written(part.source);
  }

  /// Forgets what arrived under a source, and under its twins, whose bytes it shares.
  void retract(std::int32_t source) {
    for (const std::int32_t l : at(records_.sources, source).landings) retract_landing(l);
    at(spelling_, source) = no_index;
  }
  void retract_landing(std::int32_t l) {
    arrived_.clear(l);
    records_.for_each_twin(l, [&](std::int32_t each) { at(spelling_, landing(each).source) = no_index; });
  }

  /// Calls `missing(landing, rect)` for everything of `count` landings that must still arrive; see `gaps`.
  template <class Missing>
  void for_each_gap(std::int32_t first, std::int32_t count, Missing&& missing) const {
    basic_gaps<Use>(records_, arrived_, declared_, kept_).for_each(first, count, missing);
  }

  /// Calls `visit(rect)` for each run of a landing's rows that arrived in the stored format of a view that converts;
  /// for one of the names that share bytes.
  template <class Visit>
  void for_each_stored_run(std::int32_t l, Visit&& visit) const {
    if (records_.is_first_twin(l) && at(records_.params, landing(l).param).plan.spec.converts())
      arrived_.form(l, true).for_each_covered(landing(l).needed, visit);
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
      if (arrived_.any(l)) return true;
    return false;
  }
  const basic_landing_arrivals<Use>& arrivals() const { return arrived_; }
  const basic_declared_scope<Use>& scope() const { return declared_; }
  basic_kept_values<Use>& kept() { return kept_; }
  const basic_kept_values<Use>& kept() const { return kept_; }

  /// Ends an update whose writes lasted; see `kept_values`.
  void settle(bool succeeded) {
    if (is_used_) kept_.settle(succeeded);
  }

 private:
  const landing_record& landing(std::int32_t l) const { return at(records_.landings, l); }

  template <class Visit>
  static void for_each_run_of(const source_record& source, const tensor_ref& tensor, const box& part, Visit&& visit) {
    if (source.bundled) return for_each_bundle_run(tensor, part, source.extents, visit);
    for_each_run(tensor, part, source.extents, visit);
  }

  /// Whether `check_piece` has nothing to say, found out quickly: a status costs more than these comparisons.
  bool is_usual(name_record name, const source_record& source, const tensor_ref& tensor, const box& part) const {
    return part.whole && declared_.has(name.source) && source.accepted.contains(tensor.type) && tensor.row_major() &&
           tensor.data != nullptr && tensor.extents == source.extents;
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
        if (refused.ok()) refused = arrived_.check(name, l, intersect(run.part, landing(l).needed), tensor.type);
    });
    return refused;
  }

  // Texts of names are looked up for messages alone: that would be a cache miss a load.
  status check_piece(name_record name, const source_record& source, const tensor_ref& tensor, const box& part) const {
    if (!declared_.has(name.source)) return declared_.not_declared(records_.spelling(name));
    if (!source.accepted.contains(tensor.type))
      return refuse(error_code::wrong_dtype, records_.spelling(name),
                    to_string(source.accepted) + " " + to_string(source.extents), to_string(tensor));
    return check_box([&] { return records_.spelling(name); }, source.extents, tensor, part);
  }

  const basic_registry<Use>& records_;
  basic_declared_scope<Use> declared_;
  basic_landing_arrivals<Use> arrived_;
  basic_kept_values<Use> kept_;
  bool is_used_ = false;  ///< something was entered since `clear`
  dependent<std::vector<std::int32_t>, Use> spelling_ = {};  ///< per source: the spelling used in this update
};

using ledger = basic_ledger<>;

}  // namespace wreload
