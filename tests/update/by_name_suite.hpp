#pragma once
/// Situations that engines have met, each under its own name. Shapes are those of real models at a reduced width.

#include "../property.hpp"
#include "generators.hpp"

namespace wreload::test {

/// A through B and back to A, B in mixed formats; equal to a cold start each time, at the addresses of before.
template <class Executor>
void check_reloads(engine<Executor>& tested, std::uint64_t seed = 1) {
  const auto addresses = tested.addresses();
  const auto a = random_checkpoint(tested.layers(), seed);
  const auto b = random_checkpoint(tested.layers(), seed + 1, stored_as::mixed);
  const auto c = random_checkpoint(tested.layers(), seed + 2, stored_as::bf16);
  for (const auto* all : {&a, &b, &a, &c, &b}) {
    update<Executor> open = tested.start({.addresses = {.list = addresses}});
    must(tested.send(open, *all));
    must(open.finish());
    tested.memory().drop_sources();
    CHECK(tested.difference(*all) == "");
  }
}

/// Every rank of a layer.
template <class Executor, class Make>
void check_ranks(int size, Make&& make) {
  for (int rank = 0; rank < size; ++rank) {
    CAPTURE(rank);
    std::vector<reference::layer> layers = make();
    for (reference::layer& layer : layers) {
      layer.tp_size = size;
      layer.tp_rank = rank;
    }
    engine<Executor> tested(layers, rank % 2);
    check_reloads(tested);
  }
}

TEST_CASE_TEMPLATE_DEFINE("every tensor in its own call, scales before weights", Executor, named_scales_first) {
  engine<Executor> tested(small_model());
  const auto all = random_checkpoint(tested.layers(), 1);
  for (const bool scales_first : {true, false}) {
    update<Executor> open = tested.start();
    for (const bool scales : {scales_first, !scales_first})
      for (const auto& [name, value] : all)
        if (name.ends_with("_scale_inv") == scales) {
          must(open.load(name, tested.place(value)));
          (void)open.flush();
        }
    must(open.finish());
    tested.demand_cold(all);
  }
}

TEST_CASE_TEMPLATE_DEFINE("BF16 and FP8 shards in one fused weight", Executor, named_mixed_shards) {
  engine<Executor> tested({linear("fused", {whole_shard("a", 5), whole_shard("b", 3), whole_shard("c", 4)}, 7)}, 1);
  const auto fp8 = random_checkpoint(tested.layers(), 1);
  const auto bf16 = random_checkpoint(tested.layers(), 2, stored_as::bf16);
  for (int mask = 0; mask < 8; ++mask) {
    reference::checkpoint all;
    for (int i = 0; i < 3; ++i) {
      const std::string name = std::string(1, static_cast<char>('a' + i)) + ".weight";
      const bool as_bf16 = ((mask >> i) & 1) != 0;
      all[name] = (as_bf16 ? bf16 : fp8).at(name);
      if (!as_bf16) all[name + "_scale_inv"] = fp8.at(name + "_scale_inv");
    }
    update<Executor> open = tested.start();
    must(tested.send(open, all));
    must(open.finish());
    CHECK(tested.difference(all) == "");
    CHECK(open.report().converted_rows == ((mask & 1) ? 0 : 5) + ((mask & 2) ? 0 : 3) + ((mask & 4) ? 0 : 4));
  }
}

TEST_CASE_TEMPLATE_DEFINE("a BF16 checkpoint without scales", Executor, named_bf16_only) {
  engine<Executor> tested(small_model());
  const auto bf16 = random_checkpoint(tested.layers(), 1, stored_as::bf16);
  tested.reload(bf16);  // the very first load
  tested.demand_cold(bf16);
  const auto fp8 = random_checkpoint(tested.layers(), 2);
  tested.reload(fp8);
  tested.reload(bf16);
  tested.demand_cold(bf16);
}

TEST_CASE_TEMPLATE_DEFINE("a row-parallel slice that starts inside a block", Executor, named_row_parallel) {
  // K = 256 over 4 ranks: ranks 0 and 1 share scale column 0. K = 1408 over 2: rank 1 starts inside block 5.
  for (const auto& [cols, size] : {std::pair{256, 4}, std::pair{1408, 2}})
    check_ranks<Executor>(size, [&] {
      return std::vector{linear("o_proj", {whole_shard("o_proj", 130, reference::cut::row)}, cols, 128, 128)};
    });
  reference::layer layer = linear("o_proj", {whole_shard("o_proj", 3, reference::cut::row)}, 1408, 128, 128);
  layer.tp_size = 2;
  layer.tp_rank = 1;
  engine<Executor> tested({layer});
  CHECK(tested.tensor("o_proj.weight_scale_inv").plan.cols == 6);  // columns 5 to 10
}

TEST_CASE_TEMPLATE_DEFINE("a column-parallel slice that starts inside a block", Executor, named_column_parallel) {
  check_ranks<Executor>(4, [] {
    return std::vector{linear(
        "gate_up", {whole_shard("gate", 768, reference::cut::column), whole_shard("up", 768, reference::cut::column)},
        20, 128, 128)};
  });
}

TEST_CASE_TEMPLATE_DEFINE("a tensor given as rows, as columns, and as rectangles", Executor, named_rectangles) {
  engine<Executor> tested({linear("x", 129, 127), plain("conv", {6, 1, 4}), plain("patch", {5, 3, 2, 4, 4})}, 1);
  const auto all = random_checkpoint(tested.layers(), 1);
  for (int how = 0; how < 3; ++how) {
    update<Executor> open = tested.start();
    for (const auto& [name, value] : all) {
      const shape size = shape_of(value.sizes);
      shape zero = size;
      for (int dim = 0; dim < size.rank(); ++dim) zero[dim] = 0;
      std::vector<std::pair<shape, shape>> parts = {{zero, size}};
      for (int dim = 0; dim < size.rank(); ++dim) {
        if (how == 0 && dim > 0) continue;
        if (how == 1 && dim == 0) continue;
        std::vector<std::pair<shape, shape>> finer;
        for (const auto& [offset, extent] : parts)
          for (std::int64_t at = 0; at < extent[dim]; at += 50) {
            auto cut = std::pair{offset, extent};
            cut.first[dim] += at;
            cut.second[dim] = std::min<std::int64_t>(50, extent[dim] - at);
            finer.push_back(cut);
          }
        parts = finer;
      }
      std::reverse(parts.begin(), parts.end());
      for (const auto& [offset, extent] : parts) {
        const parcel part = pack(name, value, offset, extent, how);
        const placed_source at = tested.memory().place(part.bytes.data(), static_cast<std::int64_t>(part.bytes.size()));
        must(open.load(name, {at.data, part.type, part.extents, part.strides, at.memory}, part.part));
      }
    }
    must(open.finish());
    CHECK(tested.difference(all) == "");
  }
}

TEST_CASE_TEMPLATE_DEFINE("QKV with fewer KV heads than ranks", Executor, named_kv_heads) {
  for (const auto& [size, heads] : {std::pair{4, 2}, std::pair{8, 2}, std::pair{8, 4}, std::pair{4, 1}})
    check_ranks<Executor>(size, [&] {
      reference::layer qkv = linear("qkv_proj",
                                    {whole_shard("q_proj", 8 * 6, reference::cut::column),
                                     whole_shard("k_proj", heads * 3, reference::cut::column),
                                     whole_shard("v_proj", heads * 5, reference::cut::column)},
                                    10);
      qkv.shards[1].parts = qkv.shards[2].parts = heads;
      return std::vector{qkv};
    });
}

TEST_CASE_TEMPLATE_DEFINE("a replicated shard inside a column-parallel fused param (GLM in_proj_qkvbfg_a)", Executor,
                          named_replicated_shard) {
  check_ranks<Executor>(4, [] {
    using reference::cut;
    reference::layer fused = plain("in_proj_qkvbfg_a.weight", {0, 10});
    fused.shards = {whole_shard("q_proj.weight", 32, cut::column),
                    whole_shard("k_proj.weight", 32, cut::column),
                    whole_shard("v_proj.weight", 32, cut::column),
                    whole_shard("b_proj.weight", 8, cut::column),
                    whole_shard("f_a_proj.weight", 3),
                    whole_shard("g_a_proj.weight", 3)};
    return std::vector{fused, linear("fp8", {whole_shard("q", 12, cut::column), whole_shard("f_a", 5)}, 7)};
  });
}

TEST_CASE_TEMPLATE_DEFINE("GLM's and DeepSeek's indexer: wk fused with weights_proj, wk in either format", Executor,
                          named_indexer) {
  // wk [128, H] BF16 or FP8, weights_proj [32, H] BF16 only ever; one runtime param of 160 rows.
  engine<Executor> tested(
      {linear("indexer.wk_weights_proj", {whole_shard("indexer.wk", 128), whole_shard("indexer.weights_proj", 32)}, 136,
              128, 128)});
  const auto fp8 = random_checkpoint(tested.layers(), 1);
  const auto bf16 = random_checkpoint(tested.layers(), 2, stored_as::bf16);
  const reference::checkpoint mixed = {{"indexer.wk.weight", fp8.at("indexer.wk.weight")},
                                       {"indexer.wk.weight_scale_inv", fp8.at("indexer.wk.weight_scale_inv")},
                                       {"indexer.weights_proj.weight", bf16.at("indexer.weights_proj.weight")}};
  for (const auto* all : {&bf16, &mixed, &bf16, &mixed}) {
    tested.reload(*all);
    CHECK(tested.difference(*all) == "");
  }
}

TEST_CASE_TEMPLATE_DEFINE("MiMo: fused FP8 qkv in groups of 1856 rows, one grid", Executor, named_mimo_one_grid) {
  // [14848, H], scale [116, .]: at 8 ranks each holds 1856 rows = 14.5 blocks, odd ranks start inside a block.
  check_ranks<Executor>(8, [] {
    return std::vector{linear("qkv_proj", {whole_shard("qkv_proj", 14848, reference::cut::column)}, 4, 128, 128)};
  });
  reference::layer layer = linear("qkv_proj", {whole_shard("qkv_proj", 14848, reference::cut::column)}, 4, 128, 128);
  layer.tp_size = 8;
  layer.tp_rank = 3;
  CHECK(reference::sources_of(layer)[1].sizes == reference::dims{116, 1});
  engine<Executor> tested({layer});
  CHECK(tested.tensor("qkv_proj.weight").plan.rows == 1856);
  CHECK(tested.tensor("qkv_proj.weight_scale_inv").plan.rows == 15);
}

TEST_CASE_TEMPLATE_DEFINE("MiMo: fused FP8 qkv in groups of 1856 rows, a grid per group", Executor, named_mimo_grids) {
  const auto grids = [] {
    reference::layer layer = linear("qkv_proj", {whole_shard("qkv_proj", 14848, reference::cut::column)}, 4, 128, 128);
    layer.shards[0].grid_rows = 1856;
    return std::vector{layer};
  };
  CHECK(reference::sources_of(grids()[0])[1].sizes == reference::dims{120, 1});
  check_ranks<Executor>(8, grids);
  check_ranks<Executor>(4, grids);  // two groups a rank
}

TEST_CASE_TEMPLATE_DEFINE("MiMo: two groups a rank, reordered to [Q | K | V]", Executor, named_mimo_reordered) {
  // Group g of the disk tensor: [Q 1536 | K 192 | V 128]; rank 1 of 4 holds groups 2 and 3.
  for (const std::int64_t grid : {0, 1856}) {
    reference::layer layer = linear("qkv_proj", {}, 4, 128, 128);
    for (const auto& [begin, rows] : {std::pair{0, 1536}, std::pair{1536, 192}, std::pair{1728, 128}})
      for (const std::int64_t group : {2, 3}) {
        reference::shard part = whole_shard("qkv_proj", rows);
        part.tensor_rows = 14848;
        part.tensor_row_begin = group * 1856 + begin;
        part.grid_rows = grid;
        layer.shards.push_back(part);
      }
    engine<Executor> tested({layer}, 1);
    check_reloads(tested);
  }
}

TEST_CASE_TEMPLATE_DEFINE("qkv fused on disk, cut per part", Executor, named_fused_on_disk) {
  check_ranks<Executor>(2, [] {
    reference::layer qkv = linear("attn.qkv", {}, 10);
    reference::layer bias = plain("attn.qkv.bias", {0});
    for (reference::layer* layer : {&qkv, &bias}) {
      layer->shards.clear();
      for (std::int64_t part = 0; part < 3; ++part) {
        layer->shards.push_back(whole_shard(layer == &qkv ? "disk.qkv" : "disk.qkv.bias", 10, reference::cut::column));
        layer->shards.back().tensor_rows = 30;
        layer->shards.back().tensor_row_begin = 10 * part;
      }
    }
    return std::vector{qkv, bias};
  });
}

TEST_CASE_TEMPLATE_DEFINE("stacked experts: whole, a rank's list, replicas", Executor, named_experts) {
  const auto experts = [](std::vector<std::int64_t> local, int tp_size, int tp_rank) {
    using reference::cut;
    reference::layer layer{.what = reference::kind::moe,
                           .name = "mlp.experts",
                           .tp_size = tp_size,
                           .tp_rank = tp_rank,
                           .block_rows = 2,
                           .block_cols = 3,
                           .experts_total = 6,
                           .experts_local = std::move(local)};
    for (const char* module : {"gate_proj", "up_proj", "down_proj"}) {
      const bool down = module[0] == 'd';
      layer.shards.push_back(whole_shard(module, down ? 7 : 10,
                                         tp_size == 1 ? cut::whole
                                         : down       ? cut::row
                                                      : cut::column));
      layer.shards.back().cols = down ? 10 : 7;
    }
    return layer;
  };
  for (const auto& local : std::vector<std::vector<std::int64_t>>{
           {0, 1, 2, 3, 4, 5}, {3, 4, 5}, {5, 0}, {2}, {1, 1}, {4, 0, 4, 2, 0}, {5, 4, 3, 2, 1, 0, 5}})
    for (const int size : {1, 2})
      for (int rank = 0; rank < size; ++rank) {
        engine<Executor> tested({experts(local, size, rank)}, rank);
        check_reloads(tested);
      }
  // Half the experts refreshed alone; each copy of a replicated one.
  engine<Executor> tested({experts({4, 0, 4, 2}, 1, 0)});
  const auto a = random_checkpoint(tested.layers(), 1);
  const auto b = random_checkpoint(tested.layers(), 2);
  tested.reload(a);
  reference::checkpoint some;
  for (const auto& [name, value] : b)
    if (name.starts_with("mlp.experts.4.") || name.starts_with("mlp.experts.1.")) some[name] = value;
  tested.reload_partial(some);  // expert 1 lives elsewhere
  CHECK(tested.difference(reference::overlay(a, some)) == "");
}

TEST_CASE_TEMPLATE_DEFINE("vocabulary padding: the last rank's tail, or all of it, is zero", Executor,
                          named_vocabulary) {
  for (const std::int64_t rows : {31, 30, 24, 17, 9})  // of 32 rows over 4 ranks
    check_ranks<Executor>(4, [&] {
      reference::layer embed = plain("embed_tokens.weight", {32, 5});
      reference::layer head = linear("lm_head", {whole_shard("lm_head", 32, reference::cut::column)}, 7);
      embed.shards[0].split = reference::cut::column;
      for (reference::layer* layer : {&embed, &head})
        layer->shards[0].checkpoint_rows = layer->shards[0].tensor_rows = rows;
      return std::vector{embed, head};
    });
}

TEST_CASE_TEMPLATE_DEFINE("zero rotary rows: a projection whose checkpoint has fewer rows than the runtime", Executor,
                          named_rotary) {
  // fused_qkv_a_proj: q_a 1536 rows, kv_a_proj_with_mqa 512 rows and 64 of zeros (2112 in all), narrowed.
  reference::layer fused =
      linear("fused_qkv_a_proj", {whole_shard("q_a_proj", 150), whole_shard("kv_a_proj_with_mqa", 70)}, 130, 128, 128);
  fused.shards[1].checkpoint_rows = fused.shards[1].tensor_rows = 60;
  engine<Executor> tested({fused}, 1);
  check_reloads(tested);
  const auto rows = tested.dense("fused_qkv_a_proj.weight");
  for (std::size_t i = 210 * 260; i < rows.size(); ++i) CHECK(rows[i] == std::byte{});
}

TEST_CASE_TEMPLATE_DEFINE("one tensor that two layers read, in different cuts", Executor, named_shared_source) {
  // The embedding is whole in one layer and a column slice, padded, in another; FP8 in both of a second pair.
  std::vector<reference::layer> layers = {plain("embed", {10, 3}), plain("draft.embed", {12, 3}), linear("a", 7, 8),
                                          linear("b", {whole_shard("a", 7)}, 8)};
  layers[1].shards[0] = {
      .module = "embed", .rows = 12, .checkpoint_rows = 10, .tensor_rows = 10, .split = reference::cut::column};
  layers[1].tp_size = layers[3].tp_size = 2;
  layers[1].tp_rank = layers[3].tp_rank = 1;
  layers[3].shards[0].split = reference::cut::row;
  engine<Executor> tested(layers, 1);
  check_reloads(tested);
}

TEST_CASE_TEMPLATE_DEFINE("a tensor that runs in another shape: A_log [64] as [1, 1, 64, 1]", Executor,
                          named_reshaped) {
  check_ranks<Executor>(2, [] {
    reference::layer layer = plain("A_log", {64}, dtype::fp32);
    layer.shards[0].split = reference::cut::column;
    layer.runtime_sizes = {1, 1, 32, 1};
    return std::vector{layer};
  });
}

}  // namespace wreload::test
