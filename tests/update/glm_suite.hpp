#pragma once
/// A model shaped as GLM-5.3-Flash's first four layers plus vision tower (models.md 1) at a reduced width. Layers that
/// the real engine keeps in FP8 run as BF16 here.

#include <algorithm>

#include "engine.hpp"
#include "generators.hpp"

namespace wreload::test {

/// Builds the layers as rank `rank` of `size` runs them; `size` divides 4.
class glm {
 public:
  glm(int size, int rank) : size_(size), rank_(rank) {
    for (int i = 0; i < 4; ++i) text_layer(i);
    plain_layer("embed_tokens.weight", {{root + "embed_tokens.weight", vocabulary}}, {hidden}, cut::column);
    plain_layer("norm.weight", {{root + "norm.weight", hidden}}, {});
    plain_layer("lm_head.weight", {{"lm_head.weight", vocabulary}}, {hidden}, cut::column);
    vision();
  }
  std::vector<reference::layer> layers = {};

 private:
  using cut = reference::cut;
  struct part {
    std::string module;
    std::int64_t rows;
    std::optional<cut> split = {};
  };
  static constexpr std::int64_t hidden = 136, heads = 4, head = 34, vocabulary = 40, dense = 152, expert = 36,
                                experts = 5, q_rank = 70, kv_rank = 30, vision_width = 20;
  const std::string root = "model.language_model.";

  reference::layer& add(reference::kind what, const std::string& name, const std::vector<part>& parts,
                        reference::dims inner, cut split) {
    reference::layer layer{.what = what, .name = name, .inner = std::move(inner), .tp_size = size_, .tp_rank = rank_};
    for (const part& each : parts)
      layer.shards.push_back(whole_shard(each.module, each.rows, each.split.value_or(split)));
    layers.push_back(layer);
    return layers.back();
  }
  reference::layer& plain_layer(const std::string& name, const std::vector<part>& parts, reference::dims inner,
                                cut split = cut::whole, dtype type = dtype::bf16) {
    reference::layer& layer = add(reference::kind::plain, name, parts, std::move(inner), split);
    layer.type = type;
    if (type == dtype::fp32) layer.accepts = {dtype::bf16};
    return layer;
  }
  reference::layer& fp8_layer(const std::string& name, const std::vector<part>& parts, std::int64_t cols,
                              cut split = cut::whole) {
    return add(reference::kind::linear, name, parts, {cols}, split);
  }

  void text_layer(int index) {
    const std::string from = root + "layers." + std::to_string(index) + ".";
    const std::string to = "model.layers." + std::to_string(index) + ".";
    for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"})
      plain_layer(to + norm, {{from + norm, hidden}}, {});
    for (const std::string half : {"attn", "ffn"}) {
      plain_layer(to + "hc_" + half + "_fn", {{from + "hc_" + half + "_fn", 24}}, {4 * hidden}, cut::whole,
                  dtype::fp32);
      plain_layer(to + "hc_" + half + "_base", {{from + "hc_" + half + "_base", 24}}, {}, cut::whole, dtype::fp32);
      plain_layer(to + "hc_" + half + "_scale", {{from + "hc_" + half + "_scale", 3}}, {}, cut::whole, dtype::fp32);
    }
    index == 3 ? mla(from + "self_attn.", to + "self_attn.") : kda(from + "self_attn.", to + "self_attn.");
    index == 3 ? moe(from + "mlp.", to + "mlp.") : mlp(from + "mlp.", to + "mlp.", dense);
  }

