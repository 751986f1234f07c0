#pragma once
/// What every executor does with jobs, bit for bit: against loops over elements and tests/reference/numerics.hpp.
///
///     TEST_CASE_TEMPLATE_INVOKE(executor_land, wreload::host_executor);
///
/// A case builds the whole expected memory on the host, padding and poison included, runs one call, and compares every
/// byte; guard bytes around each allocation are checked, too.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/core/job.hpp>
#include <wreload/core/storage_map.hpp>
#include <wreload/executor/executor.hpp>

#include "../memory.hpp"
#include "../property.hpp"
#include "../reference/digest.hpp"
#include "../reference/numerics.hpp"
#include "../reference/nvfp4.hpp"

namespace wreload::test {

/// The conversions that every executor has.
inline constexpr dtype stored_types[] = {dtype::fp8_e4m3, dtype::fp8_e5m2};
inline constexpr dtype runtime_types[] = {dtype::bf16, dtype::fp16, dtype::fp32};
inline constexpr dtype scale_types[] = {dtype::fp32, dtype::bf16, dtype::fp8_ue8m0};

struct type_pair {
  dtype from;
  dtype to;
};
inline constexpr type_pair landing_pairs[] = {
    {dtype::bf16, dtype::fp32},     {dtype::fp16, dtype::fp32},     {dtype::fp8_e4m3, dtype::bf16},
    {dtype::fp8_e4m3, dtype::fp16}, {dtype::fp8_e4m3, dtype::fp32}, {dtype::fp8_e5m2, dtype::bf16},
    {dtype::fp8_e5m2, dtype::fp16}, {dtype::fp8_e5m2, dtype::fp32}, {dtype::fp8_ue8m0, dtype::bf16},
    {dtype::fp8_ue8m0, dtype::fp32},  // and copies of 1, 2, 4 and 8 bytes an element
    {dtype::u8, dtype::u8},         {dtype::fp8_e4m3, dtype::fp8_e4m3}, {dtype::bf16, dtype::bf16},
    {dtype::fp32, dtype::fp32},     {dtype::i64, dtype::i64},       {dtype::fp4_e2m1x2, dtype::fp4_e2m1x2}};

using bytes = std::vector<std::byte>;

/// `bytes_of` elements of a pattern, little-endian.
inline void store(std::byte* to, std::uint64_t bits, std::int64_t size) {
  std::memcpy(to, &bits, static_cast<std::size_t>(size));
}
inline std::uint64_t fetch(const std::byte* from, std::int64_t size) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, from, static_cast<std::size_t>(size));
  return bits;
}

/// The code that a landing writes. BF16 is the upper half of FP32, so its NaN payloads stay.
inline std::uint64_t landed(dtype from, dtype to, std::uint64_t code) {
  if (from == to) return code;
  if (from == dtype::bf16) return code << 16;
  return reference::nearest(to, reference::value_of(from, static_cast<std::uint32_t>(code)));
}

/// Random bytes; floats drawn from all their codes, NaN, infinity and subnormals among them.
inline bytes noise(std::mt19937_64& random, std::int64_t count) {
  bytes result(static_cast<std::size_t>(count));
  for (std::byte& one : result) one = static_cast<std::byte>(random());
  return result;
}

/// An executor that was reserved, with a lane and memory; what its allocations should hold is kept beside.
template <class Executor>
class executor_rig {
 public:
  static constexpr std::byte poison{0xA5};

  explicit executor_rig(std::span<const dequant_key> keys = {}, std::int64_t flags = 0, std::span<const storage_map> maps = {})
      : lane(reserved({.keys = keys, .dequant_jobs = 64, .land_jobs = 64, .maps = maps, .flags = flags})) {}

  /// Runtime storage full of poison.
  std::byte* allocate(std::int64_t count) {
    std::byte* first = memory.allocate(count, poison);
    expected_.push_back({first, bytes(static_cast<std::size_t>(count), poison)});
    return first;
  }
  std::byte* allocate(const bytes& content) {
    std::byte* first = allocate(static_cast<std::int64_t>(content.size()));
    memory.write(first, content.data(), static_cast<std::int64_t>(content.size()));
    expected_.back().content = content;
    return first;
  }
  /// What the library should have made of an allocation: change it here.
  bytes& expected(const std::byte* first) {
    for (allocation& one : expected_)
      if (one.first == first) return one.content;
    throw "no such allocation";
  }
  /// A source with its first byte at an address of this remainder modulo 16.
  const std::byte* place(const bytes& content, std::int64_t misaligned = 0) {
    bytes shifted(content.size() + static_cast<std::size_t>(misaligned));
    std::copy(content.begin(), content.end(), shifted.begin() + misaligned);
    return static_cast<const std::byte*>(memory.place(shifted.data(), static_cast<std::int64_t>(shifted.size())).data) +
           misaligned;
  }

  /// Waits and compares every allocation; the place of the first differing byte in `where`.
  bool as_expected(std::string* where = nullptr) {
    if (!run.wait(lane).ok()) return false;
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      const bytes& wanted = expected_[i].content;
      bytes found(wanted.size());
      memory.read(found.data(), expected_[i].first, static_cast<std::int64_t>(found.size()));
      const auto differs = std::mismatch(wanted.begin(), wanted.end(), found.begin());
      if (differs.first == wanted.end()) continue;
      if (where != nullptr)
        *where = "allocation " + std::to_string(i) + ", byte " + std::to_string(differs.first - wanted.begin()) + ": expected " +
                 std::to_string(std::to_integer<int>(*differs.first)) + ", got " + std::to_string(std::to_integer<int>(*differs.second));
      return false;
    }
    return memory.guards_intact();
  }

  test_memory<Executor> memory = {};
  Executor run{};  // not "= {}": an explicit constructor
  typename Executor::lane lane;

 private:
  struct allocation {
    std::byte* first;
    bytes content;
  };

  typename Executor::lane reserved(const executor_needs& needs) {
    status error = run.reserve(needs);
    if (error.ok()) error = run.begin({});
    REQUIRE_MESSAGE(error.ok(), error.message());
    return run.open(memory.stream(0));
  }

  std::vector<allocation> expected_ = {};
};

/// A landing of any pair of dtypes, strides and alignment, and what it should write.
template <class Executor>
land_job any_landing(executor_rig<Executor>& rig, std::mt19937_64& random) {
  const auto upto = [](std::int64_t low, std::int64_t high) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, high + 1));
  };
  const type_pair types = *rc::gen::elementOf(std::vector<type_pair>(std::begin(landing_pairs), std::end(landing_pairs)));
  land_job job{.rows = upto(0, 9), .cols = upto(0, 2) == 0 ? upto(0, 300) : upto(0, 9), .from = types.from, .to = types.to};
  const std::int64_t narrow = bytes_of(types.from), wide = bytes_of(types.to);
  // Strides of a dense, padded, transposed, reversed, or repeated (stride 0) matrix.
  std::int64_t row_step = job.cols * narrow, col_step = narrow;
  switch (upto(0, 5)) {
    case 0: row_step += upto(1, 9); break;  // any number of bytes, not only whole elements
    case 1: col_step = std::max<std::int64_t>(job.rows, 1) * narrow, row_step = narrow; break;
    case 2: col_step = narrow + upto(1, 9), row_step = job.cols * col_step + upto(0, 3); break;
    case 3: row_step = 0; break;
    default: break;
  }
  const std::int64_t span = std::max<std::int64_t>(0, (job.rows - 1) * row_step) + std::max<std::int64_t>(0, (job.cols - 1) * col_step) + narrow;
  const bytes content = noise(random, job.rows * job.cols == 0 ? 0 : span);
  const std::byte* source = rig.place(content, upto(0, 15));
  std::int64_t first = 0;
  if (upto(0, 3) == 0) first += std::max<std::int64_t>(0, job.rows - 1) * row_step, row_step = -row_step;
  if (upto(0, 3) == 0) first += std::max<std::int64_t>(0, job.cols - 1) * col_step, col_step = -col_step;
  job.source_row_stride_bytes = row_step;
  job.source_col_stride_bytes = col_step;
  const bool nothing = job.rows * job.cols == 0;
  job.source = nothing ? nullptr : source + first;
  // Element-aligned, in rows that may be longer.
  job.destination_row_stride_bytes = job.cols * wide + upto(0, 2) * wide;
  const std::int64_t offset = upto(0, 3) * wide;
  std::byte* storage = rig.allocate(offset + job.rows * job.destination_row_stride_bytes + 8);
  job.destination = storage + offset;
  bytes& expected = rig.expected(storage);
  for (std::int64_t r = 0; r < job.rows; ++r)
    for (std::int64_t c = 0; c < job.cols; ++c)
      store(&expected[static_cast<std::size_t>(offset + r * job.destination_row_stride_bytes + c * wide)],
            landed(types.from, types.to, fetch(&content[static_cast<std::size_t>(first + r * row_step + c * col_step)], narrow)), wide);
  return job;
}

