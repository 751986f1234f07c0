// Host against CUDA, bit for bit: the same random jobs on the same bytes, every byte of the memory compared.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <wreload/executor/host.hpp>

#include "../cuda_memory.cuh"
#include "../sparsity.hpp"

namespace wreload::test {
namespace {

class dice {
 public:
  explicit dice(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  std::int64_t in(std::int64_t low, std::int64_t high) {  // both included
    return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int64_t chances) { return in(1, chances) == 1; }

 private:
  std::uint64_t state_;
};

/// The same bytes in host and in device memory; jobs are made for the host's and moved to the device's.
class both_sides {
 public:
  both_sides(test_memory<cuda_executor>& memory, std::int64_t bytes, std::uint64_t seed)
      : host_(static_cast<std::size_t>(bytes)), memory_(memory), device_(memory.allocate(bytes, std::byte{0})) {
    dice random(seed);
    for (std::byte& each : host_) each = static_cast<std::byte>(random.next());
    memory_.write(device_, host_.data(), bytes);
  }
  both_sides(const both_sides&) = delete;
  both_sides& operator=(const both_sides&) = delete;
  ~both_sides() { memory_.free(device_); }

  std::byte* host(std::int64_t at = 0) { return host_.data() + at; }
  std::byte* device(std::int64_t at = 0) { return device_ + at; }
  std::byte* moved(const std::byte* in_host) { return device_ + (in_host - host_.data()); }
  std::int64_t size() const { return static_cast<std::int64_t>(host_.size()); }

  /// The first byte that differs; -1 if none does.
  std::int64_t difference() {
    std::vector<std::byte> found(host_.size());
    memory_.read(found.data(), device_, size());
    for (std::size_t i = 0; i < found.size(); ++i)
      if (found[i] != host_[i]) return static_cast<std::int64_t>(i);
    return -1;
  }

