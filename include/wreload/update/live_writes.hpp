#pragma once
/// `live_writes`: which loads of an update go to live storage, what they touch, and since when live bytes change.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../core/on_use.hpp"
#include "model_core.hpp"
#include "options.hpp"

namespace wreload::detail {

/// Whether all loads of a mode go to live storage (swap: to the spare pages), and none aside.
constexpr bool lands_at_once(update_mode mode) { return mode == update_mode::direct || mode == update_mode::swap; }

/// Layer by layer, where loads go: to live storage, or aside until the layer (layerwise) or the update (staged) is
/// committed. A layerwise layer that finds no room goes live. Under the model's lock.
template <executor Executor>
class live_writes {
 public:
  live_writes(model_core<Executor>& core, update_mode mode)
      : core_(core), is_swap_(mode == update_mode::swap),
        offset_(is_swap_ ? core.pages->spare() - core.pages->data() : 0),
        is_live_(core.records.layers.size(), lands_at_once(mode)), is_touched_(core.records.layers.size(), 0) {}

  /// From live addresses to those that are written (swap).
  std::ptrdiff_t offset() const { return offset_; }

  /// Whether what comes of a landing goes to live storage.
  bool takes(std::int32_t landing) const { return at(is_live_, core_.records.layer_of(landing)) != 0; }
  /// From here on the layer's loads go to live storage.
  void take_layer(std::int32_t layer) { at(is_live_, layer) = 1; }

  /// Something of the landing's layer has arrived.
  void touch(std::int32_t landing) { at(is_touched_, core_.records.layer_of(landing)) = 1; }
  dependent<std::vector<std::uint8_t>, Executor>& touched() { return is_touched_; }  ///< per layer

  /// Live bytes are about to be written; spare pages (swap) are not.
  void note() {
    if (is_swap_) return;
    has_written_ = true;
    if (began_ == 0) began_ = seconds_now();
    if (core_.state.load(std::memory_order_relaxed) != model_state::updating) core_.state = model_state::updating;
  }
  /// The spare pages have become live, or got lost on the way.
  void note_exchange() { has_written_ = true; }
  bool any() const { return has_written_; }

  /// Readers wait from here on, if they do not yet.
  void begin_pause(double now) {
    if (began_ == 0) began_ = now;
  }
  double pause_until(double now) const { return began_ == 0 ? 0 : now - began_; }

 private:
  model_core<Executor>& core_;
  bool is_swap_;
  std::ptrdiff_t offset_;
  dependent<std::vector<std::uint8_t>, Executor> is_live_;     ///< per layer
  dependent<std::vector<std::uint8_t>, Executor> is_touched_;  ///< per layer
  double began_ = 0;  ///< 0: no live write yet
  bool has_written_ = false;
};

}  // namespace wreload::detail