/// FP8 rows with a grid of scales; random codes (all of them) and scales (edges of each format among them).
struct dequant_case {
  dequant_key key = {};
  bool in_place = true;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int32_t row_phase = 0;
  std::int32_t col_phase = 0;
};

inline std::uint64_t any_scale(std::mt19937_64& random, dtype type) {
  static constexpr std::uint32_t edges[] = {0x00000000, 0x80000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x3F808000, 0x3F69C71C,
                                            0x3F6B8E39, 0x3F6F1C72, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFF800001};
  const bool edge = random() % 4 == 0;
  const auto plain = static_cast<std::uint32_t>(0x3A000000 + random() % 0x0A000000) | static_cast<std::uint32_t>(random() % 2) << 31;
  const std::uint32_t bits = edge ? edges[random() % std::size(edges)] : plain;
  if (type == dtype::fp32) return bits;
  if (type == dtype::bf16) return bits >> 16;
  return edge ? std::array<std::uint32_t, 4>{0, 1, 254, 255}[random() % 4] : 100 + random() % 55;
}

/// Builds storage, source and scales of a case, and says in `expected` what the rows should become.
template <class Executor>
dequant_job any_dequant(executor_rig<Executor>& rig, std::mt19937_64& random, const dequant_case& one) {
  const std::int64_t wide = bytes_of(one.key.runtime), narrow = bytes_of(one.key.scale);
  const std::int64_t block_rows = one.key.block_rows == 0 ? std::int64_t{1} << 40 : one.key.block_rows;
  const std::int64_t block_cols = one.key.block_cols == 0 ? std::int64_t{1} << 40 : one.key.block_cols;
  const std::int64_t grid_rows = (one.row_phase + one.rows + block_rows - 1) / block_rows;
  const std::int64_t grid_cols = (one.col_phase + one.cols + block_cols - 1) / block_cols;
  const std::int64_t scale_step = (grid_cols + static_cast<std::int64_t>(random() % 3)) * narrow;
  bytes scales = noise(random, std::max<std::int64_t>(grid_rows * scale_step, 1));
  for (std::int64_t i = 0; i < grid_rows; ++i)
    for (std::int64_t j = 0; j < grid_cols; ++j)
      store(&scales[static_cast<std::size_t>(i * scale_step + j * narrow)], any_scale(random, one.key.scale), narrow);

  const std::int64_t step = (one.cols + static_cast<std::int64_t>(random() % 3)) * wide;
  const std::int64_t source_step = one.in_place ? step : one.cols + static_cast<std::int64_t>(random() % 3);
  bytes codes = noise(random, std::max<std::int64_t>(one.rows * source_step, 1));
  dequant_job job{.rows = one.rows, .cols = one.cols, .source_row_stride_bytes = source_step, .destination_row_stride_bytes = step,
                  .scale_row_stride_bytes = scale_step, .row_phase = one.row_phase, .col_phase = one.col_phase};
  job.scale = rig.allocate(scales);  // retired params: written by nobody here
  std::byte* source = rig.allocate(codes);
  job.source = source;
  job.destination = one.in_place ? source : rig.allocate(std::max<std::int64_t>(one.rows * step, 1));
  bytes& expected = rig.expected(job.destination);
  for (std::int64_t r = 0; r < one.rows; ++r)
    for (std::int64_t c = 0; c < one.cols; ++c) {
      const std::int64_t i = (one.row_phase + r) / block_rows, j = (one.col_phase + c) / block_cols;
      const auto scale = static_cast<std::uint32_t>(fetch(&scales[static_cast<std::size_t>(i * scale_step + j * narrow)], narrow));
      const auto code = std::to_integer<std::uint32_t>(codes[static_cast<std::size_t>(r * source_step + c)]);
      store(&expected[static_cast<std::size_t>(r * step + c * wide)],
            reference::dequantise(one.key.stored, code, one.key.scale, scale, one.key.runtime), wide);
    }
  return job;
}

}  // namespace wreload::test

TEST_CASE_TEMPLATE_DEFINE("land: any dtypes, strides and alignment, and not a byte beside", Executor, executor_land) {
  using namespace wreload::test;
  property("against element by element", [] {
    executor_rig<Executor> rig;
    std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
    std::vector<wreload::land_job> jobs;
    const auto count = *rc::gen::inRange(0, 5);
    for (int i = 0; i < count; ++i) jobs.push_back(any_landing(rig, random));
    RC_ASSERT(rig.run.land(rig.lane, jobs).ok());
    std::string where;
    if (!rig.as_expected(&where)) RC_FAIL(where);
  });
}

TEST_CASE_TEMPLATE_DEFINE("land: every code of every widening", Executor, executor_land_codes) {
  using namespace wreload::test;
  for (const type_pair& types : landing_pairs) {
    const std::int64_t narrow = wreload::bytes_of(types.from), wide = wreload::bytes_of(types.to);
    if (narrow > 2) continue;
    executor_rig<Executor> rig;
    const std::int64_t count = narrow == 1 ? 256 : 65536;
    bytes codes(static_cast<std::size_t>(count * narrow));
    for (std::int64_t i = 0; i < count; ++i) store(&codes[static_cast<std::size_t>(i * narrow)], static_cast<std::uint64_t>(i), narrow);
    std::byte* storage = rig.allocate(count * wide);
    const wreload::land_job job{rig.place(codes), storage, 1, count, count * narrow, narrow, count * wide, types.from, types.to};
    REQUIRE(rig.run.land(rig.lane, std::span(&job, 1)).ok());
    for (std::int64_t i = 0; i < count; ++i)
      store(&rig.expected(storage)[static_cast<std::size_t>(i * wide)], landed(types.from, types.to, static_cast<std::uint64_t>(i)), wide);
    std::string where;
    const bool equal = rig.as_expected(&where);
    CHECK_MESSAGE(equal, wreload::name_of(types.from) << " to " << wreload::name_of(types.to) << ", " << where);
  }
}

TEST_CASE_TEMPLATE_DEFINE("compare: the flag of a job that would change a byte, and nothing written", Executor, executor_compare) {
  using namespace wreload::test;
  property("flags against bytes", [] {
    executor_rig<Executor> rig({}, 4);
    std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
    std::vector<wreload::land_job> jobs;
    std::vector<std::int32_t> flags;
    std::array<std::uint32_t, 4> expected = {};
    const auto count = *rc::gen::inRange(0, 6);
    for (int i = 0; i < count; ++i) {
      const wreload::land_job job = any_landing(rig, random);
      flags.push_back(*rc::gen::inRange(0, 4));
      jobs.push_back(job);
      // Storage already holds what would land, but for one bit now and then, inside the rectangle or beside it.
      const std::int64_t wide = wreload::bytes_of(job.to);
      std::byte* storage = const_cast<std::byte*>(job.destination);
      const bool inside = job.rows * job.cols > 0 && *rc::gen::arbitrary<bool>();
      for (std::int64_t r = 0; r < job.rows; ++r) {
        bytes row(static_cast<std::size_t>(job.cols * wide));
        for (std::int64_t c = 0; c < job.cols; ++c) {
          bytes code(static_cast<std::size_t>(wreload::bytes_of(job.from)));
          rig.memory.read(code.data(), job.source + r * job.source_row_stride_bytes + c * job.source_col_stride_bytes,
                          static_cast<std::int64_t>(code.size()));
          store(&row[static_cast<std::size_t>(c * wide)], landed(job.from, job.to, fetch(code.data(), static_cast<std::int64_t>(code.size()))), wide);
        }
        rig.memory.write(storage + r * job.destination_row_stride_bytes, row.data(), static_cast<std::int64_t>(row.size()));
      }
      if (!inside) continue;
      const auto r = *rc::gen::inRange<std::int64_t>(0, job.rows), at = *rc::gen::inRange<std::int64_t>(0, job.cols * wide);
      std::byte one{};
      rig.memory.read(&one, storage + r * job.destination_row_stride_bytes + at, 1);
      one ^= std::byte{static_cast<unsigned char>(1U << *rc::gen::inRange(0, 8))};
      rig.memory.write(storage + r * job.destination_row_stride_bytes + at, &one, 1);
      expected[static_cast<std::size_t>(flags.back())] = 1;
    }
    RC_ASSERT(rig.run.compare(rig.lane, jobs, flags).ok());
    RC_ASSERT(rig.run.wait(rig.lane).ok());
    const auto found = rig.run.flags();
    RC_ASSERT(found.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) RC_ASSERT((found[i] != 0) == (expected[i] != 0));
    // A flag stays set until the next epoch.
    RC_ASSERT(rig.run.compare(rig.lane, {}, {}).ok());
    RC_ASSERT(rig.run.wait(rig.lane).ok());
    for (std::size_t i = 0; i < expected.size(); ++i) RC_ASSERT((rig.run.flags()[i] != 0) == (expected[i] != 0));
    RC_ASSERT(rig.run.begin({}).ok());
    RC_ASSERT(rig.run.wait(rig.lane).ok());
    for (std::size_t i = 0; i < expected.size(); ++i) RC_ASSERT(rig.run.flags()[i] == 0U);
    RC_ASSERT(rig.memory.guards_intact());
  });
}

