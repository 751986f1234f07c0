#pragma once
/// One update of a mixed engine that may fail anywhere, and what has to hold then.

#include <array>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mixed_engine.hpp"

namespace wreload::test {

/// How an update under test is started.
struct injected_case {
  std::string name = {};
  update_mode mode = update_mode::direct;
  undo_mode undo = undo_mode::none;
  std::int64_t budget_bytes = 0;
  bool lends = false;
  bool or_direct = false;
  bool partial = false;
  bool cold = false;      ///< on a model that was never loaded
  bool watchful = false;  ///< detects changes; but for layerwise: checks a sender's digests
  bool alike = false;     ///< all that is sent has the same dtypes, so that a bucket is like one before

  bool is_aside() const { return mode == update_mode::staged || mode == update_mode::layerwise; }
  /// Whether a failure before `commit` (or anywhere) leaves everything as it was.
  bool is_atomic(bool before_commit) const {
    return mode == update_mode::swap || undo == undo_mode::host || (mode == update_mode::staged && before_commit);
  }
};

/// Every mode, with and without undo, complete and partial, cold and warm.
inline std::vector<injected_case> injected_cases() {
  constexpr std::int64_t room = 16 << 10, small = 160;
  std::vector<injected_case> modes;
  for (const undo_mode undo : {undo_mode::none, undo_mode::host}) {
    modes.push_back({.mode = update_mode::direct, .undo = undo, .watchful = true});
    modes.push_back({.mode = update_mode::layerwise, .undo = undo, .budget_bytes = room});
    modes.push_back({.mode = update_mode::layerwise, .undo = undo, .budget_bytes = small, .or_direct = true});
    modes.push_back({.mode = update_mode::staged, .undo = undo, .budget_bytes = room, .watchful = true});
  }
  modes.push_back({.mode = update_mode::layerwise, .budget_bytes = staging_memory::no_limit});
  modes.push_back({.mode = update_mode::staged, .budget_bytes = staging_memory::no_limit});
  modes.push_back({.mode = update_mode::staged, .lends = true});
  modes.push_back({.mode = update_mode::swap, .watchful = true});
  std::vector<injected_case> all;
  for (const injected_case& mode : modes)
    for (int start = 0; start < 3; ++start) {
      injected_case each = mode;
      each.partial = start == 1;
      each.cold = start == 2;
      each.name = std::string(name_of(mode.mode)) + (mode.undo == undo_mode::host ? ", undo" : "") +
                  (mode.lends ? ", lent memory"
                   : mode.or_direct ? ", too little room"
                   : mode.budget_bytes == staging_memory::no_limit ? ", no limit"
                                                                    : "") +
                  (each.partial ? ", partial" : each.cold ? ", cold" : ", warm");
      all.push_back(each);
    }
  return all;
}

/// An engine, what it serves, and one update on it that may fail.
template <class Executor>
class injected_run {
 public:
  using engine_type = mixed_engine<Executor>;
  using update_type = update<typename engine_type::executor_type>;

  explicit injected_run(const injected_case& how) : how_(how) { renew(); }

  engine_type& engine() { return *engine_; }
  auto& model() { return engine_->model(); }
  fault_plan& plan() { return engine_->plan; }
  const reference::checkpoint& old_logical() const { return old_; }
  const reference::checkpoint& new_logical() const { return new_; }
  const reference::checkpoint& sent() const { return sent_; }
  update_type& open() { return open_; }
  std::set<std::string>& tried() { return tried_; }
  bool reached_commit() const { return reached_commit_; }

  /// Remembers how things are, and what is to be sent next.
  void prepare_next() {
    if (how_.cold) renew();
    ++turn_;
    sent_ = engine_type::checkpoint_of(how_.alike ? 2 * (++seed_ % 5) : ++seed_ % 5);
    if (how_.partial) sent_ = engine_type::part_of(sent_);
    new_ = how_.partial ? over(old_, sent_) : sent_;
    before_ = engine_->image();
    state_before_ = model().state();
    version_before_ = model().version();
    bytes_before_ = model().executor().allocated_bytes();
    tried_.clear();
    reached_commit_ = false;
    engine_->memory().drop_sources();
  }

