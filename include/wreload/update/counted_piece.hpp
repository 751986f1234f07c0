#pragma once
/// `counted_piece`: how an accepted piece counts in the report.

#include <cstdint>

#include "report.hpp"

namespace wreload::detail {

struct counted_piece {
  using counter = load_count report::*;  // named: nvcc hands the declarator to gcc in a form that it warns of
  std::int64_t bytes = 0;
  counter as = nullptr;     ///< null: loaded and needed
  std::int32_t name = -1;   ///< index into registry::names; -1: none (runtime form, ignored, foreign)
  dtype type = dtype::none;
  bool is_first = true;     ///< of its tensor
  bool is_absent = false;   ///< no byte of its tensor belongs here
};

/// Adds a piece to the counters of a report.
inline void count(const counted_piece& piece, report& into) {
  const auto add = [&](load_count& to, bool is_new) {
    to.tensors += is_new;
    to.bytes += piece.bytes;
  };
  // A piece may belong to another rank and its tensor's next piece here: such a tensor is needed.
  if (piece.as != nullptr) add(into.*piece.as, piece.is_first && (piece.as != &report::not_needed || piece.is_absent));
  if (piece.as != nullptr && piece.as != &report::not_needed) return;
  add(into.loaded, piece.is_first);
  add(into.by_dtype[static_cast<std::size_t>(piece.type)], piece.is_first);
}

/// The counters of some pieces.
struct load_tally {
  load_count loaded = {};
  load_count not_needed = {};
  load_count ignored = {};
  load_count foreign = {};
  std::array<load_count, dtype_count> by_dtype = {};

  load_tally() = default;
  explicit load_tally(const report& of)
      : loaded(of.loaded), not_needed(of.not_needed), ignored(of.ignored), foreign(of.foreign), by_dtype(of.by_dtype) {}

  void set(report& to) const {
    to.loaded = loaded;
    to.not_needed = not_needed;
    to.ignored = ignored;
    to.foreign = foreign;
    to.by_dtype = by_dtype;
  }
  void add_to(report& to) const {
    const auto add = [](load_count& sum, const load_count& more) {
      sum.tensors += more.tensors;
      sum.bytes += more.bytes;
    };
    add(to.loaded, loaded);
    add(to.not_needed, not_needed);
    add(to.ignored, ignored);
    add(to.foreign, foreign);
    for (std::size_t i = 0; i < by_dtype.size(); ++i) add(to.by_dtype[i], by_dtype[i]);
  }
};

}  // namespace wreload::detail
