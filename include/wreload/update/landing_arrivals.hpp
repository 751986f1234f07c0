#pragma once
/// `landing_arrivals`: what has come of each landing in this update, under each name and under any; what may still
/// come; and the jobs that bring it.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../core/job.hpp"
#include "../core/on_use.hpp"
#include "../core/status.hpp"
#include "admission.hpp"
#include "arrivals.hpp"
#include "landing_jobs.hpp"
#include "piece.hpp"
#include "registry.hpp"

namespace wreload {

/// Landings of several names may share their bytes (twins): what comes under each is counted for it, and once for the
/// group. The first name to bring a byte writes it; under the others it is compared.
template <class Use = on_use>
class basic_landing_arrivals {
  template <class T>
  using vector = dependent<std::vector<T>, Use>;
  using admission = dependent<wreload::admission, Use>;
  using arrivals = basic_arrivals<Use>;

 public:
  using form_view = typename arrivals::form_view;

  explicit basic_landing_arrivals(const basic_registry<Use>& records) : records_(records) {}

  /// Sizes the tables; the registry is indexed by now.
  void seal() {
    arrived_.resize(records_.landings.size());
    together_.resize(records_.twin_groups.size());
  }

  /// Forgets everything and returns what it took from the heap.
  void clear() {
    arrived_.clear();
    together_.clear();
  }
  /// Forgets what has come of a landing, and of its twins.
  void clear(std::int32_t l) {
    records_.for_each_twin(l, [&](std::int32_t each) { arrived_.clear(each); });
    if (landing(l).twins != no_index) together_.clear(landing(l).twins);
  }

  void prefetch(std::int32_t l) const { arrived_.prefetch(l); }

  /// Whether nothing has come under the landing's own name; whether all has, in one form.
  bool empty(std::int32_t l) const { return arrived_.empty(l); }
  bool is_whole_alone(std::int32_t l) const { return arrived_.is_whole(l); }

  /// Whether anything has come under any of its names; whether all has, in one form.
  bool any(std::int32_t l) const {
    return landing(l).twins == no_index ? !arrived_.empty(l) : !together_.empty(landing(l).twins);
  }
  bool any_of_group(std::int32_t twin_group) const { return !together_.empty(twin_group); }
  bool is_whole(std::int32_t l) const {
    return landing(l).twins == no_index ? arrived_.is_whole(l) : together_.is_whole(landing(l).twins);
  }
  /// What has come in one form; valid until the next change.
  form_view form(std::int32_t l, bool stored) const {
    const landing_record& where = landing(l);
    return where.twins == no_index ? arrived_.form(l, stored, where.needed)
                                   : together_.form(where.twins, stored, where.needed);
  }

  /// Enters a claim of a landing; see `check`.
  void insert(const claim& part) {
    if (part.to_group)
      together_.insert(landing(part.landing).twins, part.stored, part.part, landing(part.landing).needed);
    else
      arrived_.insert(part.landing, part.stored, part.part, landing(part.landing).needed);
  }
  /// Takes it out again.
  void erase(const claim& part) {
    if (part.to_group)
      together_.erase(landing(part.landing).twins, part.stored, part.part, landing(part.landing).needed);
    else
      arrived_.erase(part.landing, part.stored, part.part, landing(part.landing).needed);
  }

  /// Whether the rectangle of a landing may come: each byte once, each row in one format. Refused by the name.
  status check(name_record name, std::int32_t l, const rect& part, dtype type) const {
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
    if (form(l, !stored).overlaps(rows))
      return refuse(error_code::mixed_formats, records_.spelling(name), "a row in one format",
                    std::string(name_of(type)) + " for rows that came as " +
                        std::string(name_of(stored ? spec.runtime : spec.stored)) + " (" + to_string(part) + ")");
    return {};
  }

  /// Claims a checked rectangle and appends its jobs; bytes that a twin has brought are compared, not written again.
  void admit(std::int32_t l, const rect& part, const piece_run& run, dtype type, admission& out) {
    if (part.empty()) return;
    const landing_record& where = landing(l);
    const bool stored = param_of(l).plan.spec.converts() && type == param_of(l).plan.spec.stored;
    out.needed_bytes += part.elements() * bytes_of(type);
    arrived_.insert(l, stored, part, where.needed);
    out.claims.push_back({where.source, l, part, stored, false});
    if (where.twins == no_index) {
      append(l, part, run, type, stored, out.lands, out.landed);
      return;
    }
    const form_view together = together_.form(where.twins, stored, where.needed);
    together.for_each_covered(part, [&](const rect& again) {
      append(l, again, run, type, stored, out.compares, out.compared);
      out.compared_groups.resize(out.compares.size(), where.twins);
    });
    const std::size_t first_new = out.claims.size();
    together.for_each_missing(part, [&](const rect& fresh) {
      append(l, fresh, run, type, stored, out.lands, out.landed);
      out.claims.push_back({where.source, l, fresh, stored, true});
    });
    for (std::size_t i = first_new; i < out.claims.size(); ++i)
      together_.insert(where.twins, stored, out.claims[i].part, where.needed);
  }

 private:
  const landing_record& landing(std::int32_t l) const { return at(records_.landings, l); }
  const param_record& param_of(std::int32_t l) const { return at(records_.params, landing(l).param); }

  /// Appends the jobs of a rectangle, and what each lands.
  void append(std::int32_t l, const rect& of, const piece_run& run, dtype type, bool stored, vector<land_job>& jobs,
              vector<landed_part>& parts) const {
    const landing_record& where = landing(l);
    const param_record& param = param_of(l);
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
    detail::append_landing(job, param, {row, row + of.rows(), col, col + of.cols()}, jobs);
    const bool is_transposed = param.plan.map.mn_major_bytes != 0;
    std::int64_t begin = of.row_begin;
    for (std::size_t i = first; i < jobs.size(); ++i) {
      const std::int64_t end = begin + (is_transposed ? jobs[i].cols : of.rows());
      parts.push_back({l, {begin, end, of.col_begin, of.col_end}, false, is_transposed});
      begin = end;
    }
  }

  const basic_registry<Use>& records_;
  arrivals arrived_ = {};   ///< per landing
  arrivals together_ = {};  ///< per twin group: what came under any of its names
};

}  // namespace wreload