TEST_CASE_TEMPLATE_DEFINE("compare: writes nothing, whatever would change", Executor, executor_compare_writes_nothing) {
  using namespace wreload::test;
  executor_rig<Executor> rig({}, 1);
  std::byte* storage = rig.allocate(64);
  const bytes sent(32, std::byte{1});
  const wreload::land_job job{rig.place(sent), storage + 2, 4, 4, 8, 2, 12, wreload::dtype::bf16, wreload::dtype::bf16};
  const std::int32_t flag = 0;
  REQUIRE(rig.run.compare(rig.lane, std::span(&job, 1), std::span(&flag, 1)).ok());
  CHECK(rig.as_expected());
  CHECK(rig.run.flags()[0] != 0);
}

TEST_CASE_TEMPLATE_DEFINE("fill: rectangles of one byte", Executor, executor_fill) {
  using namespace wreload::test;
  property("against byte by byte", [] {
    executor_rig<Executor> rig;
    std::vector<wreload::fill_job> jobs;
    const auto count = *rc::gen::inRange(0, 5);
    for (int i = 0; i < count; ++i) {
      const auto upto = [](std::int64_t high) { return *rc::gen::inRange<std::int64_t>(0, high + 1); };
      wreload::fill_job job{.rows = upto(9), .row_bytes = upto(1) == 0 ? upto(700) : upto(40), .value = static_cast<std::byte>(upto(255))};
      job.row_stride_bytes = job.row_bytes + upto(20);
      const std::int64_t offset = upto(17);
      std::byte* storage = rig.allocate(offset + job.rows * job.row_stride_bytes + 3);
      job.destination = storage + offset;
      bytes& expected = rig.expected(storage);
      for (std::int64_t r = 0; r < job.rows; ++r)
        for (std::int64_t b = 0; b < job.row_bytes; ++b) expected[static_cast<std::size_t>(offset + r * job.row_stride_bytes + b)] = job.value;
      jobs.push_back(job);
    }
    RC_ASSERT(rig.run.fill(rig.lane, jobs).ok());
    std::string where;
    if (!rig.as_expected(&where)) RC_FAIL(where);
  });
}

TEST_CASE_TEMPLATE_DEFINE("dequantise: every conversion x block size x width, in place and out of place", Executor, executor_dequantise) {
  using namespace wreload::test;
  struct block {
    std::int32_t rows, cols;
  };
  // The compiled-in sizes, per tensor, per row, per column, and odd ones.
  constexpr block blocks[] = {{128, 128}, {64, 64}, {1, 128}, {128, 1}, {0, 0}, {1, 0}, {0, 1}, {0, 128}, {128, 0}, {2, 3}};
  std::mt19937_64 random(20261129);
  for (const auto stored : stored_types)
    for (const auto runtime : runtime_types)
      for (const auto scale : scale_types)
        for (const block& size : blocks)
          for (const bool in_place : {true, false}) {
            const wreload::dequant_key key{stored, runtime, scale, size.rows, size.cols};
            executor_rig<Executor> rig(std::span(&key, 1));
            std::vector<wreload::dequant_job> jobs;
            for (const std::int64_t cols : {1, 3, 127, 129, 576}) {
              dequant_case one{key, in_place, 3 + static_cast<std::int64_t>(random() % 3), cols};
              // Most start inside a block, some just before its end.
              if (size.rows > 1) one.row_phase = static_cast<std::int32_t>(random() % 2 == 0 ? size.rows - 1 : random() % static_cast<unsigned>(size.rows));
              if (size.cols > 1) one.col_phase = static_cast<std::int32_t>(random() % 2 == 0 ? size.cols - 1 : random() % static_cast<unsigned>(size.cols));
              jobs.push_back(any_dequant(rig, random, one));
            }
            jobs.push_back({});  // no rows: nothing
            REQUIRE(rig.run.dequantise(rig.lane, key, jobs).ok());
            std::string where;
            const bool equal = rig.as_expected(&where);
            CHECK_MESSAGE(equal, wreload::name_of(stored) << " x " << wreload::name_of(scale) << " to " << wreload::name_of(runtime) << ", blocks "
                                                          << size.rows << "x" << size.cols << (in_place ? ", in place" : "") << ": " << where);
          }
}

TEST_CASE_TEMPLATE_DEFINE("dequantise: random rows, columns, phases and blocks", Executor, executor_dequantise_random) {
  using namespace wreload::test;
  property("against the plain reference", [] {
    const auto upto = [](int low, int high) { return *rc::gen::inRange(low, high + 1); };
    const wreload::dequant_key key{stored_types[upto(0, 1)], runtime_types[upto(0, 2)], scale_types[upto(0, 2)], upto(0, 9), upto(0, 9)};
    executor_rig<Executor> rig(std::span(&key, 1));
    std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
    std::vector<wreload::dequant_job> jobs;
    const auto count = upto(0, 4);
    for (int i = 0; i < count; ++i)
      jobs.push_back(any_dequant(rig, random, {key, upto(0, 1) == 0, upto(0, 20), upto(0, 3) == 0 ? upto(0, 200) : upto(0, 20),
                                               key.block_rows == 0 ? 0 : upto(0, key.block_rows - 1), key.block_cols == 0 ? 0 : upto(0, key.block_cols - 1)}));
    RC_ASSERT(rig.run.dequantise(rig.lane, key, jobs).ok());
    std::string where;
    if (!rig.as_expected(&where)) RC_FAIL(where);
  });
}

TEST_CASE_TEMPLATE_DEFINE("dequantise: a slice of 300 x 576 that starts inside a block, in place", Executor, executor_dequantise_large) {
  using namespace wreload::test;
  const wreload::dequant_key key{wreload::dtype::fp8_e4m3, wreload::dtype::bf16, wreload::dtype::fp32, 128, 128};
  executor_rig<Executor> rig(std::span(&key, 1));
  std::mt19937_64 random(7);
  const std::array jobs = {any_dequant(rig, random, {key, true, 300, 576, 64, 96}), any_dequant(rig, random, {key, true, 1, 7168, 127, 0})};
  REQUIRE(rig.run.dequantise(rig.lane, key, jobs).ok());
  std::string where;
  const bool equal = rig.as_expected(&where);
  CHECK_MESSAGE(equal, where);
}

TEST_CASE_TEMPLATE_DEFINE("dequantise: formats.md 2.5, example A, in place", Executor, executor_dequantise_example) {
  using namespace wreload::test;
  constexpr std::uint8_t codes[4][6] = {{0x38, 0x39, 0x40, 0xC0, 0x7E, 0xFE}, {0x3C, 0x3A, 0x01, 0x81, 0x30, 0xB0},
                                        {0x38, 0x3F, 0x48, 0x49, 0x00, 0x80}, {0x3B, 0xBB, 0x4F, 0x77, 0x08, 0x07}};
  constexpr std::uint32_t scales[2][3] = {{0x3F808000, 0x3DCCCCCD, 0x3B800000}, {0x3F69C71C, 0x40490FDB, 0x3727C5AC}};
  constexpr std::uint16_t wanted[4][6] = {{0x3F80, 0x3F91, 0x3E4D, 0xBE4D, 0x3FE0, 0xBFE0}, {0x3FC1, 0x3FA1, 0x394D, 0xB94D, 0x3B00, 0xBB00},
                                          {0x3F6A, 0x3FDB, 0x4149, 0x4162, 0x0000, 0x8000}, {0x3FA1, 0xBFA1, 0x41BC, 0x443C, 0x3428, 0x3413}};
  const wreload::dequant_key key{wreload::dtype::fp8_e4m3, wreload::dtype::bf16, wreload::dtype::fp32, 2, 2};
  executor_rig<Executor> rig(std::span(&key, 1));
  bytes rows(48, rig.poison), grid(24);
  for (std::size_t r = 0; r < 4; ++r) std::memcpy(&rows[12 * r], codes[r], 6);
  std::memcpy(grid.data(), scales, 24);
  std::byte* storage = rig.allocate(rows);
  const wreload::dequant_job job{storage, storage, rig.allocate(grid), 4, 6, 12, 12, 12, 0, 0};
  REQUIRE(rig.run.dequantise(rig.lane, key, std::span(&job, 1)).ok());
  std::memcpy(rig.expected(storage).data(), wanted, 48);
  std::string where;
  const bool equal = rig.as_expected(&where);
  CHECK_MESSAGE(equal, where);
}