 private:
  std::vector<std::byte> host_;
  test_memory<cuda_executor>& memory_;
  std::byte* device_;
};

/// Random landing jobs that fill `to` from left to right with gaps.
std::vector<land_job> random_landings(dice& random, both_sides& from, both_sides& to) {
  constexpr std::pair<dtype, dtype> pairs[] = {
      {dtype::u8, dtype::u8},        {dtype::bf16, dtype::bf16},       {dtype::fp32, dtype::fp32},
      {dtype::i64, dtype::i64},      {dtype::fp8_e4m3, dtype::fp8_e4m3}, {dtype::bf16, dtype::fp32},
      {dtype::fp16, dtype::fp32},    {dtype::fp8_e4m3, dtype::bf16},   {dtype::fp8_e5m2, dtype::fp16},
      {dtype::fp8_ue8m0, dtype::fp32}, {dtype::fp8_ue8m0, dtype::bf16}};
  std::vector<land_job> jobs;
  const bool tiny = random.one_in(4);
  for (std::int64_t at = random.in(0, 40); jobs.size() < 200;) {
    const auto [stored, runtime] = pairs[random.in(0, std::size(pairs) - 1)];
    land_job job{.from = stored, .to = runtime};
    const std::int64_t narrow = bytes_of(stored), wide = bytes_of(runtime);
    job.rows = random.in(1, random.one_in(3) ? 300 : 9);
    job.cols = tiny ? random.in(1, 4) : random.in(1, random.one_in(8) ? 20000 : random.one_in(2) ? 700 : 40);
    if (random.one_in(6)) job.cols = 1;
    if (job.rows * job.cols > 40000) job.rows = 1;
    const bool strided = random.one_in(5);
    job.source_col_stride_bytes = strided ? random.in(1, 3) * narrow : narrow;
    job.source_row_stride_bytes = job.cols * job.source_col_stride_bytes + (random.one_in(2) ? 0 : random.in(0, 40));
    if (strided && random.one_in(2)) {  // transposed
      job.source_row_stride_bytes = narrow;
      job.source_col_stride_bytes = narrow * job.rows;
    }
    const std::int64_t span = (job.rows - 1) * job.source_row_stride_bytes +
                              (job.cols - 1) * job.source_col_stride_bytes + narrow;
    job.destination_row_stride_bytes = job.cols * wide + (random.one_in(2) ? 0 : random.in(0, 40));
    const std::int64_t size = (job.rows - 1) * job.destination_row_stride_bytes + job.cols * wide;
    if (span > from.size() || at + size > to.size()) break;
    job.source = from.host(random.one_in(2) ? (from.size() - span) / 16 * 16 : random.in(0, from.size() - span));
    job.destination = to.host(at);
    jobs.push_back(job);
    at += size + random.in(0, 40);
    if (random.one_in(2)) at = (at + 15) / 16 * 16;
  }
  return jobs;
}

const int rounds = static_cast<int>(std::max<std::int64_t>(60 / test_sparsity(), 2));

}  // namespace

TEST_CASE("cuda: landings equal the host's, from device, pinned and pageable memory") {
  cuda_executor run({.window_bytes = 64 << 10, .table_bytes = 32 << 10});
  REQUIRE(run.reserve({.flags = 4}).ok());
  host_executor plain;
  host_executor::lane plain_lane;
  test_memory<cuda_executor> memory;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    dice random(static_cast<std::uint64_t>(round));
    both_sides from(memory, 200000, random.next()), to(memory, 1 << 20, random.next());
    std::byte* pinned = nullptr;
    WRELOAD_TEST_CUDA(cudaHostAlloc(&pinned, 200000, cudaHostAllocDefault));
    std::memcpy(pinned, from.host(), 200000);
    const std::vector<land_job> jobs = random_landings(random, from, to);
    std::vector<land_job> moved = jobs;
    for (land_job& job : moved) {
      job.destination = to.moved(job.destination);
      const std::int64_t where = random.in(0, 3);
      const std::int64_t offset = job.source - from.host();
      if (where == 0) job.memory = memory_kind::pageable;
      if (where == 1) job = [&] { land_job at = job; at.source = pinned + offset; at.memory = memory_kind::pinned; return at; }();
      if (where == 2) job = [&] { land_job at = job; at.source = from.device(offset); at.memory = memory_kind::device; return at; }();
      if (where == 3) job.source = from.device(offset);  // said to be pageable; CUDA knows better
    }
    auto lane = run.open(memory.stream(round));
    REQUIRE(plain.land(plain_lane, jobs).ok());
    const status landed = run.land(lane, moved);
    REQUIRE_MESSAGE(landed.ok(), landed.message());
    REQUIRE(run.wait(lane).ok());
    CHECK(to.difference() == -1);
    WRELOAD_TEST_CUDA(cudaFreeHost(pinned));
  }
  CHECK(memory.guards_intact());
}

TEST_CASE("cuda: compare sets the host's flags and writes nothing") {
  cuda_executor run;
  host_executor plain;
  const executor_needs needs{.flags = 4};
  REQUIRE(run.reserve(needs).ok());
  REQUIRE(plain.reserve(needs).ok());
  host_executor::lane plain_lane;
  test_memory<cuda_executor> memory;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    dice random(static_cast<std::uint64_t>(round) + 1000);
    both_sides from(memory, 200000, random.next()), to(memory, 1 << 18, random.next());
    const std::vector<land_job> jobs = random_landings(random, from, to);
    REQUIRE(plain.land(plain_lane, jobs).ok());
    if (!jobs.empty() && random.one_in(2)) {  // one changed byte, anywhere; in a gap it changes nothing
      const std::int64_t at = random.in(0, to.size() - 1);
      *to.host(at) ^= static_cast<std::byte>(random.in(1, 255));
    }
    memory.write(to.device(), to.host(), to.size());
    std::vector<land_job> moved = jobs;
    std::vector<std::int32_t> which;
    for (land_job& job : moved) {
      job.destination = to.moved(job.destination);
      which.push_back(static_cast<std::int32_t>(random.in(0, 3)));
    }
    REQUIRE(run.begin({}).ok());
    REQUIRE(plain.begin({}).ok());
    auto lane = run.open(memory.stream(round));
    REQUIRE(plain.compare(plain_lane, jobs, which).ok());
    REQUIRE(run.compare(lane, moved, which).ok());
    REQUIRE(run.wait(lane).ok());
    for (std::size_t i = 0; i < 4; ++i) CHECK(run.flags()[i] == plain.flags()[i]);
    CHECK(to.difference() == -1);
  }
}

