#pragma once
/// `model`: the registered layers of an engine, and the door to their updates.

#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../core/on_use.hpp"
#include "../executor/host.hpp"
#include "../layout/describe.hpp"
#include "../layout/plan_layer.hpp"
#include "../numerics/environment.hpp"
#include "addresses.hpp"
#include "auditor.hpp"
#include "model_core.hpp"
#include "options.hpp"
#include "update.hpp"

namespace wreload {

/// Layers with the addresses of their tensors; the engine owns the memory. Neither copied nor moved: updates point to
/// it. `add`, `same_as`, `ignore`, `foreign` before `seal`; everything else after it. Lanes of an open update run
/// concurrently; `start` and the end of a handle belong to one thread at a time.
template <executor Executor = host_executor>
class model {
 public:
  using update_type = update<Executor>;

  /// Arguments go to the executor.
  template <class... Args>
  explicit model(Args&&... args) : core_(std::forward<Args>(args)...) {}
  model(const model&) = delete;             // updates point to it
  model& operator=(const model&) = delete;

  /// Registers a layer at the given addresses, one `storage` (or pointer) per param in the layout's order. Refuses, by
  /// the checkpoint module's name, what the layout and the extents cannot give; then nothing was registered.
  template <param_layout Layout, class... Storages>
  status add(std::string_view layer, const extents& sizes, Storages... memory) {
    static_assert(sizeof...(Storages) == storage_count(Layout::specs),
                  "model::add: one storage per param; pass a pointer (or storage) for each Param of the layout (a param "
                  "that lives in a derived one has none)");
    const storage all[] = {storage(memory)...};
    return add(Layout::specs, layer, sizes, all);
  }
  status add(std::span<const param_spec> specs, std::string_view layer, const extents& sizes,
             std::span<const storage> memory) {
    if (core_.indexed) return refuse(error_code::wrong_state, layer, "a model that is not sealed", "a sealed one");
    layer_plan plan;
    if (status refused = plan_layer(specs, layer, sizes, plan); !refused.ok()) return refused;
    return core_.records.add(std::move(plan), memory);
  }

  /// A second checkpoint name for the bytes of a first (tied weights): either or both may come; if they differ,
  /// `finish` refuses.
  void same_as(std::string_view name, std::string_view second) { core_.records.add_twin(name, second); }

  /// Names that nobody wants, and names of other ranks: accepted and counted. `*` matches any characters.
  void ignore(std::string_view pattern) { core_.ignored.emplace_back(pattern); }
  void foreign(std::string_view pattern) { core_.foreign.emplace_back(pattern); }

  /// The arena that all params lie in: for mode swap, `rollback`, `sleep` and `wake`. It must outlive the model.
  status use(typename Executor::arena& pages) {
    if (core_.sealed) return refuse(error_code::wrong_state, {}, "a model that is not sealed", "a sealed one");
    core_.pages = &pages;
    return {};
  }

  /// Builds the name index, fixes addresses, loads kernels, writes pads. Nothing is allocated on the device after it.
  /// Waits for the pads. Refuses flush-to-zero and -ffinite-math-only, names that collide, params that share bytes.
  /// May be called again after an execution error (no device memory).
  status seal() {
    if (core_.sealed) return refuse(error_code::wrong_state, {}, "a model that is not sealed", "a sealed one");
    if (flushes_subnormals() || drops_nan())
      return refuse(error_code::bad_environment, {}, "IEEE subnormals and NaN on the host",
                    "flush-to-zero, denormals-are-zero or -ffinite-math-only");
    if (core_.records.params.empty()) return refuse(error_code::bad_argument, {}, "at least one layer", "none");
    if (core_.pages != nullptr)
      if (status refused = detail::check_in_arena(core_); !refused.ok()) return refused;
    if (!core_.indexed) {
      if (status refused = core_.records.index(); !refused.ok()) return refused;
      core_.books.seal();
      core_.order.resize(core_.records.names.size());
      collect_keys();
      detail::find_equal_params(core_);
      core_.aliases = detail::count_aliases(core_);
      core_.indexed = true;
    }
    executor_needs needs{.keys = core_.keys,
                         .dequant_jobs = static_cast<std::int64_t>(core_.records.landings.size()),
                         .land_jobs = static_cast<std::int64_t>(core_.records.landings.size()),
                         .maps = core_.records.maps,
                         .flags = core_.equal_flag(core_.equal_params.size())};
    if (status failed = core_.run.reserve(needs); !failed.ok()) return failed;
    if (status failed = write_pads(); !failed.ok()) return failed;
    core_.layer_versions.resize(core_.records.layers.size());
    core_.sealed_bytes = core_.run.allocated_bytes();
    core_.sealed = true;
    return {};
  }

