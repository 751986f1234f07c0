#pragma once
/// Kept tables: what was enqueued once is enqueued again with other sources, and does what a call with those would.

#include <cstring>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "../property.hpp"
#include "../update/bucket_delivery.hpp"

namespace wreload::test {

/// Two blocks of sources alike, and runtime storage.
template <class Executor>
struct table_rig {
  static constexpr std::int64_t block_bytes = 1 << 16;
  static constexpr std::int64_t storage_bytes = 1 << 18;

  explicit table_rig(std::uint64_t seed) {
    noise random(seed);
    std::vector<std::byte> content(block_bytes + 32);
    for (const std::byte*& block : blocks) {
      for (std::byte& each : content) each = static_cast<std::byte>(random.next());
      placed_source at = memory.place(content.data(), block_bytes + 32);
      while (at.memory == memory_kind::pinned || !Executor::converts_from(at.memory)) at = memory.place(content.data(), block_bytes + 32);
      kind = at.memory;
      const auto address = reinterpret_cast<std::uintptr_t>(at.data);
      block = static_cast<const std::byte*>(at.data) + (address + 15) / 16 * 16 - address;
    }
    storage = memory.allocate(storage_bytes, std::byte{0xA5});
    must(run.reserve({.keys = {&key, 1}, .dequant_jobs = 512, .land_jobs = 512, .flags = 2}));
    must(run.begin({}));
  }
  std::vector<std::byte> image() {
    std::vector<std::byte> all(storage_bytes);
    memory.read(all.data(), storage, storage_bytes);
    return all;
  }
  void poison() {
    const std::vector<std::byte> all(storage_bytes, std::byte{0xA5});
    memory.write(storage, all.data(), storage_bytes);
  }

  static constexpr dequant_key key{dtype::fp8_e4m3, dtype::bf16, dtype::fp32, 2, 3};

  test_memory<Executor> memory = {};
  Executor run = {};
  const std::byte* blocks[2] = {};
  memory_kind kind = memory_kind::device;
  std::byte* storage = nullptr;
};

TEST_CASE_TEMPLATE_DEFINE("tables: kept calls do again what they did, with other sources", Executor, table_replay) {
  property("as a call with those sources", [] {
    const std::uint64_t seed = draw_seed();
    table_rig<Executor> rig(seed);
    constexpr std::int64_t counts[] = {0, 1, 5, 60, 240};
    const std::int64_t lands = counts[draw_small(0, 4)], dequants = counts[draw_small(0, 3)];
    constexpr std::pair<dtype, dtype> types[] = {{dtype::u8, dtype::u8}, {dtype::bf16, dtype::bf16}, {dtype::bf16, dtype::fp32}, {dtype::fp8_e4m3, dtype::bf16}};
    /// Each job writes 512 bytes of its own.
    const auto jobs_from = [&](const std::byte* block, std::vector<land_job>& land, std::vector<dequant_job>& dequant) {
      noise random(seed + 1);
      for (std::int64_t i = 0; i < lands; ++i) {
        const auto [from, to] = types[static_cast<std::size_t>(random.below(4))];
        const std::int64_t rows = 1 + random.below(5), cols = 1 + random.below(20);
        land.push_back({.source = block + random.below(60'000), .destination = rig.storage + i * 512, .rows = rows, .cols = cols,
                        .source_row_stride_bytes = cols * bytes_of(from) + random.below(2), .source_col_stride_bytes = bytes_of(from),
                        .destination_row_stride_bytes = 100, .from = from, .to = to, .memory = rig.kind});
      }
      const std::byte* scales = rig.storage + (1 << 17) + (1 << 16);
      for (std::int64_t i = 0; i < dequants; ++i)
        dequant.push_back({.source = block + 8 * random.below(7'000), .destination = rig.storage + (1 << 17) + i * 512, .scale = scales,
                           .rows = 1 + random.below(4), .cols = 1 + random.below(40), .source_row_stride_bytes = 64,
                           .destination_row_stride_bytes = 96, .scale_row_stride_bytes = 64});
    };
    std::byte* scalars = rig.storage + (1 << 17) + (1 << 16);
    const combine_job product{.results = rig.storage + table_rig<Executor>::storage_bytes - 64, .count = 3,
                              .factors = {{scalars, 4, 2, 16, false}, {scalars + 64, 0, 1, 0, true}}, .factor_count = 2};
    const land_job compared{.source = scalars, .destination = scalars + 4, .rows = 1, .cols = 2, .source_row_stride_bytes = 8,
                            .source_col_stride_bytes = 4, .destination_row_stride_bytes = 8, .from = dtype::fp32, .to = dtype::fp32,
                            .memory = memory_kind::device};
    const std::int32_t flag = 1;
    const auto enqueue = [&](auto& lane, const std::byte* block) {
      std::vector<land_job> land;
      std::vector<dequant_job> dequant;
      jobs_from(block, land, dequant);
      must(rig.run.land(lane, land));
      must(rig.run.dequantise(lane, table_rig<Executor>::key, dequant));
      must(rig.run.combine(lane, {&product, 1}));
      must(rig.run.compare(lane, {&compared, 1}, {&flag, 1}));
    };
    // 0xA5A5A5A5 as fp32 scales would do; these differ, so that the comparison finds something.
    std::vector<float> values(256);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.25F + static_cast<float>(i);
    const auto put_scalars = [&] {
      rig.memory.write(scalars, values.data(), static_cast<std::int64_t>(values.size() * sizeof(float)));
    };

    auto lane = rig.run.open(rig.memory.stream(0));
    auto other = rig.run.open(rig.memory.stream(1));
    typename Executor::table kept;
    put_scalars();
    rig.run.keep(lane, &kept);
    enqueue(lane, rig.blocks[0]);
    rig.run.keep(lane, nullptr);
    must(rig.run.wait(lane));
    demand(kept.whole && !kept.empty(), "a whole table");
    const std::int64_t launches = rig.run.launches();
    for (const int which : {1, 0, 1}) {
      rig.poison();
      put_scalars();
      enqueue(lane, rig.blocks[which]);
      must(rig.run.wait(lane));
      const auto expected = rig.image();
      rig.poison();
      put_scalars();
      must(rig.run.begin({}));
      must(rig.run.replay(which == 0 ? lane : other, kept, rig.blocks[which] - rig.blocks[0]));
      must(rig.run.wait(lane));
      must(rig.run.wait(other));
      demand(rig.image() == expected, "a replay writes other bytes");
      demand(rig.run.flags()[1] == 1 && rig.run.flags()[0] == 0, "a replay compares");
    }
    demand(rig.run.launches() > launches, "replays count");
    must(rig.run.cancel());
    if constexpr (!std::is_same_v<typename Executor::lane, host_executor::lane>)
      demand(rig.run.replay(lane, kept, 0).code == error_code::aborted, "a cancelled lane takes no replay");
    demand(rig.memory.guards_intact(), "guards");
  });
}

}  // namespace wreload::test
