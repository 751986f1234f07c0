#pragma once
/// `page_swap`: mode swap's way to live storage. The pages change places, and back where the update is aborted.

#include <span>
#include <utility>

#include "model_core.hpp"
#include "options.hpp"
#include "spare_pages.hpp"
#include "update_core.hpp"

namespace wreload::detail {

/// The generation before stays behind the spare addresses. Under the model's lock.
template <executor Executor>
class page_swap {
 public:
  explicit page_swap(update_core<Executor>& update) : update_(update), model_(update.model) {}

  /// Enqueues a copy of what the update may leave out; the generation that the spare pages held is gone.
  status open() {
    model_.previous.reset();          // its pages are written from here on
    update_.lanes.note_overtaking();  // by the copy
    return copy_to_spare(model_, update_.lanes.main().lane, model_.books.scope().is_complete());
  }

  /// The commit, once nothing uses the pages. Waits. After a failure all is as before, unless the pages are lost.
  status exchange(std::span<const stream_ref> readers) {
    typename Executor::lane& lane = update_.lanes.main().lane;
    if (status failed = model_.run.hold(readers); !failed.ok()) return failed;
    if (status failed = model_.run.combine(lane, {}); !failed.ok()) return failed;  // behind the readers
    if (status failed = model_.run.wait(lane); !failed.ok()) return failed;
    update_.live.begin_pause(seconds_now());
    replaced_ = model_.current();
    model_.state = model_state::updating;
    const status failed = model_.pages->exchange(&is_lost_);
    has_exchanged_ = failed.ok();
    update_.report.pages_exchanged = has_exchanged_;
    if (has_exchanged_ || is_lost_) update_.live.note_exchange();
    if (!failed.ok() && !is_lost_) model_.state = replaced_.state;
    return failed;
  }
  bool has_exchanged() const { return has_exchanged_; }

  /// Requires: `has_exchanged`.
  status exchange_back() {
    has_exchanged_ = false;
    return model_.pages->exchange(&is_lost_);
  }

  /// After a success: `rollback` can go back.
  void keep_replaced() { model_.previous = std::move(replaced_); }
  /// An exchange failed half way: no page is left.
  bool is_lost() const { return is_lost_; }

 private:
  update_core<Executor>& update_;
  model_core<Executor>& model_;
  generation replaced_ = {};
  bool has_exchanged_ = false;
  bool is_lost_ = false;
};

}  // namespace wreload::detail