TEST_CASE_TEMPLATE_DEFINE("dequantise: a conversion that is not compiled in is refused before it writes", Executor, executor_dequantise_unknown) {
  using namespace wreload::test;
  using wreload::dtype;
  for (const wreload::dequant_key& key : {wreload::dequant_key{dtype::fp8_e4m3, dtype::bf16, dtype::fp8_e4m3, 1, 16},
                                          wreload::dequant_key{dtype::bf16, dtype::fp32, dtype::fp32, 128, 128},
                                          wreload::dequant_key{dtype::fp8_e4m3, dtype::fp64, dtype::fp32, 128, 128}, wreload::dequant_key{}}) {
    executor_rig<Executor> rig;
    std::byte* storage = rig.allocate(64);
    const wreload::dequant_job job{storage, storage, rig.allocate(64), 2, 4, 16, 16, 16, 0, 0};
    const wreload::status error = rig.run.dequantise(rig.lane, key, std::span(&job, 1));
    CHECK(error.code == wreload::error_code::unsupported);
    CHECK_FALSE(error.wrote_anything);
    CHECK(rig.as_expected());
  }
}

TEST_CASE_TEMPLATE_DEFINE("a lane does its verbs in order", Executor, executor_order) {
  using namespace wreload::test;
  const wreload::dequant_key key{wreload::dtype::fp8_e4m3, wreload::dtype::bf16, wreload::dtype::fp32, 0, 0};
  executor_rig<Executor> rig(std::span(&key, 1));
  const std::int64_t cols = 4096, rows = 64;
  std::byte* storage = rig.allocate(rows * cols * 2);
  std::byte* scale = rig.allocate(4);
  const float two = 2.0F;
  bytes one(4);
  std::memcpy(one.data(), &two, 4);
  const wreload::fill_job fill{storage, rows, cols * 2, cols * 2, std::byte{0}};
  const wreload::land_job codes{rig.place(bytes(static_cast<std::size_t>(rows * cols), std::byte{0x38})), storage, rows, cols, cols, 1, cols * 2,
                                wreload::dtype::fp8_e4m3, wreload::dtype::fp8_e4m3};
  const wreload::land_job factor{rig.place(one), scale, 1, 1, 4, 4, 4, wreload::dtype::fp32, wreload::dtype::fp32};
  const wreload::dequant_job convert{storage, storage, scale, rows, cols, cols * 2, cols * 2, 4, 0, 0};
  const bytes last(2, std::byte{0x11});
  const wreload::land_job over{rig.place(last), storage + 2, 1, 1, 2, 2, cols * 2, wreload::dtype::bf16, wreload::dtype::bf16};
  REQUIRE(rig.run.fill(rig.lane, std::span(&fill, 1)).ok());
  REQUIRE(rig.run.land(rig.lane, std::span(&codes, 1)).ok());
  REQUIRE(rig.run.land(rig.lane, std::span(&factor, 1)).ok());
  REQUIRE(rig.run.dequantise(rig.lane, key, std::span(&convert, 1)).ok());
  REQUIRE(rig.run.land(rig.lane, std::span(&over, 1)).ok());
  bytes& expected = rig.expected(storage);
  for (std::size_t i = 0; i < expected.size(); i += 2) store(&expected[i], 0x4000, 2);
  store(&expected[2], 0x1111, 2);
  rig.expected(scale) = one;
  std::string where;
  const bool equal = rig.as_expected(&where);
  CHECK_MESSAGE(equal, where);
}

TEST_CASE_TEMPLATE_DEFINE("lanes wait for each other where they are told to", Executor, executor_lanes) {
  using namespace wreload::test;
  executor_rig<Executor> rig;
  auto second = rig.run.open(rig.memory.stream(1));
  const std::int64_t count = 1 << 20;
  std::byte* storage = rig.allocate(count);
  const wreload::fill_job first{storage, 1, count, count, std::byte{1}}, then{storage, 1, count, count, std::byte{2}},
      last{storage, 1, count, count, std::byte{3}};
  REQUIRE(rig.run.fill(second, std::span(&first, 1)).ok());
  REQUIRE(rig.run.join(rig.lane, second).ok());
  REQUIRE(rig.run.fill(rig.lane, std::span(&then, 1)).ok());
  REQUIRE(rig.run.wait_for(second, rig.run.record(rig.lane)).ok());
  REQUIRE(rig.run.fill(second, std::span(&last, 1)).ok());
  REQUIRE(rig.run.wait(second).ok());
  std::fill(rig.expected(storage).begin(), rig.expected(storage).end(), std::byte{3});
  CHECK(rig.as_expected());
}

namespace wreload::test {

/// Elements of a tensor, and what the definition says of them, tile by tile of the rectangle that they fill.
inline std::vector<std::uint64_t> plain_digests(const bytes& content, std::int64_t rows, std::int64_t cols, std::int64_t row_step,
                                                std::int64_t col_step, std::int64_t row, std::int64_t col, std::int32_t size) {
  std::vector<std::uint64_t> sums;
  if (rows == 0 || cols == 0) return sums;
  const std::int64_t across = (col + cols - 1) / 4096 - col / 4096 + 1;
  sums.resize(static_cast<std::size_t>(((row + rows - 1) / 256 - row / 256 + 1) * across));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      sums[static_cast<std::size_t>(((row + r) / 256 - row / 256) * across + (col + c) / 4096 - col / 4096)] +=
          reference::digest_element(row + r, col + c, size, fetch(&content[static_cast<std::size_t>(r * row_step + c * col_step)], size));
  return sums;
}

/// A rectangle of a tensor: small ones anywhere, or wide or tall ones over several tiles; aligned, or not.
struct digest_rectangle {
  std::int32_t size = 1;
  std::int64_t rows = 0, cols = 0, row = 0, col = 0, step = 0, shift = 0;
};
inline digest_rectangle draw_digest_rectangle() {
  const auto upto = [](std::int64_t low, std::int64_t high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, high + 1)); };
  digest_rectangle of{.size = *rc::gen::element<std::int32_t>(1, 2, 4, 8)};
  const bool is_aligned = upto(0, 1) == 0;
  const std::int64_t unit = is_aligned ? 16 / std::min(of.size, 16) : 1;
  const auto extent = [&](std::int64_t small, std::int64_t large) { return upto(0, 3) == 0 ? upto(0, large) : upto(0, small); };
  of.rows = extent(70, 600);
  of.cols = extent(70, of.rows > 99 ? 300 : 9000) / unit * unit + (upto(0, 3) == 0 ? upto(0, 3) : 0);
  of.row = upto(0, 1) * (std::int64_t{1} << 33) + upto(0, 600);
  of.col = upto(0, 1) * (std::int64_t{1} << 33) + upto(0, 9000) / unit * unit;
  of.step = (of.cols * of.size + (is_aligned ? 15 : 0)) / (is_aligned ? 16 : 1) * (is_aligned ? 16 : 1) + (is_aligned ? 16 * upto(0, 1) : upto(0, 9));
  of.shift = is_aligned ? 0 : upto(0, 17);
  return of;
}

}  // namespace wreload::test

TEST_CASE_TEMPLATE_DEFINE("digest: the sum over elements of each tile, so cuts add up", Executor, executor_digest) {
  using namespace wreload::test;
  property("cuts against the whole and against the definition", [] {
    executor_rig<Executor> rig;
    std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
    const digest_rectangle of = draw_digest_rectangle();
    bytes content = noise(random, of.shift + of.rows * of.step + 1);
    std::byte* data = rig.allocate(content) + of.shift;
    content.erase(content.begin(), content.begin() + of.shift);
    const auto cut_row = *rc::gen::inRange<std::int64_t>(0, of.rows + 1), cut_col = *rc::gen::inRange<std::int64_t>(0, of.cols + 1);
    const auto job = [&](std::int64_t r, std::int64_t rows, std::int64_t c, std::int64_t cols) {
      return wreload::digest_job{.data = data + r * of.step + c * of.size, .rows = rows, .cols = cols, .row_stride_bytes = of.step,
                                 .row = of.row + r, .col = of.col + c, .element_bytes = of.size};
    };
    const std::vector<wreload::digest_job> jobs = {job(0, of.rows, 0, of.cols), job(0, cut_row, 0, cut_col), job(cut_row, of.rows - cut_row, 0, cut_col),
                                                   job(0, cut_row, cut_col, of.cols - cut_col), job(cut_row, of.rows - cut_row, cut_col, of.cols - cut_col)};
    std::size_t tiles = 0;
    for (const wreload::digest_job& each : jobs) tiles += static_cast<std::size_t>(wreload::digest_grid_of(each).tiles());
    std::vector<std::uint64_t> sums(tiles, 7);
    RC_ASSERT(rig.run.digest(rig.lane, jobs, sums).ok());
    const std::vector<std::uint64_t> expected = plain_digests(content, of.rows, of.cols, of.step, of.size, of.row, of.col, of.size);
    RC_ASSERT(std::equal(expected.begin(), expected.end(), sums.begin()));
    const auto at = sums.begin() + static_cast<std::ptrdiff_t>(expected.size());
    RC_ASSERT(std::accumulate(at, sums.end(), std::uint64_t{0}) == std::accumulate(expected.begin(), expected.end(), std::uint64_t{0}));
    RC_ASSERT(rig.as_expected());
  });
}