TEST_CASE("cuda: dequantisation equals the host's: any block, phase, columns, alignment, in place or not") {
  cuda_executor run;
  REQUIRE(run.reserve({}).ok());
  host_executor plain;
  host_executor::lane plain_lane;
  test_memory<cuda_executor> memory;
  constexpr dtype stored[] = {dtype::fp8_e4m3, dtype::fp8_e5m2};
  constexpr dtype runtime[] = {dtype::bf16, dtype::fp16, dtype::fp32};
  constexpr dtype scale[] = {dtype::fp32, dtype::bf16, dtype::fp8_ue8m0};
  constexpr int sizes[] = {0, 1, 2, 3, 7, 64, 96, 100, 128};
  for (int round = 0; round < 6 * rounds; ++round) {
    CAPTURE(round);
    dice random(static_cast<std::uint64_t>(round) + 2000);
    const dequant_key key{stored[random.in(0, 1)], runtime[random.in(0, 2)], scale[random.in(0, 2)],
                          sizes[random.in(0, 8)], sizes[random.in(0, 8)]};
    both_sides bytes(memory, 1 << 19, random.next()), codes(memory, 1 << 18, random.next());
    both_sides grid(memory, 1 << 18, random.next());
    std::vector<dequant_job> jobs, moved;
    const std::int64_t wide = bytes_of(key.runtime), scale_bytes = bytes_of(key.scale);
    const bool aligned = !random.one_in(3);
    std::int64_t in_codes = 0;
    for (std::int64_t at = 0; jobs.size() < 100;) {
      dequant_job job;
      job.rows = random.in(1, random.one_in(3) ? 200 : 5);
      job.cols = random.in(1, random.one_in(4) ? 5000 : 300);
      if (aligned && !random.one_in(4)) job.cols = (job.cols + 15) / 16 * 16;
      if (job.rows * job.cols > 60000) job.rows = 1;
      job.row_phase = key.block_rows == 0 ? 0 : static_cast<std::int32_t>(random.in(0, key.block_rows - 1));
      job.col_phase = key.block_cols == 0 ? 0 : static_cast<std::int32_t>(random.in(0, key.block_cols - 1));
      if (aligned && key.block_cols % 16 == 0) job.col_phase = job.col_phase / 16 * 16;
      job.destination_row_stride_bytes = job.cols * wide + (random.one_in(2) ? 0 : random.in(0, 3) * (aligned ? 16 : 1));
      const std::int64_t size = job.rows * job.destination_row_stride_bytes;
      const std::int64_t blocks = key.block_cols == 0 ? 1 : (job.col_phase + job.cols - 1) / key.block_cols + 1;
      const std::int64_t block_rows = key.block_rows == 0 ? 1 : (job.row_phase + job.rows - 1) / key.block_rows + 1;
      job.scale_row_stride_bytes = (blocks + random.in(0, 2)) * scale_bytes;
      const std::int64_t grid_bytes = block_rows * job.scale_row_stride_bytes;
      if (at + size > bytes.size() || grid_bytes > grid.size()) break;
      job.destination = bytes.host(at);
      job.scale = grid.host(random.in(0, (grid.size() - grid_bytes) / scale_bytes) * scale_bytes);
      const bool in_place = random.one_in(2) || in_codes + job.rows * (job.cols + 3) > codes.size();
      job.source = in_place ? job.destination : codes.host(in_codes);
      job.source_row_stride_bytes = in_place ? job.destination_row_stride_bytes : job.cols + (aligned ? 0 : random.in(0, 3));
      if (!in_place) in_codes += job.rows * job.source_row_stride_bytes + (aligned ? 0 : random.in(0, 3));
      jobs.push_back(job);
      dequant_job other = job;
      other.destination = bytes.moved(job.destination);
      other.source = in_place ? other.destination : codes.moved(job.source);
      other.scale = grid.moved(job.scale);
      moved.push_back(other);
      at += size + random.in(0, 40);
      if (aligned) at = (at + 15) / 16 * 16;
    }
    auto lane = run.open(memory.stream(round));
    const std::int64_t launches = run.launches();
    REQUIRE(plain.dequantise(plain_lane, key, jobs).ok());
    const status converted = run.dequantise(lane, key, moved);
    REQUIRE_MESSAGE(converted.ok(), converted.message());
    REQUIRE(run.wait(lane).ok());
    CHECK(bytes.difference() == -1);
    CHECK(run.launches() - launches == (jobs.empty() ? 0 : 1));
  }
  CHECK(memory.guards_intact());
}