  void kda(const std::string& from, const std::string& to) {
    constexpr std::int64_t rows = heads * head;
    plain_layer(to + "in_proj_qkvbfg_a.weight",
                {{from + "q_proj.weight", rows},
                 {from + "k_proj.weight", rows},
                 {from + "v_proj.weight", rows},
                 {from + "b_proj.weight", heads},
                 {from + "f_a_proj.weight", head, cut::whole},
                 {from + "g_a_proj.weight", head, cut::whole}},
                {hidden}, cut::column);
    for (const char* name : {"f_b_proj.weight", "g_b_proj.weight"})
      plain_layer(to + name, {{from + name, rows}}, {head}, cut::column);
    for (const char* name : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"})
      plain_layer(to + name, {{from + name, rows}}, {1, 4}, cut::column, dtype::fp32);
    plain_layer(to + "A_log", {{from + "A_log", heads}}, {}, cut::column, dtype::fp32).runtime_sizes = {
        1, 1, heads / size_, 1};
    plain_layer(to + "dt_bias", {{from + "dt_bias", rows}}, {}, cut::column, dtype::fp32);
    plain_layer(to + "o_norm.weight", {{from + "o_norm.weight", head}}, {});
    plain_layer(to + "o_proj.weight", {{from + "o_proj.weight", hidden}}, {rows}, cut::row);
  }

  void mla(const std::string& from, const std::string& to) {
    fp8_layer(to + "fused_qkv_a_proj", {{from + "q_a_proj", q_rank}, {from + "kv_a_proj_with_mqa", kv_rank}}, hidden);
    plain_layer(to + "q_a_layernorm.weight", {{from + "q_a_layernorm.weight", q_rank}}, {});
    plain_layer(to + "kv_a_layernorm.weight", {{from + "kv_a_layernorm.weight", kv_rank}}, {});
    fp8_layer(to + "q_b_proj", {{from + "q_b_proj", heads * 40}}, q_rank, cut::column);
    plain_layer(to + "kv_b_proj.weight", {{from + "kv_b_proj.weight", heads * 60}}, {kv_rank}, cut::column);
    fp8_layer(to + "o_proj", {{from + "o_proj", hidden}}, heads * 40, cut::row);
    plain_layer(to + "indexer.wq_b.weight", {{from + "indexer.wq_b.weight", 48}}, {q_rank});
    fp8_layer(to + "indexer.wk_weights_proj", {{from + "indexer.wk", 128}, {from + "indexer.weights_proj", 32}},
              hidden);
    for (const char* name : {"indexer.k_norm.weight", "indexer.k_norm.bias"})
      plain_layer(to + name, {{from + name, 128}}, {}, cut::whole, dtype::fp32);
    plain_layer(to + "indexer.index_kpool_compress_ape", {{from + "indexer.index_kpool_compress_ape", 4}}, {128},
                cut::whole, dtype::fp32);
    plain_layer(to + "indexer.index_kpool_compress_gate", {{from + "indexer.index_kpool_compress_gate", 128}},
                {hidden});
  }

  void mlp(const std::string& from, const std::string& to, std::int64_t width) {
    fp8_layer(to + "gate_up_proj", {{from + "gate_proj", width}, {from + "up_proj", width}}, hidden, cut::column);
    fp8_layer(to + "down_proj", {{from + "down_proj", hidden}}, width, cut::row);
  }

  void moe(const std::string& from, const std::string& to) {
    plain_layer(to + "gate.weight", {{from + "gate.weight", experts}}, {hidden});
    plain_layer(to + "gate.e_score_correction_bias", {{from + "gate.e_score_correction_bias", experts}}, {}, cut::whole,
                dtype::fp32);
    mlp(from + "shared_experts.", to + "shared_experts.", expert);
    // A stacked layer is named as its checkpoint modules.
    reference::layer& stacked =
        add(reference::kind::moe, from + "experts",
            {{"gate_proj", expert}, {"up_proj", expert}, {"down_proj", hidden, cut::row}}, {}, cut::column);
    for (reference::shard& each : stacked.shards) each.cols = each.module == "down_proj" ? expert : hidden;
    stacked.experts_total = experts;
    for (std::int64_t i = 0; i < experts; ++i) stacked.experts_local.push_back(i);
  }

  void vision() {
    const std::string from = "model.visual.", to = "visual.";
    const auto same = [&](const std::string& name, std::int64_t rows, reference::dims inner = {},
                          cut split = cut::whole) {
      plain_layer(to + name, {{from + name, rows}}, std::move(inner), split);
    };
    same("patch_embed.proj.weight", vision_width, {3, 2, 3, 3});
    same("patch_embed.proj.bias", vision_width);
    for (int block = 0; block < 3; ++block) {
      const std::string at = "blocks." + std::to_string(block) + ".";
      for (const char* norm : {"norm1.weight", "norm2.weight"}) same(at + norm, vision_width);
      for (const char* norm : {"attn.q_norm.weight", "attn.k_norm.weight"}) same(at + norm, 5);
      for (const char* leaf : {"attn.qkv.weight", "attn.qkv.bias"}) {
        reference::layer& qkv = plain_layer(to + at + leaf, {}, {}, cut::column);
        if (std::string_view(leaf).ends_with("weight")) qkv.inner = {vision_width};
        for (std::int64_t third = 0; third < 3; ++third) {
          qkv.shards.push_back(whole_shard(from + at + leaf, vision_width, cut::column));
          qkv.shards.back().tensor_rows = 3 * vision_width;
          qkv.shards.back().tensor_row_begin = third * vision_width;
        }
      }
      same(at + "attn.proj.weight", vision_width, {vision_width}, cut::row);
      same(at + "attn.proj.bias", vision_width);
      for (const std::string leaf : {"weight", "bias"})
        plain_layer(to + at + "mlp.gate_up_proj." + leaf,
                    {{from + at + "mlp.gate_proj." + leaf, 80}, {from + at + "mlp.up_proj." + leaf, 80}},
                    leaf == "weight" ? reference::dims{vision_width} : reference::dims{}, cut::column);
      same(at + "mlp.down_proj.weight", vision_width, {80}, cut::row);
      same(at + "mlp.down_proj.bias", vision_width);
    }
    same("post_layernorm.weight", vision_width);
    same("downsample.weight", 28, {vision_width, 2, 2});
    same("downsample.bias", 28);
    same("merger.proj.weight", 28, {28}, cut::column);
    for (const char* norm : {"merger.post_projection_norm.weight", "merger.post_projection_norm.bias"}) same(norm, 28);
    plain_layer(to + "merger.gate_up_proj.weight",
                {{from + "merger.gate_proj.weight", 60}, {from + "merger.up_proj.weight", 60}}, {28}, cut::column);
    same("merger.down_proj.weight", 28, {60}, cut::row);
  }

  int size_;
  int rank_;
};

/// Every tensor of a checkpoint in parts of at most `bucket` bytes, whole rows where a row fits, in a shuffled order.
inline std::vector<parcel> in_buckets(const reference::checkpoint& all, std::int64_t bucket, std::uint64_t seed) {
  std::vector<parcel> parts;
  for (const auto& [name, value] : all) {
    const shape size = shape_of(value.sizes);
    shape offset = size, extent = size;
    for (int dim = 0; dim < size.rank(); ++dim) offset[dim] = 0;
    const std::int64_t row_bytes = size.cols() * bytes_of(value.type);
    const std::int64_t step = size.rank() == 0 || row_bytes == 0 ? 1 : std::max<std::int64_t>(bucket / row_bytes, 1);
    for (std::int64_t row = 0; row < size.rows(); row += step) {
      if (size.rank() > 0) {
        offset[0] = row;
        extent[0] = std::min(step, size.rows() - row);
      }
      parts.push_back(pack(name, value, offset, extent, 0));
    }
  }
  noise random(seed);
  for (std::size_t i = parts.size(); i > 1; --i)
    std::swap(parts[i - 1], parts[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  return parts;
}

template <class Executor>
report reload_in_buckets(engine<Executor>& tested, const reference::checkpoint& all, std::int64_t bucket,
                         std::uint64_t seed) {
  const auto addresses = tested.addresses();
  update<Executor> open = tested.start({.addresses = {.list = addresses}});
  for (const parcel& each : in_buckets(all, bucket, seed)) {
    const placed_source at = tested.memory().place(each.bytes.data(), static_cast<std::int64_t>(each.bytes.size()));
    must(open.load(each.name, {at.data, each.type, each.extents, {}, at.memory}, each.part));
  }
  must(open.finish());
  tested.memory().drop_sources();
  return open.report();
}

TEST_CASE_TEMPLATE_DEFINE("GLM-5.3-Flash, first four layers and vision tower, hot-reloaded on each rank", Executor,
                          glm_reload) {
  for (const int size : {1, 2, 4})
    for (int rank = 0; rank < size; ++rank) {
      if (size == 4 && rank % 2 == 0) continue;
      CAPTURE(size);
      CAPTURE(rank);
      const std::vector<reference::layer> layers = glm(size, rank).layers;
      engine<Executor> tested(layers, rank);
      const auto a = random_checkpoint(layers, 1, stored_as::fp8);
      const auto b = random_checkpoint(layers, 2, stored_as::mixed);
      const report cold = reload_in_buckets(tested, a, 1 << 20, 3);
      CHECK(tested.difference(a) == "");
      CHECK(cold.loaded.tensors == static_cast<std::int64_t>(a.size()));
      const auto first = tested.image();
      const report mixed = reload_in_buckets(tested, b, 1000, 4);
      CHECK(tested.difference(b) == "");
      if (size == 1) CHECK(mixed.not_needed.tensors == 0);
      reload_in_buckets(tested, a, 100, 5);
      CHECK(tested.difference(a) == "");
      CHECK(first == tested.image());

      // The audit agrees: a fresh cold start from the last checkpoint, and any other one.
      engine<Executor> fresh(layers);
      fresh.reload(a);
      audit_result found;
      const auto addresses = tested.addresses();
      must(tested.model().audit(fresh.model(), {.list = addresses}, &found));
      CHECK(found.clean());
      fresh.reload(b);
      must(tested.model().audit(fresh.model(), {.list = addresses}, &found));
      CHECK(found.mismatched.size() > 10);
      CHECK(found.moved.empty());
    }
}

TEST_CASE_TEMPLATE_DEFINE("GLM-5.3-Flash: the digests of two ranks are those of one", Executor, glm_digests) {
  const auto all = random_checkpoint(glm(1, 0).layers, 1, stored_as::mixed);
  digest_list merged;
  for (int rank = 0; rank < 2; ++rank) {
    engine<Executor> part(glm(2, rank).layers);
    part.reload(all);
    digest_list own;
    must(part.model().digests(&own));
    merged.insert(merged.end(), own.begin(), own.end());
  }
  engine<Executor> whole(glm(1, 0).layers, 1);
  whole.reload(all);
  audit_result found;
  must(whole.model().audit(merged, {}, &found));
  CHECK(found.mismatched.empty());
  CHECK(found.not_comparable == 0);
}

TEST_CASE_TEMPLATE_DEFINE("GLM-5.3-Flash: the main model is not harmed by what it does not know", Executor,
                          glm_strangers) {
  engine<Executor> tested(glm(1, 0).layers, 0, [](wr::model<Executor>& model) {
    model.foreign("model.language_model.layers.45.*");
    model.ignore("*.inv_freq");
  });
  const auto all = random_checkpoint(tested.layers(), 1);
  update<Executor> open = tested.start();
  for (const auto& [name, value] : all) {
    must(open.load(name, tested.place(value)));
    if (name.find("layers.3.") == std::string::npos) continue;
    std::string mtp = name;
    mtp.replace(mtp.find("layers.3."), 9, "layers.45.");
    must(open.load(mtp, tested.place(value)));
  }
  const std::string q_a = "model.language_model.layers.3.self_attn.q_a_proj.weight";
  check_refused(open.load("language_model.layers.3.self_attn.q_a_proj.weight", tested.place(all.at(q_a))),
                error_code::unknown_name);
  must(open.finish());
  CHECK(tested.difference(all) == "");
  CHECK(open.report().foreign.tensors > 20);
  CHECK(open.report().loaded.tensors == static_cast<std::int64_t>(all.size()));
}

}  // namespace wreload::test