TEST_CASE_TEMPLATE_DEFINE("land_digested: lands as land does, and adds the digests of the sources", Executor, executor_land_digested) {
  using namespace wreload::test;
  property("runs, strides, widenings, transposes, row maps; in pieces, on top of what was added before", [] {
    const auto upto = [](std::int64_t low, std::int64_t high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, high + 1)); };
    wreload::storage_map shuffle;
    shuffle.steps[0] = {wreload::row_step_kind::shuffle16, 0};
    executor_rig<Executor> rig({}, 0, std::span(&shuffle, 1));
    std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
    digest_rectangle of = draw_digest_rectangle();
    if (of.shift == 0 && upto(0, 1) == 0) of.shift = 4 * upto(0, 3);  // buckets often are so aligned
    using wreload::dtype;
    dtype from = of.size == 1 ? dtype::fp8_e4m3 : of.size == 2 ? dtype::bf16 : of.size == 4 ? dtype::fp32 : dtype::i64;
    const bool widens = of.size == 2 && upto(0, 2) == 0, is_strided = upto(0, 3) == 0;
    const dtype to = widens ? dtype::fp32 : from;
    const bool is_transposed = upto(0, 3) == 0, is_mapped = !is_transposed && upto(0, 2) == 0;
    if (is_mapped) of.rows = of.rows / 16 * 16;
    const std::int64_t col_step = is_strided ? of.size * 2 : of.size;
    const std::int64_t step = is_strided ? of.cols * col_step + upto(0, 5) : of.step;
    bytes content = noise(random, of.shift + of.rows * step + col_step);
    if (widens)  // a signalling NaN may come out quiet
      for (std::size_t i = 0; i < content.size(); ++i) content[i] &= std::byte{0x3F};
    const bool is_placed = upto(0, 2) == 0;
    const placed_source placed = is_placed ? rig.memory.place(content.data(), static_cast<std::int64_t>(content.size())) : placed_source{rig.allocate(content), wreload::memory_kind::device};
    const std::byte* source = static_cast<const std::byte*>(placed.data) + of.shift;
    content.erase(content.begin(), content.begin() + of.shift);
    // The landing's rows and columns; transposed they are the tensor's columns and rows.
    const std::int64_t rows = is_transposed ? of.cols : of.rows, cols = is_transposed ? of.rows : of.cols;
    const std::int64_t row_step = is_transposed ? col_step : step, each_step = is_transposed ? step : col_step;
    const std::int64_t wide = wreload::bytes_of(to), stride = (cols * wide + 15) / 16 * 16 + 16 * upto(0, 1) + (upto(0, 3) == 0 ? upto(0, 1) * wide : 0);
    std::byte* destination = rig.allocate(std::max<std::int64_t>(rows * stride, 1));
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) {
        const std::uint64_t code = fetch(&content[static_cast<std::size_t>(r * row_step + c * each_step)], of.size);
        const std::int64_t to_row = is_mapped ? wreload::map_row(shuffle, r) : r;
        store(&rig.expected(destination)[static_cast<std::size_t>(to_row * stride + c * wide)], widens ? code << 16 : code, static_cast<int>(wide));
      }
    const std::vector<std::uint64_t> plain = plain_digests(content, of.rows, of.cols, step, col_step, of.row, of.col, of.size);
    // A grid with a margin of one tile on each side; sums of its own start.
    const std::int64_t across = of.cols == 0 ? 0 : (of.col + of.cols - 1) / 4096 - of.col / 4096 + 1, grid_across = across + 2;
    const std::int64_t down = across == 0 ? 0 : static_cast<std::int64_t>(plain.size()) / across, count = (down + 2) * grid_across;
    bytes before = noise(random, count * 8);
    std::byte* sums = rig.allocate(before);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(plain.size()); ++i) {
      std::byte* sum = &rig.expected(sums)[static_cast<std::size_t>(((i / across + 1) * grid_across + i % across + 1) * 8)];
      store(sum, fetch(sum, 8) + plain[static_cast<std::size_t>(i)], 8);
    }
    std::vector<wreload::land_job> jobs;
    std::vector<wreload::land_digest> into;
    const std::int64_t cut_row = upto(0, rows), cut_col = upto(0, cols);
    for (const std::int64_t r : {std::int64_t{0}, cut_row})
      for (const std::int64_t c : {std::int64_t{0}, cut_col}) {
        const bool is_lower = jobs.size() >= 2, is_right = jobs.size() % 2 == 1;
        wreload::land_job job{.source = source + r * row_step + c * each_step, .destination = destination, .rows = is_lower ? rows - cut_row : cut_row,
                              .cols = is_right ? cols - cut_col : cut_col, .source_row_stride_bytes = row_step, .source_col_stride_bytes = each_step,
                              .destination_row_stride_bytes = stride, .from = from, .to = to, .memory = placed.memory};
        if (is_mapped)
          job.map = 0, job.map_row = r, job.map_col = c;
        else
          job.destination += r * stride + c * wide;
        jobs.push_back(job);
        into.push_back({reinterpret_cast<std::uint64_t*>(sums), grid_across, of.row / 256 - 1, of.col / 4096 - 1, of.row + (is_transposed ? c : r),
                        of.col + (is_transposed ? r : c), is_transposed});
      }
    RC_ASSERT(rig.run.land_digested(rig.lane, jobs, into).ok());
    std::string where;
    const bool equal = rig.as_expected(&where);
    if (!equal) RC_FAIL(where);
  });
}

TEST_CASE_TEMPLATE_DEFINE("first_difference: row * row_bytes + offset of the first byte, or -1", Executor, executor_first_difference) {
  using namespace wreload::test;
  property("against byte by byte", [] {
    executor_rig<Executor> rig;
    std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
    const auto upto = [](std::int64_t low, std::int64_t high) { return *rc::gen::inRange<std::int64_t>(low, high + 1); };
    wreload::difference_job pair{.rows = upto(0, 9), .row_bytes = upto(0, 1) == 0 ? upto(0, 600) : upto(0, 20)};
    pair.a_row_stride_bytes = pair.row_bytes + upto(0, 9);
    pair.b_row_stride_bytes = pair.row_bytes + upto(0, 9);
    bytes a = noise(random, pair.rows * pair.a_row_stride_bytes + 9), b = noise(random, pair.rows * pair.b_row_stride_bytes + 9);
    const std::int64_t a_first = upto(0, 8), b_first = upto(0, 8);
    for (std::int64_t r = 0; r < pair.rows; ++r)  // what lies between the rows still differs
      std::copy_n(a.begin() + a_first + r * pair.a_row_stride_bytes, pair.row_bytes, b.begin() + b_first + r * pair.b_row_stride_bytes);
    std::int64_t expected = -1;
    const std::int64_t changes = pair.rows * pair.row_bytes == 0 ? 0 : upto(0, 3);
    for (std::int64_t i = 0; i < changes; ++i) {
      const std::int64_t r = upto(0, pair.rows - 1), at = upto(0, pair.row_bytes - 1);
      b[static_cast<std::size_t>(b_first + r * pair.b_row_stride_bytes + at)] = ~a[static_cast<std::size_t>(a_first + r * pair.a_row_stride_bytes + at)];
      const std::int64_t place = r * pair.row_bytes + at;
      expected = expected < 0 ? place : std::min(expected, place);
    }
    pair.a = rig.allocate(a) + a_first;
    pair.b = rig.allocate(b) + b_first;
    std::int64_t first = 7;
    RC_ASSERT(rig.run.first_difference(rig.lane, pair, &first).ok());
    RC_ASSERT(first == expected);
    RC_ASSERT(rig.as_expected());
  });
}

TEST_CASE_TEMPLATE_DEFINE("read: the bytes, behind what the lane was given before", Executor, executor_read) {
  using namespace wreload::test;
  executor_rig<Executor> rig;
  std::byte* storage = rig.allocate(1000);
  const wreload::fill_job fill{storage + 1, 3, 100, 333, std::byte{0x42}};
  REQUIRE(rig.run.fill(rig.lane, std::span(&fill, 1)).ok());
  for (std::size_t r = 0; r < 3; ++r) std::fill_n(rig.expected(storage).begin() + static_cast<std::ptrdiff_t>(1 + 333 * r), 100, std::byte{0x42});
  bytes found(999);
  REQUIRE(rig.run.read(rig.lane, found.data(), storage + 1, 999).ok());
  CHECK(std::equal(found.begin(), found.end(), rig.expected(storage).begin() + 1));
  CHECK(rig.as_expected());
}

