#pragma once
/// `host_executor`: plain memory, one thread per call, no CUDA. Every verb has happened when it returns.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../core/light_lock.hpp"
#include "../core/on_use.hpp"
#include "../numerics/visit.hpp"
#include "digest_grid.hpp"
#include "executor.hpp"
#include "host_arena.hpp"
#include "host_combine.hpp"
#include "host_dequant.hpp"
#include "host_digest.hpp"
#include "host_landing.hpp"
#include "host_table.hpp"

namespace wreload {

/// `host_executor`: the executor for models in plain memory. Streams and events mean nothing to it.
template <class Use = on_use>
class basic_host_executor {
  template <class T>
  using vector = dependent<std::vector<T>, Use>;

 public:
  static constexpr std::string_view name = "host";
  using arena = host_arena;
  using table = dependent<host_table, Use>;
  struct lane {
    table* kept = nullptr;
  };

  basic_host_executor() = default;
  basic_host_executor(const basic_host_executor&) = delete;             // owns memory
  basic_host_executor& operator=(const basic_host_executor&) = delete;
  ~basic_host_executor() {
    for (const block& each : blocks_) std::free(each.data);
  }

  status reserve(const executor_needs& needs) {
    flags_.assign(static_cast<std::size_t>(needs.flags), 0);
    maps_.assign(needs.maps.begin(), needs.maps.end());
    return {};
  }
  lane open(stream_ref) const { return {}; }
  lane open_own() const { return {}; }
  status begin(std::span<const stream_ref>) {
    std::fill(flags_.begin(), flags_.end(), 0U);
    return {};
  }
  status hold(std::span<const stream_ref>) const { return {}; }
  status cancel() const { return {}; }
  status check_idle(std::span<const stream_ref>) const { return {}; }

  status land(lane& on, std::span<const land_job> jobs) {
    if (on.kept != nullptr && !jobs.empty()) on.kept->calls.push_back({.lands = {jobs.begin(), jobs.end()}});
    for (const land_job& job : jobs) landing().land(job);
    return count_call();
  }

  status land_digested(lane&, std::span<const land_job> jobs, std::span<const land_digest> into) {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      std::uint64_t* sums = into[i].sums + detail::first_sum(into[i]);
      const digest_job source = detail::digest_of_source(jobs[i], into[i]);
      const std::int64_t across = digest_grid_of(source).across;
      digests().for_each_sum(source, [&](std::int64_t tile, std::uint64_t sum) {
        // Lanes may land parts of one tile at once.
        std::atomic_ref(sums[tile / across * into[i].tiles_across + tile % across]).fetch_add(sum);
      });
      landing().land(jobs[i]);
    }
    return count_call();
  }

  status compare(lane& on, std::span<const land_job> jobs, std::span<const std::int32_t> flags) {
    if (on.kept != nullptr && !jobs.empty())
      on.kept->calls.push_back({.compares = {jobs.begin(), jobs.end()}, .flags = {flags.begin(), flags.end()}});
    for (std::size_t i = 0; i < jobs.size(); ++i)
      if (landing().would_change(jobs[i])) flags_[static_cast<std::size_t>(flags[i])] = 1;
    return count_call();
  }

  status fill(lane&, std::span<const fill_job> jobs) {
    for (const fill_job& job : jobs)
      for (std::int64_t r = 0; r < job.rows && job.row_bytes > 0; ++r)
        std::memset(job.destination + r * job.row_stride_bytes, std::to_integer<int>(job.value),
                    static_cast<std::size_t>(job.row_bytes));
    return count_call();
  }

  status combine(lane& on, std::span<const combine_job> jobs) {
    if (on.kept != nullptr && !jobs.empty()) on.kept->calls.push_back({.combines = {jobs.begin(), jobs.end()}});
    for (const combine_job& job : jobs) detail::host_combine<Use>::compute(job);
    return count_call();
  }

  status dequantise(lane& on, const dequant_key& key, std::span<const dequant_job> jobs) {
    if (on.kept != nullptr && !jobs.empty())
      on.kept->calls.push_back({.key = key, .dequants = {jobs.begin(), jobs.end()}});
    if (!dequantises(key.stored, key.runtime, key.scale))
      return refuse(error_code::unsupported, {}, "a conversion that is compiled in",
                    std::string(name_of(key.stored)) + " to " + std::string(name_of(key.runtime)));
    for (const dequant_job& job : jobs) detail::host_dequant<Use>::convert(key, job);
    return count_call();
  }