  /// The update; stops at the first failure.
  status update_once() {
    const status result = commit_once();
    return result.ok() ? open_.publish() : result;
  }
  status commit_once() {
    status result = start();
    if (result.ok()) result = engine_->deliver(open_, sent_, turn_ * 5, &tried_);
    if (result.ok()) result = open_.prepare();
    if (!result.ok()) return result;
    reached_commit_ = true;
    event_ref done;
    return open_.commit(&done);
  }

  status start() {
    start_options options{.mode = how_.mode, .stream = engine_->memory().stream(0), .undo = how_.undo};
    options.detect_changes = how_.watchful;
    readers_[0] = engine_->memory().stream(2);
    options.readers = readers_;
    options.staging = {.budget_bytes = how_.budget_bytes, .or_direct = how_.or_direct};
    if (how_.lends) options.staging.lent = {lent_, lent_bytes};
    digests_.clear();
    if (how_.watchful && how_.mode != update_mode::layerwise)
      for (const char* name : {"q.weight", "attn.sinks", "embed.weight"})
        if (const auto found = sent_.find(name); found != sent_.end())
          append_digests(name, {.data = found->second.bytes.data(), .type = found->second.type,
                                .extents = shape_of(found->second.sizes)}, digests_);
    options.digests = digests_;
    const std::vector<std::string> names = engine_type::names_of(sent_);
    const std::vector<std::string_view> views(names.begin(), names.end());
    if (how_.partial) options.scope = update_scope::partial(views);
    status refused;
    open_ = model().start(options, &refused);
    return refused;
  }

  /// What has to hold after any failure, before the update ends.
  void check_failed(const status& result) {
    const auto image = engine_->image();
    demand(result.is_final(), "an execution error, but " + result.message());
    demand(image == before_ || result.wrote_anything, "bytes changed, and the status says that nothing was written");
    demand(model().version() == version_before_, "the version changed");
    const bool may_serve = how_.mode == update_mode::swap || how_.mode == update_mode::staged;
    if (may_serve && !result.wrote_anything) demand(model().state() == state_before_, "the old weights do not serve");
    if (!open_.is_open()) return;  // `start` failed
    demand(open_.prepare().code == result.code, "prepare: the error is not sticky");
    demand(open_.load("norm.weight", engine_->place(engine_type::checkpoint_of(0).at("norm.weight"))).code == result.code,
           "load: the error is not sticky");
    demand(open_.finish().code == result.code, "finish: the error is not sticky");
    demand(image == engine_->image(), "a call after the failure wrote");
  }

  /// What has to hold once the update has ended. `as_before`: nothing else would do.
  void check_ended(bool as_before, bool cancel_failed = false) {
    const model_state state = model().state();
    demand(!open_.is_open(), "the update is still open");
    demand(state == state_before_ || (!as_before && state == model_state::undefined),
           std::string("the model is ") + std::string(name_of(state)));
    if (state == state_before_ && state != model_state::undefined)
      demand(engine_->image() == before_, "the model claims to be as before, and bytes differ");
    if (as_before) demand(engine_->image() == before_, "bytes are not as before");
    demand(model().version() == version_before_, "the version changed");
    // A landing that could not be waited for may still run there.
    const std::int64_t grown = model().executor().allocated_bytes() - bytes_before_;
    demand(grown == 0 || ((how_.is_aside() || how_.watchful) && cancel_failed), "memory was not given back");
    if (reached_commit_ && how_.is_aside() && !how_.lends && cancel_failed) demand(grown > 0, "memory was given back that a landing may still write");
    const std::string disturbed = engine_->disturbed();
    demand(disturbed.empty(), disturbed);
    if (state == model_state::live) return;
    status refused;
    const std::string_view names[] = {"norm.weight"};
    demand(!model().start({.scope = update_scope::partial(names)}, &refused).is_open() &&
               refused.code == error_code::wrong_state,
           "a partial update was accepted");
  }