TEST_CASE_TEMPLATE_DEFINE("calls without jobs succeed and write nothing", Executor, executor_empty_calls) {
  using namespace wreload::test;
  const wreload::dequant_key key{wreload::dtype::fp8_e4m3, wreload::dtype::bf16, wreload::dtype::fp32, 128, 128};
  executor_rig<Executor> rig(std::span(&key, 1));
  std::byte* storage = rig.allocate(16);
  CHECK(rig.run.land(rig.lane, {}).ok());
  CHECK(rig.run.land_digested(rig.lane, {}, {}).ok());
  CHECK(rig.run.compare(rig.lane, {}, {}).ok());
  CHECK(rig.run.fill(rig.lane, {}).ok());
  CHECK(rig.run.dequantise(rig.lane, key, {}).ok());
  CHECK(rig.run.digest(rig.lane, {}, {}).ok());
  CHECK(rig.run.combine(rig.lane, {}).ok());
  CHECK(rig.run.read(rig.lane, nullptr, storage, 0).ok());
  CHECK(rig.as_expected());
}

TEST_CASE_TEMPLATE_DEFINE("nothing is allocated after reserve, and calls are counted", Executor, executor_bounded) {
  using namespace wreload::test;
  const wreload::dequant_key key{wreload::dtype::fp8_e4m3, wreload::dtype::bf16, wreload::dtype::fp32, 128, 128};
  executor_rig<Executor> rig(std::span(&key, 1), 1);
  const std::int64_t held = rig.run.allocated_bytes();
  std::mt19937_64 random(3);
  std::int64_t launches = rig.run.launches();
  for (int round = 0; round < 3; ++round) {
    REQUIRE(rig.run.begin({}).ok());
    std::vector<wreload::dequant_job> jobs;
    for (int i = 0; i < 8; ++i) jobs.push_back(any_dequant(rig, random, {key, true, 5, 130, 3, 7}));
    REQUIRE(rig.run.dequantise(rig.lane, key, jobs).ok());
    const wreload::fill_job fill{rig.allocate(1), 1, 1, 1, rig.poison};
    REQUIRE(rig.run.fill(rig.lane, std::span(&fill, 1)).ok());
    CHECK(rig.as_expected());
    CHECK(rig.run.allocated_bytes() == held);
    CHECK(rig.run.launches() > launches);
    launches = rig.run.launches();
  }
}

TEST_CASE_TEMPLATE_DEFINE("an epoch that was cancelled is over: the next one writes as ever", Executor, executor_cancel) {
  using namespace wreload::test;
  executor_rig<Executor> rig;
  std::byte* storage = rig.allocate(64);
  const wreload::fill_job one{storage, 1, 64, 64, std::byte{1}}, two{storage, 1, 64, 64, std::byte{2}};
  REQUIRE(rig.run.fill(rig.lane, std::span(&one, 1)).ok());
  REQUIRE(rig.run.cancel().ok());
  REQUIRE(rig.run.begin({}).ok());
  auto lane = rig.run.open(rig.memory.stream(0));
  REQUIRE(rig.run.fill(lane, std::span(&two, 1)).ok());
  REQUIRE(rig.run.wait(lane).ok());
  std::fill(rig.expected(storage).begin(), rig.expected(storage).end(), std::byte{2});
  CHECK(rig.as_expected());
}

namespace wreload::test {

/// A map of any steps for a slot of these rows, and what it pads them to.
struct any_map {
  storage_map map = {};
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};
inline any_map draw_map() {
  const auto upto = [](std::int64_t low, std::int64_t high) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, high + 1));
  };
  any_map made{.rows = 32 * upto(1, 5), .cols = upto(1, 21)};
  const bool swizzled = upto(0, 1) == 1;
  if (swizzled) made.rows = 128 * upto(1, 2), made.cols = 4 * (upto(0, 2) == 0 ? upto(6, 80) : upto(1, 5));
  int step = 0;
  if (upto(0, 2) == 0) made.map.steps[step++] = {row_step_kind::swap_halves, made.rows / 2};
  if (upto(0, 2) == 0) made.map.steps[step++] = {row_step_kind::gated_interleave, upto(0, 1) == 0 ? made.rows / 2 : made.rows / 4};
  if (upto(0, 1) == 0) made.map.steps[step++] = {upto(0, 1) == 0 ? row_step_kind::shuffle16 : row_step_kind::shuffle32, 0};
  if (swizzled) made.map.swizzled = true, made.map.tile_cols = made.cols / 4;
  return made;
}

/// A slot of a map, its poison, and a landing in it: any rectangle, strides and alignment of the source.
///
///   strides   0 dense, 1 and 3 odd, 2 transposed, 4 rows at multiples of 16 bytes, 5 of 4
///   offset    of the source from an aligned address of runtime memory; -1: where `place` puts it
template <class Executor>
land_job mapped_landing(executor_rig<Executor>& rig, std::mt19937_64& random, const any_map& slot, map_index index, type_pair types,
                        const std::array<std::int64_t, 4>& part, int strides, std::int64_t offset = -1) {
  const std::int64_t narrow = bytes_of(types.from), wide = bytes_of(types.to);
  const auto [row, col, rows, cols] = part;
  land_job job{.rows = rows, .cols = cols, .source_row_stride_bytes = cols * narrow, .source_col_stride_bytes = narrow, .from = types.from, .to = types.to,
               .map = index, .map_row = row, .map_col = col};
  if (strides == 1) job.source_row_stride_bytes += 5;
  if (strides == 2) job.source_col_stride_bytes = rows * narrow, job.source_row_stride_bytes = narrow;
  if (strides == 3) job.source_col_stride_bytes = narrow + 3, job.source_row_stride_bytes = cols * (narrow + 3);
  if (strides == 4) job.source_row_stride_bytes = (cols * narrow + 15) / 16 * 16;
  if (strides == 5) job.source_row_stride_bytes = (cols * narrow + 3) / 4 * 4;
  const std::int64_t span = rows * cols == 0 ? 0 : (rows - 1) * job.source_row_stride_bytes + (cols - 1) * job.source_col_stride_bytes + narrow;
  const bytes content = noise(random, span);
  if (offset < 0) {
    const placed_source at = rig.memory.place(content.data(), span);
    job.source = static_cast<const std::byte*>(at.data);
    job.memory = at.memory;
  } else {
    bytes shifted(static_cast<std::size_t>(offset));
    shifted.insert(shifted.end(), content.begin(), content.end());
    job.source = rig.allocate(shifted) + offset;
    job.memory = memory_kind::device;
  }
  job.destination_row_stride_bytes = slot.cols * wide + (slot.map.swizzled ? 0 : static_cast<std::int64_t>(random() % 3) * wide);
  std::byte* storage = rig.allocate(slot.rows * job.destination_row_stride_bytes);
  job.destination = storage;
  bytes& expected = rig.expected(storage);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      store(&expected[static_cast<std::size_t>(map_offset(slot.map, row + r, (col + c) * wide, job.destination_row_stride_bytes))],
            landed(types.from, types.to, fetch(&content[static_cast<std::size_t>(r * job.source_row_stride_bytes + c * job.source_col_stride_bytes)], narrow)), wide);
  return job;
}

}  // namespace wreload::test

TEST_CASE_TEMPLATE_DEFINE("land through maps: any rectangle of any slot, several maps in one call", Executor, executor_land_mapped) {
  using namespace wreload::test;
  property("against element by element", [] {
    const auto upto = [](std::int64_t low, std::int64_t high) {
      return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, high + 1));
    };
    std::vector<any_map> slots;
    std::vector<wreload::storage_map> maps;
    for (std::int64_t i = upto(0, 2); i >= 0; --i) slots.push_back(draw_map()), maps.push_back(slots.back().map);
    executor_rig<Executor> rig({}, 0, maps);
    std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
    std::vector<wreload::land_job> jobs;
    for (std::int64_t i = upto(0, 4); i >= 0; --i) {
      const auto which = static_cast<std::size_t>(upto(0, static_cast<std::int64_t>(slots.size()) - 1));
      const any_map& slot = slots[which];
      type_pair types = *rc::gen::elementOf(std::vector<type_pair>(std::begin(landing_pairs), std::end(landing_pairs)));
      if (slot.map.swizzled) types = {wreload::dtype::fp8_e4m3, wreload::dtype::fp8_e4m3};
      const std::int64_t row = upto(0, slot.rows), col = upto(0, slot.cols);
      const bool whole = upto(0, 2) == 0;
      const std::array<std::int64_t, 4> part = whole ? std::array<std::int64_t, 4>{0, 0, slot.rows, slot.cols}
                                                     : std::array<std::int64_t, 4>{row, col, upto(0, slot.rows - row), upto(0, slot.cols - col)};
      jobs.push_back(mapped_landing(rig, random, slot, static_cast<wreload::map_index>(which), types, part, static_cast<int>(upto(0, 5)), upto(0, 2) == 0 ? upto(0, 17) : -1));
    }
    RC_ASSERT(rig.run.land(rig.lane, jobs).ok());
    std::string where;
    const bool equal = rig.as_expected(&where);
    if (!equal) RC_FAIL(where);
  });
}