  void keep(lane& on, table* into) const { on.kept = into; }
  status replay(lane& on, const table& kept, std::ptrdiff_t shift) {
    for (const host_table::call& each : kept.calls) {
      for (land_job job : each.lands) {
        job.source += shift;
        landing().land(job);
      }
      if (!each.compares.empty()) (void)compare(on, each.compares, each.flags);
      if (!each.combines.empty()) (void)combine(on, each.combines);
      for (dequant_job job : each.dequants) {
        job.source += shift;
        (void)dequantise(on, each.key, {&job, 1});
      }
    }
    return count_call();
  }
  static constexpr bool keeps_tables() { return true; }
  static constexpr std::int64_t kept_bytes() { return 0; }
  void drop_kept(std::int64_t) const {}

  static constexpr bool converts_from(memory_kind) { return true; }

  // Everything has happened already.
  status wait_for(lane&, event_ref) const { return {}; }
  status join(lane&, lane&) const { return {}; }
  event_ref record(lane&) const { return {}; }
  stream_ref stream_of(lane&) const { return {}; }
  status wait(lane&) const { return {}; }

  status read(lane&, std::byte* host, const std::byte* data, std::int64_t bytes) const {
    if (bytes > 0) std::memcpy(host, data, static_cast<std::size_t>(bytes));
    return {};
  }

  status write(lane&, std::byte* data, const std::byte* host, std::int64_t bytes) const {
    if (bytes > 0) std::memcpy(data, host, static_cast<std::size_t>(bytes));
    return {};
  }

  /// Plain memory, whatever kind is asked for.
  status allocate(std::int64_t bytes, memory_kind, std::byte** memory) {
    const lock_scope guard(blocks_lock_);
    blocks_.reserve(blocks_.size() + 1);  // who throws has taken nothing
    *memory = static_cast<std::byte*>(std::malloc(static_cast<std::size_t>(bytes)));
    if (*memory == nullptr)
      return refuse(error_code::out_of_memory, {}, std::to_string(bytes) + " bytes of host memory", "none");
    blocks_.push_back({*memory, bytes});
    return {};
  }
  void release(std::byte* memory) {
    const lock_scope guard(blocks_lock_);
    std::erase_if(blocks_, [memory](const block& each) { return each.data == memory; });
    std::free(memory);
  }

  status digest(lane&, std::span<const digest_job> jobs, std::span<std::uint64_t> sums) const {
    auto next = sums.begin();
    for (const digest_job& job : jobs)
      digests().for_each_sum(job, [&](std::int64_t, std::uint64_t sum) { *next++ = sum; });
    return {};
  }

  status first_difference(lane&, const difference_job& pair, std::int64_t* first) const {
    *first = -1;
    for (std::int64_t r = 0; r < pair.rows && *first < 0; ++r) {
      const std::byte* a = pair.a + r * pair.a_row_stride_bytes;
      const std::byte* b = pair.b + r * pair.b_row_stride_bytes;
      if (std::memcmp(a, b, static_cast<std::size_t>(pair.row_bytes)) == 0) continue;
      std::int64_t at = 0;
      while (a[at] == b[at]) ++at;
      *first = r * pair.row_bytes + at;
    }
    return {};
  }

  /// What `compare` has set since `begin`, one flag per twin group; host memory, valid once the lanes were waited for.
  std::span<std::uint32_t> flags() { return flags_; }
  std::int64_t allocated_bytes() const {
    const lock_scope guard(blocks_lock_);
    std::int64_t bytes = 0;
    for (const block& each : blocks_) bytes += each.bytes;
    return bytes;
  }
  std::int64_t launches() const { return calls_.load(std::memory_order_relaxed); }

 private:
  status count_call() {
    calls_.fetch_add(1, std::memory_order_relaxed);
    return {};
  }
  detail::host_landing<Use> landing() const { return detail::host_landing<Use>(maps_); }
  detail::host_digest<Use> digests() const { return detail::host_digest<Use>(maps_); }

  struct block {
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
  };

  vector<std::uint32_t> flags_ = {};
  vector<storage_map> maps_ = {};
  mutable light_lock blocks_lock_ = {};
  vector<block> blocks_ = {};  ///< that `allocate` gave out
  std::atomic<std::int64_t> calls_ = 0;
};

using host_executor = basic_host_executor<>;

}  // namespace wreload
