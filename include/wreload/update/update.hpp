#pragma once
/// `update`: one transaction on a model, from `start` to `finish` or `abort`; and its lanes.

#include <concepts>
#include <list>
#include <span>
#include <string_view>
#include <utility>

#include "session.hpp"

namespace wreload {

/// An entry into an open update for one thread at a time; lanes run concurrently, each on its own stream. A lane must
/// not outlive its update.
template <executor Executor>
class update_lane {
 public:
  update_lane(detail::session<Executor>& session, detail::lane_state<Executor>& state)
      : session_(&session), state_(&state) {}

  /// Loads a tensor (or the part of it that fills `part`) under a checkpoint name, or under a runtime name.
  ///
  /// Validates first: name, scope, dtype, shape, box, duplicates, rows in two formats. A refusal wrote nothing.
  /// Stream:    enqueued on the lane's stream; does not synchronise
  /// Sources:   must stay as they are until `flush`'s event, or the end of the update, has completed
  /// Partial:   bytes that this rank does not need are a success and counted
  /// Runtime:   bytes are copied as they are, but for the pads; `part` is in the param's matrix form (slots * rows,
  ///            cols), or (tensors of three dims) in [slots, rows, cols]. Any strides; a swizzled part is cut on 128
  ///            rows and 4 columns and dense, in 128x4 order of its own. A param with a map and a second name
  ///            (`SameAs`) is refused
  status load(std::string_view name, const tensor_ref& tensor, const box& part = whole_tensor,
              load_form form = load_form::checkpoint) {
    const piece one{.name = name, .tensor = tensor, .part = part, .form = form};
    return session_->loads().load(*state_, {&one, 1}, {});
  }

  /// The same by id (see `model::find`), without a look-up.
  status load(tensor_id id, const tensor_ref& tensor, const box& part = whole_tensor) {
    const piece one{.tensor = tensor, .part = part, .id = id};
    return session_->loads().load(*state_, {&one, 1}, {});
  }

  /// Loads a batch, all of it or (on a refusal) none. The copies wait on the device for `ready`.
  ///
  /// Requires: with `ready`, pieces in device or pinned memory (`tensor_ref::memory`; pageable unless it says so)
  status load(std::span<const piece> pieces, event_ref ready = {}) {
    return session_->loads().load(*state_, pieces, ready);
  }

  /// Loads a bucket, all of it or (on a refusal) none; as the batch of its pieces. A bucket that lies outside its block is
  /// refused.
  ///
  /// Replay:    an update in complete scope (mode direct or swap, no undo image, no digests) to which everything comes
  ///            in buckets, none of it with pads, to be compared with a second name, or (CUDA) marked pageable, is kept
  ///            as the model's plan. While later updates bring the same buckets (by manifest, in any order, on any
  ///            lane; the blocks a multiple of 16 bytes from where they were) each costs a few launches and `finish` no
  ///            more: no tensor is looked at. At the first difference the update is an ordinary one, and makes the next
  ///            plan; if it cannot be kept itself, the plan stays for the update after it
  /// Memory:    the executor's room for tables (CUDA: `cuda_options::plan_bytes`; without it nothing is kept. The host
  ///            executor always keeps them, on the heap), and host memory for what the buckets brought. A plan for
  ///            which there is too little room beside the one before takes all of it the next time: then there is none
  ///            meanwhile
  template <std::same_as<bucket> Bucket>  // braces mean pieces
  status load(const Bucket& from, event_ref ready = {}) { return session_->loads().load(*state_, from, ready); }

  /// An event after which the sources given to this lane may be reused; null where that is so already.
  event_ref flush() { return session_->flush(*state_); }

 private:
  detail::session<Executor>* session_;
  detail::lane_state<Executor>* state_;
};

/// An open update. Movable; the destructor aborts what was not finished.
///
/// Nothing may read registered bytes between the first load and commit's event, unless the reader's stream was given to
/// `start`.
///
/// Exceptions: only host allocation throws. Where a call may have entered something by then the update has failed: later
///             calls are refused (`out_of_memory`), and `abort` or the destructor ends it (which takes nothing from the
///             heap, but for what the executor may)
template <executor Executor>
class update {
 public:
  using lane_type = update_lane<Executor>;

  using session_list = std::list<detail::session<Executor>>;

  update() = default;
  /// Takes the last session of a model's list.
  explicit update(session_list& sessions) : home_(&sessions), session_(&sessions.back()) {}
  update(update&& other) noexcept : home_(other.home_), session_(std::exchange(other.session_, nullptr)) {}
  update& operator=(update&& other) noexcept {
    std::swap(home_, other.home_);
    std::swap(session_, other.session_);
    return *this;
  }
  ~update() {
    if (session_ != nullptr) home_->remove_if([this](const auto& each) { return &each == session_; });
  }

  bool is_open() const { return session_ != nullptr && session_->is_open(); }
  bool is_prepared() const { return session_ != nullptr && session_->is_prepared(); }
  bool is_committed() const { return session_ != nullptr && session_->is_committed(); }