/// Each task is looked up from the one that the same warp or block did before: a few or a thousand tasks further on.
TEST_CASE("cuda: of thousands of tasks in a launch, tiny and large, each is done once") {
  cuda_executor run({.table_bytes = 4 << 20});
  REQUIRE(run.reserve({}).ok());
  host_executor plain;
  host_executor::lane plain_lane;
  test_memory<cuda_executor> memory;
  const dequant_key key{dtype::fp8_e4m3, dtype::bf16, dtype::fp32, 128, 128};
  for (int round = 0; round < 2; ++round) {
    CAPTURE(round);
    dice random(static_cast<std::uint64_t>(round) + 7000);
    constexpr std::int64_t bytes = 28 << 20;
    both_sides converted(memory, bytes, random.next()), landed(memory, bytes, random.next());
    both_sides source(memory, 1 << 20, random.next()), grid(memory, 1 << 18, random.next());
    std::vector<dequant_job> jobs, moved;
    std::vector<land_job> landings, moved_landings;
    std::int64_t at = 0;
    const auto append = [&](std::int64_t rows, std::int64_t cols) {
      dequant_job job{.source = source.host(random.in(0, source.size() - 2 * rows * cols)), .destination = converted.host(at),
                      .scale = grid.host(random.in(0, 1000) * 4), .rows = rows, .cols = cols, .source_row_stride_bytes = cols,
                      .destination_row_stride_bytes = 2 * cols, .scale_row_stride_bytes = 4 * ((cols + 127) / 128)};
      land_job landing{.source = job.source, .destination = landed.host(at), .rows = rows, .cols = cols,
                       .source_row_stride_bytes = 2 * cols, .source_col_stride_bytes = 2, .destination_row_stride_bytes = 2 * cols,
                       .from = dtype::bf16, .to = dtype::bf16, .memory = memory_kind::device};
      jobs.push_back(job);
      landings.push_back(landing);
      job.source = landing.source = source.moved(job.source);
      job.destination = converted.moved(job.destination);
      job.scale = grid.moved(job.scale);
      landing.destination = landed.moved(landing.destination);
      moved.push_back(job);
      moved_landings.push_back(landing);
      at += (2 * rows * cols + 15) / 16 * 16;
    };
    for (int run_of = 0; run_of < 4; ++run_of) {
      for (int i = 0; i < 10; ++i) append(random.in(100, 200), random.in(80, 128) * 16);  // several units each
      for (int i = 0; i < 900; ++i) append(random.in(1, 3), random.in(1, 100));           // one each
    }
    REQUIRE(at <= bytes);
    REQUIRE(plain.dequantise(plain_lane, key, jobs).ok());
    REQUIRE(plain.land(plain_lane, landings).ok());
    auto lane = run.open(memory.stream(0));
    const std::int64_t launches = run.launches();
    REQUIRE(run.dequantise(lane, key, moved).ok());
    REQUIRE(run.land(lane, moved_landings).ok());
    REQUIRE(run.wait(lane).ok());
    CHECK(run.launches() - launches == 2);
    CHECK(converted.difference() == -1);
    CHECK(landed.difference() == -1);
  }
  CHECK(memory.guards_intact());
}