  /// Opens an update. On a refusal `*error` says why and the returned handle is closed. Refuses while another update is
  /// open or the model sleeps, a given stream is being captured, a tensor is not where it was, the base version is another,
  /// a partial update meets an `undefined` model, or the mode lacks memory.
  update_type start(const start_options& options, status* error) {
    *error = check_start(options);
    if (!error->ok()) return {};
    const auto elsewhere = [this](std::string_view name) {
      return detail::matches_any(core_.foreign, name) || detail::matches_any(core_.ignored, name);
    };
    *error = core_.books.open(options.scope, elsewhere);
    // Staged and swap write no live byte before `commit`, which waits for the readers then.
    const bool writes_at_once = options.mode == update_mode::direct || options.mode == update_mode::layerwise;
    if (error->ok()) *error = core_.run.begin(writes_at_once ? options.readers : std::span<const stream_ref>());
    if (!error->ok()) return {};
    sessions_.emplace_back(core_, options);
    update_type opened(sessions_);  // ends what `open` does not
    *error = sessions_.back().open();
    return error->ok() ? static_cast<update_type&&>(opened) : update_type();
  }

  /// Looks a checkpoint name (any spelling) up.
  tensor_id find(std::string_view name) const { return {core_.records.names.find(name)}; }

  model_state state() const { return core_.state; }
  /// Of the weights that serve: successful finishes so far; after a rollback that of the generation gone back to. No number
  /// is given twice.
  std::int64_t version() const { return core_.version; }
  /// The version whose update wrote a layer last; -1 for a name that no layer has.
  std::int64_t layer_version(std::string_view layer) const {
    for (std::size_t i = 0; i < core_.layer_versions.size(); ++i)
      if (core_.records.layers[i].name == layer) return core_.layer_versions[i];
    return -1;
  }

  /// Whether the generation before the last swap is still there.
  bool can_roll_back() const { return core_.previous.has_value() && !core_.update_open; }

  /// Goes back to the generation that the last update in mode swap replaced; again: forward. Waits for `readers`; the
  /// device must be idle otherwise. After an error all is as before; but where the exchange failed half way
  /// (`wrote_anything`) the model is `asleep`.
  status rollback(std::span<const stream_ref> readers = {}) {
    if (core_.update_open) return refuse(error_code::wrong_state, {}, "no open update", "one that is open");
    if (!core_.previous)
      return refuse(error_code::wrong_state, {}, "a generation that the last update in mode swap replaced", "none");
    if (status failed = wait_for(readers); !failed.ok()) return failed;
    detail::generation now = core_.current();  // here, since it takes from the heap
    bool torn = false;
    if (status failed = core_.pages->exchange(&torn); !failed.ok()) {
      if (torn) core_.lose_pages();
      failed.wrote_anything = torn;
      return failed;
    }
    core_.become(*core_.previous);
    core_.previous = std::move(now);
    return {};
  }

  /// Saves what no update brings again (static and kept params, and what follows from those alone) to the host and gives the arena's pages back. Until `wake`
  /// every `start` is refused. Waits for `readers`; the device must be idle otherwise.
  status sleep(std::span<const stream_ref> readers = {}) {
    if (!core_.sealed || core_.pages == nullptr)
      return refuse(error_code::wrong_state, {}, "a sealed model in an arena", "none");
    if (core_.update_open) return refuse(error_code::wrong_state, {}, "no open update", "one that is open");
    if (core_.state == model_state::asleep) return refuse(error_code::wrong_state, {}, "a model awake", "one asleep");
    if (status failed = wait_for(readers); !failed.ok()) return failed;
    const std::vector<std::uint8_t> lasting = lasting_params();
    const auto lasts = [&](const param_record& param) { return lasting[static_cast<std::size_t>(&param - core_.records.params.data())] != 0; };
    if (status failed = auditor().copy(&saved_, lasts); !failed.ok()) return failed;
    core_.previous.reset();
    core_.state = model_state::asleep;
    return core_.pages->drop();
  }