TEST_CASE_TEMPLATE_DEFINE("land through maps: rectangles at the edges of tiles, blocks and halves, every step", Executor, executor_land_map_edges) {
  using namespace wreload::test;
  using kind = wreload::row_step_kind;
  std::vector<any_map> slots;
  for (const kind step : {kind::none, kind::shuffle16, kind::shuffle32, kind::gated_interleave, kind::swap_halves})
    for (const bool swizzled : {false, true}) {
      any_map slot{.rows = 256, .cols = 12};
      slot.map.steps[0] = {step, step == kind::gated_interleave || step == kind::swap_halves ? 128 : 0};
      if (swizzled) slot.map.swizzled = true, slot.map.tile_cols = 3;
      slots.push_back(slot);
    }
  std::vector<wreload::storage_map> maps;
  for (const any_map& slot : slots) maps.push_back(slot.map);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    executor_rig<Executor> rig({}, 0, maps);
    std::mt19937_64 random(i);
    std::vector<wreload::land_job> jobs;
    for (const std::int64_t row : {0, 15, 16, 31, 32, 127, 128, 255})
      for (const std::int64_t col : {0, 1, 3, 4, 11})
        for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {2, 2}, {33, 5}, {129, 12}})
          jobs.push_back(mapped_landing(rig, random, slots[i], static_cast<wreload::map_index>(i), {wreload::dtype::u8, wreload::dtype::u8},
                                        {row, col, std::min(rows, 256 - row), std::min(cols, 12 - col)}, static_cast<int>(random() % 4)));
    for (std::size_t first = 0; first < jobs.size(); first += 40)
      REQUIRE(rig.run.land(rig.lane, std::span(jobs).subspan(first, std::min<std::size_t>(40, jobs.size() - first))).ok());
    std::string where;
    const bool equal = rig.as_expected(&where);
    CHECK_MESSAGE(equal, where);
  }
}

namespace wreload::test {

/// A slot in 128x4 order and a landing in it, whole and cut into four at an odd row and column.
struct swizzled_case {
  any_map slot = {};
  std::int64_t row = 0, col = 0, rows = 0, cols = 0;
  land_job whole = {};
  std::array<land_job, 4> pieces = {};

  /// The rectangle is a whole half, whose last band may be the other's, too, or ends anywhere in the slot.
  swizzled_case(row_step_kind first, row_step_kind second, std::int64_t of_rows, std::int64_t of_cols, std::int64_t turn) : rows(of_rows), cols(of_cols) {
    const bool halves = first == row_step_kind::gated_interleave || first == row_step_kind::swap_halves;
    const std::int64_t half = turn % 2 == 0 && rows % 64 == 0 ? rows : (rows + 127) / 128 * 128;
    row = halves && turn % 3 != 0 ? half : turn % 4;
    col = turn % 5 < 3 ? 0 : turn % 5 == 3 ? 16 : turn % 19;
    slot = {.rows = (std::max(2 * half, row + rows) + 127) / 128 * 128, .cols = (col + cols + 3) / 4 * 4};
    slot.map = {.steps = {{first, halves ? half : 0}, {second, 0}}, .swizzled = true, .tile_cols = slot.cols / 4};
  }
  std::size_t offset(std::int64_t r, std::int64_t c) const { return static_cast<std::size_t>(map_offset(slot.map, row + r, col + c, 0)); }
  std::int64_t cut_row() const { return rows / 3 | 1; }
  std::int64_t cut_col() const { return cols / 2 | 1; }
  void land_in(const land_job& job) {
    whole = job;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::int64_t r = i < 2 ? 0 : cut_row(), c = i % 2 == 0 ? 0 : cut_col();
      pieces[i] = whole;
      pieces[i].source += r * whole.source_row_stride_bytes + c * whole.source_col_stride_bytes;
      pieces[i].map_row += r, pieces[i].map_col += c;
      pieces[i].rows = i < 2 ? std::min(cut_row(), rows) : rows - r, pieces[i].cols = i % 2 == 0 ? std::min(cut_col(), cols) : cols - c;
    }
  }
};

}  // namespace wreload::test

TEST_CASE_TEMPLATE_DEFINE("land and compare in 128x4 order: widths and heights around groups and bands, whole and in pieces", Executor,
                          executor_swizzled_sizes) {
  using namespace wreload::test;
  using kind = wreload::row_step_kind;
  std::int64_t turn = 0;
  for (const auto& [first, second] : {std::pair{kind::none, kind::none}, {kind::none, kind::shuffle32}, {kind::swap_halves, kind::none},
                                      {kind::gated_interleave, kind::none}, {kind::gated_interleave, kind::shuffle32}})
    for (const std::int64_t rows : {1, 127, 128, 129, 200, 256}) {
      std::vector<swizzled_case> cases;
      std::vector<wreload::storage_map> maps;
      for (const std::int64_t cols : {1, 3, 4, 15, 16, 17, 31, 32, 33, 48, 64, 127, 128, 129, 448}) {
        cases.emplace_back(first, second, rows, cols, ++turn);
        maps.push_back(cases.back().slot.map);
      }
      executor_rig<Executor> rig({}, static_cast<std::int64_t>(5 * cases.size()), maps);
      std::mt19937_64 random(static_cast<std::uint64_t>(turn));
      for (std::size_t i = 0; i < cases.size(); ++i) {
        swizzled_case& one = cases[i];
        const std::int64_t now = turn - static_cast<std::int64_t>(i);
        one.land_in(mapped_landing(rig, random, one.slot, static_cast<wreload::map_index>(i), {wreload::dtype::u8, wreload::dtype::u8}, {one.row, one.col, one.rows, one.cols},
                                   now % 7 < 2 ? 0 : static_cast<int>(now % 7) - 1, now % 3 == 0 ? -1 : now % 4 == 0 ? 0 : now % 18));
        REQUIRE((now % 2 == 0 ? rig.run.land(rig.lane, std::span(&one.whole, 1)) : rig.run.land(rig.lane, one.pieces)).ok());
      }
      std::string where;
      bool right = rig.as_expected(&where);
      CHECK_MESSAGE(right, rows << " rows, step " << static_cast<int>(first) << ": " << where);

      // Flag 5 i is of case i, the next four of its pieces.
      const auto differing = [&] {
        for (std::size_t i = 0; i < cases.size(); ++i) {
          std::array<wreload::land_job, 5> jobs = {cases[i].whole};
          std::copy(cases[i].pieces.begin(), cases[i].pieces.end(), jobs.begin() + 1);
          std::array<std::int32_t, 5> flags;
          for (std::size_t f = 0; f < 5; ++f) flags[f] = static_cast<std::int32_t>(5 * i + f);
          REQUIRE(rig.run.compare(rig.lane, jobs, flags).ok());
        }
        REQUIRE(rig.run.wait(rig.lane).ok());
        std::vector<std::size_t> set;
        for (std::size_t flag = 0; flag < 5 * cases.size(); ++flag)
          if (rig.run.flags()[flag] != 0) set.push_back(flag);
        return set;
      };
      CHECK(differing().empty());
      // Then every byte beside a rectangle differs, and one in it.
      std::vector<std::size_t> expected_flags;
      for (std::size_t i = 0; i < cases.size(); ++i) {
        const swizzled_case& one = cases[i];
        bytes& expected = rig.expected(one.whole.destination);
        for (std::byte& each : expected) each ^= std::byte{0x10};
        for (std::int64_t r = 0; r < one.rows; ++r)
          for (std::int64_t c = 0; c < one.cols; ++c) expected[one.offset(r, c)] ^= std::byte{0x10};
        const auto r = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(one.rows)), c = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(one.cols));
        expected[one.offset(r, c)] ^= std::byte{0x01};
        rig.memory.write(one.whole.destination, expected.data(), static_cast<std::int64_t>(expected.size()));
        expected_flags.push_back(5 * i);
        expected_flags.push_back(5 * i + 1 + (r >= one.cut_row() ? 2U : 0U) + (c >= one.cut_col() ? 1U : 0U));
      }
      right = differing() == expected_flags;
      CHECK_MESSAGE(right, rows << " rows, step " << static_cast<int>(first));
      right = rig.as_expected(&where);
      CHECK_MESSAGE(right, where);
    }
}

