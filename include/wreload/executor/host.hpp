#pragma once
/// `host_executor`: plain memory, one thread per call, no CUDA. Every verb has happened when it returns.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "../core/light_lock.hpp"
#include "../core/on_use.hpp"
#include "../numerics/codecs.hpp"
#include "../numerics/combine.hpp"
#include "../numerics/dequant.hpp"
#include "../numerics/digest.hpp"
#include "../numerics/visit.hpp"
#include "../numerics/widen.hpp"
#include "digest_grid.hpp"
#include "executor.hpp"
#include "host_arena.hpp"

namespace wreload {

/// What calls on a lane did, to be done again.
struct host_table {
  /// One of the lists is not empty.
  struct call {
    dequant_key key = {};
    std::vector<land_job> lands = {};
    std::vector<land_job> compares = {};
    std::vector<std::int32_t> flags = {};
    std::vector<dequant_job> dequants = {};
    std::vector<combine_job> combines = {};
  };
  std::vector<call> calls = {};
  bool whole = true;
  bool empty() const { return calls.empty(); }
};

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
    for (const land_job& job : jobs) land_one(job);
    return count_call();
  }

  status land_digested(lane&, std::span<const land_job> jobs, std::span<const land_digest> into) {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      std::uint64_t* sums = into[i].sums + detail::first_sum(into[i]);
      const digest_job source = detail::digest_of_source(jobs[i], into[i]);
      const std::int64_t across = digest_grid_of(source).across;
      detail::for_each_tile(source, [&](const digest_job& part, std::int64_t tile) {
        const std::uint64_t share = digest_part(part);  // lanes may land parts of one tile at once
        std::atomic_ref(sums[tile / across * into[i].tiles_across + tile % across]).fetch_add(share);
      });
      land_one(jobs[i]);
    }
    return count_call();
  }

  status compare(lane& on, std::span<const land_job> jobs, std::span<const std::int32_t> flags) {
    if (on.kept != nullptr && !jobs.empty())
      on.kept->calls.push_back({.compares = {jobs.begin(), jobs.end()}, .flags = {flags.begin(), flags.end()}});
    for (std::size_t i = 0; i < jobs.size(); ++i)
      if (would_change(jobs[i])) flags_[static_cast<std::size_t>(flags[i])] = 1;
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
    for (const combine_job& job : jobs) combine_one(job);
    return count_call();
  }

  status dequantise(lane& on, const dequant_key& key, std::span<const dequant_job> jobs) {
    if (on.kept != nullptr && !jobs.empty())
      on.kept->calls.push_back({.key = key, .dequants = {jobs.begin(), jobs.end()}});
    if (!dequantises(key.stored, key.runtime, key.scale))
      return refuse(error_code::unsupported, {}, "a conversion that is compiled in",
                    std::string(name_of(key.stored)) + " to " + std::string(name_of(key.runtime)));
    visit_dtype<bf16, fp16, fp32>(key.runtime, [&](auto runtime) {
      for (const dequant_job& job : jobs) dequantise_rows<decltype(runtime)>(key, job);
      return true;
    });
    return count_call();
  }

  void keep(lane& on, table* into) const { on.kept = into; }
  status replay(lane& on, const table& kept, std::ptrdiff_t shift) {
    for (const host_table::call& each : kept.calls) {
      for (land_job job : each.lands) {
        job.source += shift;
        land_one(job);
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

  status wait_for(lane&, event_ref) const { return {}; }
  status join(lane&, lane&) const { return {}; }
  event_ref record(lane&) const { return {}; }
  stream_ref stream_of(lane&) const { return {}; }
  status wait(lane&) const { return {}; }

  /// Copies dense bytes to host memory.
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
    *memory = static_cast<std::byte*>(std::malloc(static_cast<std::size_t>(bytes)));
    if (*memory == nullptr)
      return refuse(error_code::out_of_memory, {}, std::to_string(bytes) + " bytes of host memory", "none");
    const lock_scope guard(blocks_lock_);
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
      detail::for_each_tile(job, [&](const digest_job& part, std::int64_t) { *next++ = digest_part(part); });
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

  /// Calls `visit(source, destination, elements)` for the runs of a landing that are contiguous in storage; adjacent
  /// rows are one run where both sides are dense.
  template <class Visit>
  void for_each_run(const land_job& job, Visit&& visit) const {
    if (job.rows == 0 || job.cols == 0) return;  // and maybe no source
    const std::int64_t from = bytes_of(job.from), to = bytes_of(job.to);
    const bool dense = job.map == unmapped && job.source_col_stride_bytes == from &&
                       job.source_row_stride_bytes == job.cols * from &&
                       job.destination_row_stride_bytes == job.cols * to;
    if (dense) return visit(job.source, job.destination, job.rows * job.cols);
    for (std::int64_t r = 0; r < job.rows; ++r) {
      const std::byte* source = job.source + r * job.source_row_stride_bytes;
      if (job.map == unmapped) {
        visit(source, job.destination + r * job.destination_row_stride_bytes, job.cols);
        continue;
      }
      const storage_map& map = maps_[static_cast<std::size_t>(job.map)];
      const std::int64_t first = job.map_col * to, end = first + job.cols * to;
      for (std::int64_t col = first; col < end;) {
        const std::int64_t run = contiguous_bytes(map, col, end);
        visit(source + (col - first) / to * job.source_col_stride_bytes,
              job.destination + map_offset(map, job.map_row + r, col, job.destination_row_stride_bytes), run / to);
        col += run;
      }
    }
  }

  void land_one(const land_job& job) const {
    for_each_run(job, [&](const std::byte* source, std::byte* destination, std::int64_t elements) {
      land_run(job, source, destination, elements);
    });
  }

  /// Lands contiguous storage elements from a source of any column stride.
  static void land_run(const land_job& job, const std::byte* source, std::byte* destination, std::int64_t elements) {
    const std::int64_t from = bytes_of(job.from), to = bytes_of(job.to);
    if (job.from == job.to && (job.source_col_stride_bytes == from || elements == 1)) {
      std::memcpy(destination, source, static_cast<std::size_t>(elements * to));
      return;
    }
    if (job.from == job.to) {
      for (std::int64_t i = 0; i < elements; ++i)
        std::memcpy(destination + i * to, source + i * job.source_col_stride_bytes, static_cast<std::size_t>(to));
      return;
    }
    visit_widening(job.from, job.to, [&](auto narrow, auto wide) {
      for (std::int64_t i = 0; i < elements; ++i) {
        typename codec<decltype(narrow)>::bits code;
        std::memcpy(&code, source + i * job.source_col_stride_bytes, sizeof code);
        const auto value = widen<decltype(narrow), decltype(wide)>(code);
        std::memcpy(destination + i * to, &value, sizeof value);
      }
    });
  }

  bool would_change(const land_job& job) const {
    bool differs = false;
    vector<std::byte> landed;
    for_each_run(job, [&](const std::byte* source, std::byte* destination, std::int64_t elements) {
      landed.resize(static_cast<std::size_t>(elements * bytes_of(job.to)));
      land_run(job, source, landed.data(), elements);
      differs |= std::memcmp(landed.data(), destination, landed.size()) != 0;
    });
    return differs;
  }

  static void combine_one(const combine_job& job) {
    float greatest[std::extent_v<decltype(combine_job::factors)>] = {};
    for (std::int64_t i = 0; i < job.count; ++i) {
      float product = 1;
      for (std::int32_t f = 0; f < job.factor_count; ++f) {
        // One maximum for all results (over all experts, say) is found once.
        if (i == 0 || job.factors[f].stride_bytes != 0) greatest[f] = greatest_of(job.factors[f], i);
        product = f == 0 ? greatest[f] : dequant_product(product, greatest[f]);
      }
      const codec<fp32>::bits result = codec<fp32>::encode(job.inverted ? reciprocal(product) : product);
      std::memcpy(job.results + i * static_cast<std::int64_t>(sizeof result), &result, sizeof result);
    }
  }

  static float greatest_of(const combine_factor& factor, std::int64_t index) {
    float greatest = 0;
    for (std::int64_t i = 0; i < factor.count; ++i) {
      float value = 0;
      std::memcpy(&value, factor.first + index * factor.stride_bytes + i * factor.across_bytes, sizeof value);
      if (factor.inverted) value = reciprocal(value);
      greatest = i == 0 ? value : maximum(greatest, value);
    }
    return greatest;
  }

  /// Every code of an 8-bit format, decoded.
  template <class Stored>
  static constexpr std::array<float, 256> decoded = [] {
    std::array<float, 256> values = {};
    for (unsigned code = 0; code < values.size(); ++code)
      values[code] = codec<Stored>::decode(static_cast<std::uint8_t>(code));
    return values;
  }();

  static float decode_scale(dtype type, const std::byte* code) {
    float value = 0;
    visit_dtype<fp32, bf16, fp8_ue8m0>(type, [&](auto format) {
      typename codec<decltype(format)>::bits bits;
      std::memcpy(&bits, code, sizeof bits);
      value = codec<decltype(format)>::decode(bits);
      return true;
    });
    return value;
  }

  template <class Runtime>
  static void dequantise_rows(const dequant_key& key, const dequant_job& job) {
    using runtime_bits = typename codec<Runtime>::bits;
    constexpr auto runtime_bytes = static_cast<std::int64_t>(sizeof(runtime_bits));
    const std::array<float, 256>& codes = key.stored == dtype::fp8_e4m3 ? decoded<fp8_e4m3> : decoded<fp8_e5m2>;
    for (std::int64_t r = 0; r < job.rows; ++r) {
      const std::byte* source = job.source + r * job.source_row_stride_bytes;
      std::byte* destination = job.destination + r * job.destination_row_stride_bytes;
      const std::int64_t block_row = key.block_rows == 0 ? 0 : (job.row_phase + r) / key.block_rows;
      const std::byte* scales = job.scale + block_row * job.scale_row_stride_bytes;
      // From the right: in place, element j is read before bytes j * runtime_bytes and up are written.
      for (std::int64_t c_end = job.cols; c_end > 0;) {
        const std::int64_t block = key.block_cols == 0 ? 0 : (job.col_phase + c_end - 1) / key.block_cols;
        const std::int64_t c_begin =
            key.block_cols == 0 ? 0 : std::max<std::int64_t>(block * key.block_cols - job.col_phase, 0);
        const float scale = decode_scale(key.scale, scales + block * bytes_of(key.scale));
        for (std::int64_t c = c_end; c-- > c_begin;) {
          const float code = codes[std::to_integer<std::size_t>(source[c])];
          const runtime_bits value = codec<Runtime>::encode(dequant_product(code, scale));
          std::memcpy(destination + c * runtime_bytes, &value, sizeof value);
        }
        c_end = c_begin;
      }
    }
  }

  /// Of a part of one tile: by rows where they are contiguous, else by runs or single elements.
  std::uint64_t digest_part(const digest_job& part) const {
    const std::int64_t row = part.row % digest_tile_rows, col = part.col % digest_tile_cols, element = part.element_bytes;
    if (part.map == unmapped && part.col_stride_bytes == 0)
      return digest_rows(part.data, part.rows, part.cols * element, part.row_stride_bytes, row, col * element);
    std::uint64_t sum = 0;
    const storage_map identity = {};
    const storage_map& map = part.map == unmapped ? identity : maps_[static_cast<std::size_t>(part.map)];
    for (std::int64_t r = 0; r < part.rows; ++r)
      for (std::int64_t c = 0; c < part.cols;) {
        const std::int64_t first = (part.map_col + c) * element, last = (part.map_col + part.cols) * element;
        const bool is_strided = part.map == unmapped;
        const std::int64_t run = is_strided ? element : contiguous_bytes(map, first, last);
        const std::int64_t offset = is_strided ? r * part.row_stride_bytes + c * part.col_stride_bytes
                                               : map_offset(map, part.map_row + r, first, part.row_stride_bytes);
        sum += digest_rows(part.data + offset, 1, run, 0, row + r, (col + c) * element);
        c += run / element;
      }
    return sum;
  }

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