  /// Takes pages at the same addresses, restores what `sleep` saved and writes pads. The model is then `undefined` until a
  /// complete update. After an error it sleeps on. Where a failed exchange has lost the pages nothing was saved: the engine
  /// writes static params anew after this, and kept values have to come.
  status wake() {
    if (core_.state != model_state::asleep) return refuse(error_code::wrong_state, {}, "a model asleep", "one awake");
    if (!core_.pages->is_resident())
      if (status failed = core_.pages->restore(); !failed.ok()) return failed;
    typename Executor::lane lane = core_.run.open_own();
    for (const model_snapshot::tensor& each : saved_.tensors) {
      const param_record& param = at(core_.records.params, core_.records.find_param(each.name));
      for (std::int64_t r = 0; r < param.plan.rows; ++r)
        if (status failed = core_.run.write(lane, param.row(r), each.bytes.data() + r * param.plan.row_bytes(),
                                            param.plan.row_bytes());
            !failed.ok())
          return failed;
    }
    if (status failed = write_pads(); !failed.ok()) return failed;
    saved_ = {};
    core_.state = model_state::undefined;
    return {};
  }
  Executor& executor() { return core_.run; }

  /// The registered tensors, in order of `add`.
  std::span<const param_record> params() const { return core_.records.params; }
  const registry& records() const { return core_.records; }

  /// Compares every tensor that kernels read with the same name of another model on the same executor, byte for byte,
  /// pads included; addresses with the engine's; the executor's memory with what it was at `seal`. Waits.
  status audit(const model& other, const engine_addresses& addresses, audit_result* result) {
    return auditor().against(other.core_.records, addresses, result);
  }
  status audit(const model_snapshot& before, const engine_addresses& addresses, audit_result* result) {
    return auditor().against(before, addresses, result);
  }
  /// Against digests, of this sharding or another.
  status audit(const digest_list& expected, const engine_addresses& addresses, audit_result* result) {
    return auditor().against(expected, addresses, result);
  }

  /// A host copy of every tensor that kernels read. Waits.
  status snapshot(model_snapshot* copy) { return auditor().copy(copy); }
  /// Appends digests per tile of the global tensors, so that the lists of several ranks are one. Waits.
  status digests(digest_list* list) {
    typename Executor::lane lane = core_.run.open_own();
    return detail::digest_tiles(core_.run, lane, core_.records, *list);
  }

 private:
  detail::auditor<Executor> auditor() { return detail::auditor<Executor>(core_); }

  /// Per param: whether it is static or kept, or computed from such alone.
  std::vector<std::uint8_t> lasting_params() const {
    std::vector<std::uint8_t> lasting;
    for (const param_record& param : core_.records.params)
      lasting.push_back(param.plan.spec.fixed || param.plan.spec.kept);
    for (const computed_record& record : core_.records.computed) {
      bool all = true;
      for (const std::int32_t source : record.sources) all = all && at(lasting, source) != 0;
      at(lasting, record.param) = all;
    }
    return lasting;
  }

  /// Returns when what these streams were given is done.
  status wait_for(std::span<const stream_ref> readers) {
    if (status failed = core_.run.begin(readers); !failed.ok()) return failed;
    typename Executor::lane lane = core_.run.open_own();
    if (status failed = core_.run.combine(lane, {}); !failed.ok()) return failed;  // a write, which waits for them
    return core_.run.wait(lane);
  }

