#pragma once
/// `update_set`: the updates of several models as one transaction, on every rank or on none.

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <string_view>

#include "model_core.hpp"
#include "model_ref.hpp"

namespace wreload {

/// What is known of the other ranks.
enum class vote : std::uint8_t { yes, no, unknown };

constexpr std::string_view name_of(vote of) {
  switch (of) {
    case vote::yes: return "yes";
    case vote::no: return "no";
    case vote::unknown: return "unknown";
  }
  return "?";
}

/// Yes if all say yes, no if one says no, else unknown.
constexpr vote unanimous(std::span<const vote> votes) {
  vote outcome = vote::yes;
  for (const vote each : votes) {
    if (each == vote::no) return vote::no;
    if (each == vote::unknown) outcome = vote::unknown;
  }
  return outcome;
}

/// Updates of one rank (a target and its draft model, say) that are committed and published together, once the other
/// ranks agree. The caller carries the votes: after each of `prepare` and `commit` it exchanges `vote_of(result)` by
/// whatever it has, and hands `unanimous` of them, or `unknown` where an answer stays out, to the next call.
///
///     prepare()        ->  votes  ->  commit(outcome)   ->  votes  ->  publish(outcome)
///
///   before the commit   without unanimity nothing is written: the updates stay open (a later call may have a yes) until
///                       `abort`, or until the deadline has passed when a call comes
///   after the commit    no: all are aborted (as before in mode swap and with an undo image, else `undefined`). unknown:
///                       all are `in_doubt`, and must not serve, until a `publish(yes)` or `abort` decides
///
/// One thread at a time.
class update_set {
 public:
  /// `deadline_seconds` from now; 0: none.
  explicit update_set(double deadline_seconds = 0)
      : deadline_(deadline_seconds > 0 ? detail::seconds_now() + deadline_seconds : 0) {}

  /// Takes an open update over. The reference stays valid; loads go through it.
  update_ref& add(update_ref&& opened) { return updates_.emplace_back(static_cast<update_ref&&>(opened)); }

  /// Prepares all; stops at the first refusal, after which it may be called again.
  status prepare() {
    if (status late = check_deadline(); !late.ok()) return late;
    return for_each([](update_ref& each) { return each.is_prepared() ? status{} : each.prepare(); });
  }

  status commit(vote others) {
    if (status late = check_deadline(); !late.ok()) return late;
    if (others != vote::yes)
      return refuse(error_code::not_unanimous, "commit", "a yes of every rank", std::string(name_of(others)));
    for (const update_ref& each : updates_)
      if (!each.is_prepared()) return refuse(error_code::wrong_state, "commit", "prepared updates", "one that is not");
    // Waits: a write that fails counts in the vote that comes next.
    if (status failed = for_each([](update_ref& each) { return each.is_committed() ? status{} : each.commit(); });
        !failed.ok())
      return failed;
    return for_each([](update_ref& each) { return each.settle(); });
  }

  /// Publishes on a yes. A no aborts, an unknown outcome leaves the models `in_doubt`: both are `not_unanimous`. Waits.
  status publish(vote others) {
    if (others == vote::no) {  // also where it was this rank's commit that failed
      const status undone = abort();
      return undone.ok() ? refuse(error_code::not_unanimous, "publish", "a yes of every rank", "no; aborted") : undone;
    }
    for (const update_ref& each : updates_)
      if (!each.is_committed()) return refuse(error_code::wrong_state, "publish", "committed updates", "one that is not");
    if (others == vote::unknown) {
      const status failed = for_each([](update_ref& each) { return each.doubt(); });
      return failed.ok() ? refuse(error_code::not_unanimous, "publish", "a yes of every rank", "unknown; in doubt")
                         : failed;
    }
    if (status failed = for_each([](update_ref& each) { return each.settle(); }); !failed.ok()) return failed;
    return for_each([](update_ref& each) { return each.publish(); });
  }

  /// Aborts all, also after an error of one; returns the first error.
  status abort() {
    status first;
    for (update_ref& each : updates_)
      if (status failed = each.abort(); first.ok()) first = failed;
    return first;
  }

  /// This rank's vote after a call: no where it failed.
  static vote vote_of(const status& result) { return result.ok() ? vote::yes : vote::no; }

 private:
  template <class Call>
  status for_each(Call&& call) {
    for (update_ref& each : updates_)
      if (status failed = call(each); !failed.ok()) return failed;
    return {};
  }

  /// A committed set has no deadline: only a decision ends it.
  status check_deadline() {
    if (deadline_ == 0 || detail::seconds_now() < deadline_) return {};
    for (const update_ref& each : updates_)
      if (each.is_committed()) return {};
    (void)abort();
    return refuse(error_code::aborted, {}, "a decision before the deadline", "none; aborted");
  }

  std::list<update_ref> updates_ = {};
  double deadline_ = 0;
};

}  // namespace wreload