  /// A success: published, new bytes.
  void check_passed() {
    demand(model().state() == model_state::live, "a success, but the model is not live");
    demand(model().version() == version_before_ + 1, "a success has a version");
    demand(open_.report().version == model().version(), "the report has the version");
    old_ = new_;
    check_bytes();
    open_ = {};
  }

  /// A complete update that leaves the kept values out must bring those that the failed update wrote, and only those;
  /// then the model is as after a cold start.
  void repair_without_kept(bool all_lost = false) {
    const bool was_live = model().state() == model_state::live;
    reference::checkpoint next = engine_type::checkpoint_of(++seed_ % 5);
    std::set<std::string> required, serving;
    for (const std::string& name : engine_type::kept_names()) {
      const bool has_old = !how_.cold && !all_lost;
      if (has_old && was_live) {
        serving.insert(name);
      } else if (has_old && engine_->kept_value(name) == old_.at(name).bytes) {
        if (!tried_.contains(name)) serving.insert(name);  // tried and not written: either will do
      } else {
        required.insert(name);
      }
    }
    reference::checkpoint without = next;
    for (const std::string& name : engine_type::kept_names()) without.erase(name);
    status refused;
    auto repair = model().start({.stream = engine_->memory().stream(0)}, &refused);
    must(refused);
    must(engine_->deliver(repair, without));
    const status result = repair.prepare();
    demand(result.ok() || result.code == error_code::incomplete, result.message());
    for (const std::string& name : engine_type::kept_names()) {
      bool is_missing = false;
      for (const std::string& each : repair.report().missing) is_missing |= each.starts_with(name);
      demand(!is_missing || !serving.contains(name), name + ": is kept, and was required");
      demand(is_missing || !required.contains(name), name + ": a value that no successful update brought serves");
      if (is_missing)
        must(repair.load(name, engine_->place(next.at(name))));
      else
        next[name] = old_.at(name);
    }
    if (!repair.is_prepared()) must(repair.prepare());
    must(repair.finish());
    old_ = next;
    check_bytes();
  }
  /// A complete update in mode direct.
  void repair_directly() {
    old_ = engine_type::checkpoint_of(++seed_ % 5);
    engine_->reload(old_);
    check_bytes();
  }
  /// A complete update of the kind under test.
  void repair_alike() {
    const bool partial = std::exchange(how_.partial, false);
    const bool cold = std::exchange(how_.cold, false);
    prepare_next();
    must(update_once());
    check_passed();
    how_.partial = partial;
    how_.cold = cold;
  }

  void check_bytes() {
    demand(model().state() == model_state::live, "the model is not live");
    std::string found = engine_->difference(old_);
    if (found.empty()) found = engine_->disturbed();
    demand(found.empty(), found);
  }

  /// A new engine: loaded, or cold.
  void renew() {
    open_ = {};
    engine_ = engine_type::make();
    lent_ = how_.lends ? engine_->memory().allocate(lent_bytes, std::byte{0x11}) : nullptr;
    if (how_.cold) return;
    old_ = engine_type::checkpoint_of(seed_ % 5);
    engine_->reload(old_);
  }

 private:
  static constexpr std::int64_t lent_bytes = 16 << 10;

  injected_case how_;
  std::unique_ptr<engine_type> engine_ = {};
  std::byte* lent_ = nullptr;
  std::uint64_t seed_ = 0;
  std::size_t turn_ = 0;
  reference::checkpoint old_ = {}, sent_ = {}, new_ = {};
  typename engine_type::image_type before_ = {};
  model_state state_before_ = model_state::undefined;
  std::int64_t version_before_ = 0;
  std::int64_t bytes_before_ = 0;
  std::set<std::string> tried_ = {};
  bool reached_commit_ = false;
  digest_list digests_ = {};
  std::array<stream_ref, 1> readers_ = {};
  update_type open_ = {};
};

}  // namespace wreload::test