  status check_mode(const start_options& options) const {
    const auto bad = [&](error_code code, std::string expected, std::string got) {
      return refuse(code, "mode " + std::string(name_of(options.mode)), std::move(expected), std::move(got));
    };
    const bool is_aside = options.mode == update_mode::layerwise || options.mode == update_mode::staged;
    if (is_aside && options.staging.lent.empty() && options.staging.budget_bytes <= 0)
      return bad(error_code::bad_argument, "memory aside: lent, or a budget", "neither");
    if (options.staging.or_direct && options.mode != update_mode::layerwise)
      return bad(error_code::bad_argument, "or_direct in mode layerwise only", "it here");
    if (!options.digests.empty() && options.mode == update_mode::layerwise)
      return bad(error_code::bad_argument, "a sender's digests in the modes staged, direct and swap only", "them here");
    if (options.digest_landed && is_aside)
      return bad(error_code::bad_argument, "digest_landed in the modes direct and swap only", "it here");
    if (options.mode != update_mode::swap) return {};
    if (options.undo != undo_mode::none)
      return bad(error_code::bad_argument, "no undo image: the old generation stays", "one");
    if (core_.pages == nullptr) return bad(error_code::wrong_state, "a model in an arena (see model::use)", "none");
    if (core_.pages->spare() == nullptr) return bad(error_code::wrong_state, "an arena with spare pages", "one without");
    return {};
  }

  status check_start(const start_options& options) {
    const auto bad = [](error_code code, std::string expected, std::string got) {
      return refuse(code, {}, std::move(expected), std::move(got));
    };
    if (!core_.sealed) return bad(error_code::wrong_state, "a sealed model", "one that is not");
    if (core_.update_open) return bad(error_code::wrong_state, "no open update", "one that is open");
    if (core_.state == model_state::asleep) return bad(error_code::wrong_state, "a model awake", "one asleep");
    if (status refused = check_mode(options); !refused.ok()) return refused;
    if (options.base_version && *options.base_version != core_.version)
      return bad(error_code::wrong_base, "base version " + std::to_string(core_.version),
                 std::to_string(*options.base_version));
    if (!options.scope.is_complete && core_.state != model_state::live)
      return bad(error_code::wrong_state, "a live model for a partial update",
                 "an " + std::string(name_of(core_.state)) + " one, which only a complete update repairs");
    const std::vector<std::string> moved = moved_tensors(core_.records, options.addresses);
    if (!moved.empty())
      return refuse(error_code::moved, moved.front(), "the registered address, stride, size and dtype",
                    "another, or the name is gone (" + std::to_string(moved.size()) + " tensors moved)");
    if (status refused = core_.run.check_idle({&options.stream, 1}); !refused.ok()) return refused;
    return core_.run.check_idle(options.readers);
  }

  void collect_keys() {
    for (const param_record& param : core_.records.params) {
      core_.key_of.push_back(no_index);
      if (!param.plan.spec.converts() || param.landing_count == 0) continue;
      const landing_record& first = at(core_.records.landings, param.first_landing);
      const param_spec& scale = at(core_.records.params, at(core_.records.landings, first.scale).param).plan.spec;
      const dequant_key key{param.plan.spec.stored, param.plan.spec.runtime, scale.runtime, scale.block_rows,
                            scale.block_cols};
      std::size_t index = 0;
      while (index < core_.keys.size() && !(core_.keys[index] == key)) ++index;
      if (index == core_.keys.size()) core_.keys.push_back(key);
      core_.key_of.back() = static_cast<std::int32_t>(index);
    }
  }

  status write_pads() {
    dependent<std::vector<fill_job>, Executor> rectangles;
    dependent<std::vector<land_job>, Executor> mapped;
    for (const param_record& param : core_.records.params) {
      if (param.map != unmapped) detail::append_pads(param, mapped);
      if (param.map != unmapped || param.plan.bytes() == 0) continue;  // none, or no storage
      const std::int64_t element = bytes_of(param.plan.spec.runtime);
      for (const planned_pad& pad : param.plan.pads)
        rectangles.push_back({param.row(pad.local_row) + pad.local_col * element, pad.rows, pad.cols * element,
                              param.row_stride_bytes, {}});
    }
    if (rectangles.empty() && mapped.empty()) return {};
    typename Executor::lane lane = core_.run.open_own();
    if (status failed = core_.run.fill(lane, rectangles); !failed.ok()) return failed;
    if (status failed = core_.run.land(lane, mapped); !failed.ok()) return failed;
    return core_.run.wait(lane);
  }

  detail::model_core<Executor> core_;
  model_snapshot saved_ = {};                           ///< while it sleeps
  std::list<detail::session<Executor>> sessions_ = {};  ///< of the handles that live; at most one is open
};

}  // namespace wreload