  /// Another lane on a stream. The CUDA executor has 64 open lanes; those of a handle end with it.
  lane_type lane(stream_ref stream) { return {*session_, *session_->add_lane(stream)}; }

  /// The update's own lane, on the stream given to `start`; see `update_lane::load`.
  lane_type main_lane() { return {*session_, session_->main_lane()}; }
  status load(std::string_view name, const tensor_ref& tensor, const box& part = whole_tensor,
              load_form form = load_form::checkpoint) {
    return session_ == nullptr ? closed() : main_lane().load(name, tensor, part, form);
  }
  status load(tensor_id id, const tensor_ref& tensor, const box& part = whole_tensor) {
    return session_ == nullptr ? closed() : main_lane().load(id, tensor, part);
  }
  status load(std::span<const piece> pieces, event_ref ready = {}) {
    return session_ == nullptr ? closed() : main_lane().load(pieces, ready);
  }
  template <std::same_as<bucket> Bucket>  // braces mean pieces
  status load(const Bucket& from, event_ref ready = {}) {
    return session_ == nullptr ? closed() : main_lane().load(from, ready);
  }
  event_ref flush() { return session_ == nullptr ? event_ref{} : main_lane().flush(); }

  /// Where a transport may write the bytes of (a part of) a checkpoint tensor of the given dtype itself, where that is
  /// one rectangle of one landing that is copied as it is; refused otherwise. The caller orders its writes behind the
  /// readers; from here on an abort leaves the model `undefined`. `adopt` then marks the tensor arrived.
  status landing(std::string_view name, const box& part, dtype type, direct_landing* out) {
    if (session_ == nullptr) return closed();
    return session_->landing({.name = name, .tensor = {.type = type}, .part = part}, out);
  }

  /// Marks whole tensors arrived that were written in place: checkpoint names in stored format, or runtime names. All
  /// or (on a refusal) none.
  status adopt(std::span<const std::string_view> names, load_form form) {
    if (session_ == nullptr) return closed();
    return session_->adopt(names, form);
  }

  /// Forgets what arrived under a checkpoint or runtime name, so that it may come again; names that share its bytes
  /// (`SameAs`) are forgotten with it, and so is the other half of an FP8 weight and its scales where they were converted
  /// already (a whole layer of mode layerwise; codes and scales that came in one load).
  status retract(std::string_view name) { return session_ == nullptr ? closed() : session_->retract(name); }

  /// Checks scope and everything that can fail early. A refusal launched nothing, names what is missing, and leaves the
  /// update open. After a success the update takes no more loads.
  status prepare() { return session_ == nullptr ? closed() : session_->prepare(); }

  /// Appends the digests of what has landed, a tile of a checkpoint tensor (or this rank's part of it) each, for a caller
  /// who sends them on. After `prepare`, where `start` was asked for them. Left out: what came under a second name
  /// (`SameAs`), what a transport wrote itself, tensors that came in kernel order.
  status landed_digests(digest_list* list) const {
    return session_ == nullptr ? closed() : session_->append_landed_digests(*list);
  }

  /// Enqueues the remaining writes; `done` receives the event that readers wait for. Does not synchronise.
  status commit(event_ref* done = nullptr) { return session_ == nullptr ? closed() : session_->commit(done); }

  /// Waits for the commit, and does everything else that can fail before `publish`.
  status settle() { return session_ == nullptr ? closed() : session_->settle(); }

  /// After `commit`: what became of the update elsewhere is not known. The model is `in_doubt`, and must not serve, until
  /// `publish` or `abort` decides; a handle that goes away leaves it so.
  status doubt() { return session_ == nullptr ? closed() : session_->doubt(); }

  /// Waits for the commit and publishes the version.
  status publish() { return session_ == nullptr ? closed() : session_->publish(); }

  /// `prepare` (unless done), `commit` and `publish`: waits.
  status finish() {
    if (session_ == nullptr) return closed();
    if (!session_->is_prepared())
      if (status refused = prepare(); !refused.ok()) return refused;
    if (!session_->is_committed())
      if (status failed = commit(); !failed.ok()) return failed;
    return publish();
  }

  /// Ends the update without publishing. The model is as before if no live byte was written, or if all were put back
  /// (mode swap; an undo image), else `undefined`. Waits for landings that run, never for the caller's streams; nothing of
  /// this update writes after it returned.
  status abort() { return session_ == nullptr ? status{} : session_->abort(); }

  /// What happened so far; valid after the end too.
  const wreload::report& report() const {
    static const wreload::report nothing = {};
    return session_ == nullptr ? nothing : session_->last_report();
  }

 private:
  static status closed() { return refuse(error_code::wrong_state, {}, "an open update", "none"); }

  session_list* home_ = nullptr;
  detail::session<Executor>* session_ = nullptr;
};

}  // namespace wreload