TEST_CASE("cuda: fills, digests, first differences and reads equal the host's") {
  cuda_executor run({.table_bytes = 8 << 10});
  REQUIRE(run.reserve({}).ok());
  host_executor plain;
  host_executor::lane plain_lane;
  test_memory<cuda_executor> memory;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    dice random(static_cast<std::uint64_t>(round) + 3000);
    both_sides bytes(memory, 1 << 19, random.next());
    std::vector<fill_job> fills, moved_fills;
    for (std::int64_t at = random.in(0, 99); fills.size() < 90;) {
      fill_job job{.rows = random.in(1, 40), .row_bytes = random.in(1, random.one_in(5) ? 30000 : 99)};
      if (job.rows * job.row_bytes > 60000) job.rows = 1;
      job.row_stride_bytes = job.row_bytes + (random.one_in(2) ? 0 : random.in(0, 40));
      job.value = static_cast<std::byte>(random.next());
      if (at + job.rows * job.row_stride_bytes > bytes.size()) break;
      job.destination = bytes.host(at);
      at += job.rows * job.row_stride_bytes + random.in(0, 5000);
      fills.push_back(job);
      job.destination = bytes.moved(job.destination);
      moved_fills.push_back(job);
    }
    auto lane = run.open(memory.stream(round));
    REQUIRE(plain.fill(plain_lane, fills).ok());
    REQUIRE(run.fill(lane, moved_fills).ok());
    REQUIRE(run.wait(lane).ok());
    CHECK(bytes.difference() == -1);

    std::vector<digest_job> jobs, moved_jobs;
    std::int64_t tiles = 0;
    for (int i = 0; i < 300; ++i) {
      digest_job job{.rows = random.in(0, 30), .cols = random.in(0, 300)};
      if (random.one_in(20)) job.rows = random.in(1, 600), job.cols = random.in(1, 40);
      if (random.one_in(20)) job.rows = random.in(1, 3), job.cols = random.in(1, 9000);
      constexpr int widths[] = {1, 2, 4, 8};
      job.element_bytes = widths[random.in(0, 3)];
      const bool is_aligned = random.one_in(2);
      job.row_stride_bytes = job.cols * job.element_bytes + (random.one_in(2) ? 0 : random.in(0, 40));
      if (is_aligned) job.row_stride_bytes = (job.row_stride_bytes + 15) / 16 * 16;
      const std::int64_t offset = random.in(0, bytes.size() - (job.rows + 1) * (job.row_stride_bytes + 16));
      job.row = static_cast<std::int64_t>(random.next() >> 2);
      job.col = random.in(0, 1 << 30) / (is_aligned ? 16 : 1) * (is_aligned ? 16 : 1);
      job.data = bytes.host(is_aligned ? offset / 16 * 16 : offset);
      jobs.push_back(job);
      job.data = bytes.moved(job.data);
      moved_jobs.push_back(job);
      tiles += digest_grid_of(job).tiles();
    }
    std::vector<std::uint64_t> sums(static_cast<std::size_t>(tiles)), found(sums.size(), 7);
    REQUIRE(plain.digest(plain_lane, jobs, sums).ok());
    REQUIRE(run.digest(lane, moved_jobs, found).ok());
    CHECK(sums == found);

    both_sides copy(memory, 1 << 19, 0);
    std::memcpy(copy.host(), bytes.host(), static_cast<std::size_t>(bytes.size()));
    for (std::int64_t changes = random.in(0, 2); changes > 0; --changes)
      *copy.host(random.in(0, copy.size() - 1)) ^= std::byte{0x10};
    memory.write(copy.device(), copy.host(), copy.size());
    for (int i = 0; i < 20; ++i) {
      difference_job pair{.rows = random.in(1, 300), .row_bytes = random.in(1, random.one_in(3) ? 40000 : 999)};
      const std::int64_t stride = pair.row_bytes + (random.one_in(2) ? 0 : random.in(0, 40));
      pair.rows = std::min(pair.rows, bytes.size() / stride);
      pair.a_row_stride_bytes = pair.b_row_stride_bytes = stride;
      const std::int64_t at = random.in(0, bytes.size() - pair.rows * stride);
      difference_job other = pair;
      pair.a = bytes.host(at);
      pair.b = copy.host(at);
      other.a = bytes.device(at);
      other.b = copy.device(at);
      std::int64_t expected = 0, got = 0;
      REQUIRE(plain.first_difference(plain_lane, pair, &expected).ok());
      REQUIRE(run.first_difference(lane, other, &got).ok());
      CHECK(expected == got);
    }
    std::vector<std::byte> dense(1000);
    REQUIRE(run.read(lane, dense.data(), bytes.device(123), 1000).ok());
    CHECK(std::memcmp(dense.data(), bytes.host(123), 1000) == 0);
  }
}

TEST_CASE("cuda: an executor that was not reserved, and a conversion that is not compiled, are refused") {
  cuda_executor run;
  auto early = run.open({});
  CHECK(run.land(early, {}).code == error_code::wrong_state);
  REQUIRE(run.reserve({}).ok());
  auto lane = run.open({});
  CHECK(run.dequantise(lane, {dtype::bf16, dtype::bf16, dtype::fp32, 1, 1}, {}).code == error_code::unsupported);
  CHECK(run.land(lane, {}).ok());
  CHECK(run.launches() == 0);
}

}  // namespace wreload::test
