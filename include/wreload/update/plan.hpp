#pragma once
/// `update_plan`: what a successful update did, bucket by bucket, so that the next one can do it again without asking.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../core/on_use.hpp"
#include "../policy/derived.hpp"
#include "admission.hpp"
#include "counted_piece.hpp"
#include "options.hpp"

namespace wreload::detail {

/// What one bucket did, as tables of the executor; and what it brought, for an update that departs from the plan. The host keeps
/// 72 bytes a tensor that has one landing (the host executor 88 more).
template <class Executor>
struct planned_bucket {
  template <class T>
  using vector = dependent<std::vector<T>, Executor>;

  std::uint64_t manifest = 0;
  std::uintptr_t address = 0;       ///< of the block that the tables name
  std::int64_t bytes = 0;
  std::size_t pieces = 0;
  memory_kind memory = memory_kind::pageable;  ///< of the first piece
  bool any_pageable = false;
  typename Executor::table table = {};
  vector<claim> claims = {};
  vector<counted_piece> counted = {};
  vector<std::int32_t> fused = {};  ///< landings that were converted on their way
  load_tally tally = {};
  bool shares_bytes = false;        ///< that have a second name
  bool writes = false;
};

/// A part of `commit`: a table, then a launcher of the engine's own.
template <class Executor>
struct planned_step {
  typename Executor::table table = {};
  std::int32_t launched = no_index;  ///< index into registry::params: what the launcher computes
  dependent<std::vector<runtime_tensor>, Executor> from = {};
  runtime_tensor to = {};
};

/// A sealed plan: the whole of an update in complete scope, of which every tensor came in a bucket. It holds
/// whenever the model is live: then every kept value that it counts on is valid.
template <class Executor>
struct update_plan {
  template <class T>
  using vector = dependent<std::vector<T>, Executor>;

  update_mode mode = update_mode::direct;
  vector<planned_bucket<Executor>> buckets = {};  ///< by manifest, which differ
  vector<planned_step<Executor>> steps = {};
  vector<std::int32_t> layers = {};               ///< that it writes
  std::int64_t not_sent = 0;
  std::int64_t converted_rows = 0;
  std::int64_t fused_rows = 0;
};

}  // namespace wreload::detail