TEST_CASE_TEMPLATE_DEFINE("compare through maps: a flag where landing would change a byte, and no write", Executor, executor_compare_mapped) {
  using namespace wreload::test;
  property("equal, then one byte apart", [] {
    const any_map slot = draw_map();
    executor_rig<Executor> rig({}, 2, std::span(&slot.map, 1));
    std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
    const std::array<std::int64_t, 4> part = {slot.rows / 3, slot.cols / 2, slot.rows - slot.rows / 3, slot.cols - slot.cols / 2};
    const std::array jobs = {mapped_landing(rig, random, slot, 0, {wreload::dtype::u8, wreload::dtype::u8}, part, 4),
                             mapped_landing(rig, random, slot, 0, {wreload::dtype::u8, wreload::dtype::u8}, part, 2)};
    RC_ASSERT(rig.run.land(rig.lane, jobs).ok());
    RC_ASSERT(rig.as_expected());
    const std::array<std::int32_t, 2> flags = {0, 1};
    RC_ASSERT(rig.run.compare(rig.lane, jobs, flags).ok());
    RC_ASSERT(rig.run.wait(rig.lane).ok());
    RC_ASSERT(rig.run.flags()[0] == 0U && rig.run.flags()[1] == 0U);
    const auto row = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(part[2])), col = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(part[3]));
    const std::int64_t at = wreload::map_offset(slot.map, part[0] + row, part[1] + col, jobs[1].destination_row_stride_bytes);
    bytes& expected = rig.expected(jobs[1].destination);
    expected[static_cast<std::size_t>(at)] ^= std::byte{0x10};
    rig.memory.write(jobs[1].destination + at, &expected[static_cast<std::size_t>(at)], 1);
    RC_ASSERT(rig.run.compare(rig.lane, jobs, flags).ok());
    RC_ASSERT(rig.as_expected());
    RC_ASSERT(rig.run.flags()[0] == 0U && rig.run.flags()[1] == 1U);
  });
}

TEST_CASE_TEMPLATE_DEFINE("digest through maps: as of the same rectangle in checkpoint order", Executor, executor_digest_mapped) {
  using namespace wreload::test;
  property("any rectangle", [] {
    const auto upto = [](std::int64_t low, std::int64_t high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, high + 1)); };
    const any_map slot = draw_map();
    executor_rig<Executor> rig({}, 0, std::span(&slot.map, 1));
    std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
    const std::int32_t size = slot.map.swizzled ? 1 : *rc::gen::element<std::int32_t>(1, 2, 4, 8);
    const std::int64_t stride = slot.cols * size, row = upto(0, slot.rows - 1), col = upto(0, slot.cols - 1);
    const std::int64_t rows = upto(0, slot.rows - row), cols = upto(0, slot.cols - col);
    const bytes plain = noise(random, slot.rows * stride);
    bytes ordered(plain.size());
    for (std::int64_t r = 0; r < slot.rows; ++r)
      for (std::int64_t b = 0; b < stride; ++b)
        ordered[static_cast<std::size_t>(wreload::map_offset(slot.map, r, b, stride))] = plain[static_cast<std::size_t>(r * stride + b)];
    const std::array jobs = {
        wreload::digest_job{rig.allocate(plain) + row * stride + col * size, rows, cols, stride, 0, 77, 4090, size},
        wreload::digest_job{rig.allocate(ordered), rows, cols, stride, 0, 77, 4090, size, 0, row, col}};
    const auto tiles = static_cast<std::size_t>(wreload::digest_grid_of(jobs[0]).tiles());
    std::vector<std::uint64_t> sums(2 * tiles, 7);
    RC_ASSERT(rig.run.digest(rig.lane, jobs, sums).ok());
    RC_ASSERT(std::equal(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(tiles), sums.begin() + static_cast<std::ptrdiff_t>(tiles)));
    RC_ASSERT(rig.as_expected());
  });
}

TEST_CASE_TEMPLATE_DEFINE("digest of an MN-major slot: as of the same rectangle in checkpoint order", Executor, executor_digest_mn_major) {
  using namespace wreload::test;
  property("any rectangle, any row step before it", [] {
    const auto upto = [](std::int64_t low, std::int64_t high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, high + 1)); };
    any_map slot = draw_map();
    slot.map.swizzled = false, slot.map.tile_cols = 0, slot.map.mn_major_bytes = 4;
    executor_rig<Executor> rig({}, 0, std::span(&slot.map, 1));
    std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
    const std::int64_t row = upto(0, slot.rows - 1), col = upto(0, slot.cols - 1), rows = upto(0, slot.rows - row), cols = upto(0, slot.cols - col);
    const bytes plain = noise(random, slot.rows * slot.cols * 4);
    bytes ordered(plain.size());
    for (std::int64_t r = 0; r < slot.rows; ++r)
      for (std::int64_t c = 0; c < slot.cols; ++c)
        std::memcpy(&ordered[static_cast<std::size_t>(c * slot.rows + wreload::map_row(slot.map, r)) * 4], &plain[static_cast<std::size_t>(r * slot.cols + c) * 4], 4);
    const std::array jobs = {
        wreload::digest_job{rig.allocate(plain) + (row * slot.cols + col) * 4, rows, cols, slot.cols * 4, 0, 77, 4090, 4},
        wreload::digest_job{rig.allocate(ordered), rows, cols, slot.rows * 4, 0, 77, 4090, 4, 0, row, col}};
    const auto tiles = static_cast<std::size_t>(wreload::digest_grid_of(jobs[0]).tiles());
    std::vector<std::uint64_t> sums(2 * tiles, 7);
    RC_ASSERT(rig.run.digest(rig.lane, jobs, sums).ok());
    RC_ASSERT(std::equal(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(tiles), sums.begin() + static_cast<std::ptrdiff_t>(tiles)));
    RC_ASSERT(rig.as_expected());
  });
}

TEST_CASE_TEMPLATE_DEFINE("combine: products of maxima and reciprocals, bit for bit", Executor, executor_combine) {
  using namespace wreload::test;
  property("against double arithmetic rounded to fp32 at each step", [] {
    const auto upto = [](std::int64_t low, std::int64_t high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, high + 1)); };
    executor_rig<Executor> rig;
    std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
    std::vector<wreload::combine_job> jobs;
    for (std::int64_t i = upto(0, 5); i >= 0; --i) {
      wreload::combine_job job{.count = upto(0, 3) == 0 ? upto(0, 400) : upto(0, 5), .factor_count = static_cast<std::int32_t>(upto(1, 3)), .inverted = upto(0, 1) == 1};
      std::vector<std::vector<float>> factors;
      for (std::int32_t f = 0; f < job.factor_count; ++f) {
        wreload::combine_factor& factor = job.factors[f];
        factor = {nullptr, 4 * upto(0, 3), upto(0, 3) == 0 ? upto(1, 400) : upto(1, 4), 4 * upto(0, 3), upto(0, 1) == 1};
        const std::int64_t needed = std::max<std::int64_t>(job.count - 1, 0) * factor.stride_bytes + (factor.count - 1) * factor.across_bytes + 4;
        bytes content = noise(random, needed);
        for (std::int64_t at = 0; at < needed; at += 4) store(&content[static_cast<std::size_t>(at)], random() % 8 == 0 ? random() % 0x100000000U : any_scale(random, wreload::dtype::fp32), 4);
        factor.first = rig.allocate(content);
        factors.emplace_back();
        for (std::int64_t r = 0; r < job.count; ++r) {
          std::vector<float> values;
          for (std::int64_t v = 0; v < factor.count; ++v) {
            float value = 0;
            std::memcpy(&value, &content[static_cast<std::size_t>(r * factor.stride_bytes + v * factor.across_bytes)], 4);
            values.push_back(factor.inverted ? reference::nvfp4::inverse(value) : value);
          }
          factors.back().push_back(reference::nvfp4::greatest(values));
        }
      }
      job.results = rig.allocate(4 * job.count);
      for (std::int64_t r = 0; r < job.count; ++r) {
        float result = factors[0][static_cast<std::size_t>(r)];
        for (std::size_t f = 1; f < factors.size(); ++f) result = reference::nvfp4::times(result, factors[f][static_cast<std::size_t>(r)]);
        if (job.inverted) result = reference::nvfp4::inverse(result);
        result = reference::nvfp4::rounded(result);  // the one NaN
        std::memcpy(&rig.expected(job.results)[static_cast<std::size_t>(4 * r)], &result, 4);
      }
      jobs.push_back(job);
    }
    RC_ASSERT(rig.run.combine(rig.lane, jobs).ok());
    std::string where;
    const bool equal = rig.as_expected(&where);
    if (!equal) RC_FAIL(where);
  });
}
