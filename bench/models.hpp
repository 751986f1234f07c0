#pragma once
/// Three public models layer by layer: what an engine registers for one rank, and the checkpoint tensors in order. Text
/// parts without multi-token prediction, and Kimi's vision tower. Source: models.md 1 to 3.
///
/// GLM-5.3-Flash and DeepSeek-V3 run in BF16 (every FP8 matrix is converted), Kimi-K2.5 in NVFP4 as it is stored.
/// A sink takes the description; host only.
///
///   sink.template layer<Layout>(name, extents)   a layer, cut for the rank
///   sink.tensor(name, type, shape)               a checkpoint tensor, whole

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <wreload/layouts/fp8_dequant_linear.hpp>
#include <wreload/layouts/fp8_dequant_moe.hpp>
#include <wreload/layouts/nvfp4_linear.hpp>
#include <wreload/layouts/nvfp4_moe.hpp>
#include <wreload/layouts/plain.hpp>

namespace bench::models {

namespace wr = wreload;

/// What a checkpoint stores the matrices of a module as.
enum class stored { bf16, block_fp8, nvfp4 };

/// Extents of a model, whole: before any cut.
struct dims {
  std::int64_t hidden = 0, vocab = 0;
  int layers = 0, dense_layers = 0;                      ///< the first ones have a dense MLP, the others experts
  std::int64_t experts = 0, width = 0, dense_width = 0;  ///< rows of a gate: of an expert, of a dense MLP
  std::int64_t q_lora = 0, kv_lora = 0, rope = 0;        ///< kv_a_proj_with_mqa has kv_lora + rope rows
  std::int64_t q_rows = 0, kv_rows = 0, o_cols = 0;      ///< of q_b_proj, kv_b_proj, o_proj: all heads
  std::int64_t vision_blocks = 0, vision_width = 0, vision_inner = 0, vision_patch = 0, vision_grid = 0;

  /// All widths divided; counts, patches and grids stay.
  dims divided(std::int64_t by) const {
    dims less = *this;
    for (std::int64_t dims::*each :
         {&dims::hidden, &dims::vocab, &dims::width, &dims::dense_width, &dims::q_lora, &dims::kv_lora, &dims::rope,
          &dims::q_rows, &dims::kv_rows, &dims::o_cols, &dims::vision_width, &dims::vision_inner})
      less.*each /= by;
    return less;
  }
};

inline constexpr dims glm_dims = {.hidden = 4096,
                                  .vocab = 154880,
                                  .layers = 45,
                                  .dense_layers = 3,
                                  .experts = 288,
                                  .width = 2048,
                                  .dense_width = 12288,
                                  .q_lora = 1536,
                                  .kv_lora = 512,
                                  .rope = 0,
                                  .q_rows = 16384,
                                  .kv_rows = 32768,
                                  .o_cols = 16384};
inline constexpr dims deepseek_dims = {.hidden = 7168,
                                       .vocab = 129280,
                                       .layers = 61,
                                       .dense_layers = 3,
                                       .experts = 256,
                                       .width = 2048,
                                       .dense_width = 18432,
                                       .q_lora = 1536,
                                       .kv_lora = 512,
                                       .rope = 64,
                                       .q_rows = 24576,
                                       .kv_rows = 32768,
                                       .o_cols = 16384};
inline constexpr dims kimi_dims = {.hidden = 7168,
                                   .vocab = 163840,
                                   .layers = 61,
                                   .dense_layers = 1,
                                   .experts = 384,
                                   .width = 2048,
                                   .dense_width = 18432,
                                   .q_lora = 1536,
                                   .kv_lora = 512,
                                   .rope = 64,
                                   .q_rows = 12288,
                                   .kv_rows = 16384,
                                   .o_cols = 8192,
                                   .vision_blocks = 27,
                                   .vision_width = 1152,
                                   .vision_inner = 4304,
                                   .vision_patch = 14,
                                   .vision_grid = 64};

/// What the models have in common: modules in one format, cut one way.
template <class Sink>
class writer {
 public:
  writer(Sink& sink, const dims& sizes, wr::tensor_parallel group) : sizes_(sizes), sink_(sink), group_(group) {}

 protected:
  static constexpr wr::dtype bf16 = wr::dtype::bf16, fp32 = wr::dtype::fp32;
  static constexpr wr::parallel column = wr::parallel::column, row = wr::parallel::row;
  static constexpr wr::parallel replicated = wr::parallel::replicated;

  struct part {
    std::string module = {};
    std::int64_t rows = 0;
    std::optional<wr::parallel> split = {};
  };

  /// A tensor that runs as it is stored.
  void plain(const std::string& name, const wr::shape& extents, wr::parallel split = replicated,
             wr::dtype type = bf16) {
    sink_.tensor(name, type, extents);
    sink_.template layer<wr::Plain>(name, wr::extents::tensor(name, extents, type).cut(split, group_));
  }
  /// Stored in BF16, runs in FP32.
  void widened(const std::string& name, const wr::shape& extents, wr::parallel split = replicated) {
    sink_.tensor(name, bf16, extents);
    wr::extents sizes = wr::extents::tensor(name, extents, fp32).cut(split, group_);
    sizes.accepts = bf16;
    sink_.template layer<wr::Plain>(name, sizes);
  }
  /// FP32, cut along dim 0 and kept in another shape of this rank's elements.
  void reshaped(const std::string& name, const wr::shape& extents, const wr::shape& runtime) {
    sink_.tensor(name, fp32, extents);
    wr::extents sizes = wr::extents::tensor(name, extents, fp32).cut(column, group_);
    sizes.runtime_shape = runtime;
    sink_.template layer<wr::Plain>(name, sizes);
  }
  /// Matrices of `cols` columns that are fused along dim 0 into the layer `name`.
  void linear(stored as, const std::string& name, const std::vector<part>& parts, std::int64_t cols,
              wr::parallel split = replicated) {
    wr::extents sizes{.inner = {as == stored::nvfp4 ? cols / 2 : cols}, .split = split, .tp = group_};
    for (const part& each : parts) {
      matrix(as, each.module, each.rows, cols);
      sizes.shards.push_back({.module = as == stored::bf16 ? each.module + ".weight" : each.module,
                              .rows = each.rows,
                              .split = each.split});
    }
    if (as == stored::bf16) sizes.type = bf16;
    if (as == stored::bf16) sink_.template layer<wr::Plain>(name + ".weight", sizes);
    if (as == stored::block_fp8) sink_.template layer<wr::Fp8DequantLinear>(name, sizes);
    if (as == stored::nvfp4) sink_.template layer<wr::Nvfp4Linear>(name, sizes);
  }
  void linear(stored as, const std::string& name, std::int64_t rows, std::int64_t cols,
              wr::parallel split = replicated) {
    linear(as, name, {{name, rows}}, cols, split);
  }
  void mlp(stored as, const std::string& of, std::int64_t width) {
    linear(as, of + "gate_up_proj", {{of + "gate_proj", width}, {of + "up_proj", width}}, sizes_.hidden, column);
    linear(as, of + "down_proj", sizes_.hidden, width, row);
  }
  /// Router, stacked experts, shared expert.
  void moe(stored as, const std::string& of) {
    const std::int64_t hidden = sizes_.hidden, width = sizes_.width, packed = as == stored::nvfp4 ? 2 : 1;
    plain(of + "gate.weight", {sizes_.experts, hidden});
    plain(of + "gate.e_score_correction_bias", {sizes_.experts}, replicated, fp32);
    for (std::int64_t expert = 0; expert < sizes_.experts; ++expert) {
      const std::string module = of + "experts." + std::to_string(expert) + ".";
      matrix(as, module + "gate_proj", width, hidden);
      matrix(as, module + "up_proj", width, hidden);
      matrix(as, module + "down_proj", hidden, width);
    }
    const wr::extents stack{.shards = {{.module = "gate_proj", .rows = width, .cols = hidden / packed},
                                       {.module = "up_proj", .rows = width, .cols = hidden / packed},
                                       {.module = "down_proj", .rows = hidden, .cols = width / packed, .split = row}},
                            .split = column,
                            .tp = group_,
                            .experts = wr::expert_slots::all(sizes_.experts)};
    if (as == stored::nvfp4)
      sink_.template layer<wr::Nvfp4Moe>(of + "experts", stack);
    else
      sink_.template layer<wr::Fp8DequantMoe>(of + "experts", stack);
    mlp(as, of + "shared_experts.", width);
  }
  void mlp_or_moe(stored as, const std::string& of, int layer) {
    if (layer < sizes_.dense_layers)
      mlp(as, of, sizes_.dense_width);
    else
      moe(as, of);
  }
  /// Latent attention, without what a model adds; `kv_b` is stored in a format of its own.
  void latent_attention(stored as, stored kv_b, const std::string& of, const std::string& fused) {
    linear(as, of + fused,
           {{of + "q_a_proj", sizes_.q_lora}, {of + "kv_a_proj_with_mqa", sizes_.kv_lora + sizes_.rope}},
           sizes_.hidden);
    plain(of + "q_a_layernorm.weight", {sizes_.q_lora});
    plain(of + "kv_a_layernorm.weight", {sizes_.kv_lora});
    linear(as, of + "q_b_proj", sizes_.q_rows, sizes_.q_lora, column);
    linear(kv_b, of + "kv_b_proj", sizes_.kv_rows, sizes_.kv_lora, column);
    linear(as, of + "o_proj", sizes_.hidden, sizes_.o_cols, row);
  }
  void norms(const std::string& of) {
    plain(of + "input_layernorm.weight", {sizes_.hidden});
    plain(of + "post_attention_layernorm.weight", {sizes_.hidden});
  }
  void vocabulary(const std::string& name) { plain(name, {sizes_.vocab, sizes_.hidden}, column); }

  const dims sizes_;

 private:
  /// The checkpoint tensors of a module of rows x cols values.
  void matrix(stored as, const std::string& module, std::int64_t rows, std::int64_t cols) {
    if (as == stored::bf16) sink_.tensor(module + ".weight", bf16, {rows, cols});
    if (as == stored::block_fp8) {
      sink_.tensor(module + ".weight", wr::dtype::fp8_e4m3, {rows, cols});
      sink_.tensor(module + ".weight_scale_inv", fp32, {(rows + 127) / 128, (cols + 127) / 128});
    }
    if (as == stored::nvfp4) {
      sink_.tensor(module + ".weight", wr::dtype::u8, {rows, cols / 2});
      sink_.tensor(module + ".weight_scale", wr::dtype::fp8_e4m3, {rows, cols / 16});
      sink_.tensor(module + ".weight_scale_2", fp32, {});
      sink_.tensor(module + ".input_scale", fp32, {});
    }
  }

  Sink& sink_;
  wr::tensor_parallel group_;
};

/// Layers 3, 7, … have latent attention with an indexer, the others linear attention (KDA) in BF16.
template <class Sink>
class glm : writer<Sink> {
  using base = writer<Sink>;

 public:
  static constexpr const char* name = "GLM-5.3-Flash";
  static constexpr dims real = glm_dims;

  explicit glm(Sink& sink, wr::tensor_parallel group, const dims& sizes = glm_dims)
      : base(sink, sizes, group), ranks_(group.size) {}

  void embedding() { base::vocabulary("model.language_model.embed_tokens.weight"); }
  void layer(int index) {
    const std::string of = "model.language_model.layers." + std::to_string(index) + ".";
    base::norms(of);
    for (const char* side : {"hc_attn", "hc_ffn"}) {
      base::widened(of + side + "_fn", {24, 4 * base::sizes_.hidden});
      base::plain(of + side + "_base", {24}, base::replicated, base::fp32);
      base::plain(of + side + "_scale", {3}, base::replicated, base::fp32);
    }
    if (index % 4 == 3)
      attention(of + "self_attn.");
    else
      linear_attention(of + "self_attn.");
    base::mlp_or_moe(stored::block_fp8, of + "mlp.", index);
  }
  void head() {
    base::plain("model.language_model.norm.weight", {base::sizes_.hidden});
    base::vocabulary("lm_head.weight");
  }

 private:
  static constexpr std::int64_t heads = 64, head_width = 128, all_heads = heads * head_width;

  void attention(const std::string& of) {
    const std::int64_t hidden = base::sizes_.hidden;
    base::latent_attention(stored::block_fp8, stored::bf16, of, "fused_qkv_a_proj");
    base::plain(of + "indexer.wq_b.weight", {4096, base::sizes_.q_lora});
    base::linear(stored::bf16, of + "indexer.wk_weights_proj",
                 {{of + "indexer.wk", 128}, {of + "indexer.weights_proj", 32}}, hidden);
    base::widened(of + "indexer.k_norm.weight", {128});
    base::widened(of + "indexer.k_norm.bias", {128});
    base::widened(of + "indexer.index_kpool_compress_ape", {4, 128});
    base::plain(of + "indexer.index_kpool_compress_gate", {128, hidden});
  }
  void linear_attention(const std::string& of) {
    const std::int64_t hidden = base::sizes_.hidden;
    base::linear(stored::bf16, of + "in_proj_qkvbfg_a",
                 {{of + "q_proj", all_heads},
                  {of + "k_proj", all_heads},
                  {of + "v_proj", all_heads},
                  {of + "b_proj", heads},
                  {of + "f_a_proj", head_width, base::replicated},
                  {of + "g_a_proj", head_width, base::replicated}},
                 hidden, base::column);
    base::linear(stored::bf16, of + "f_b_proj", all_heads, head_width, base::column);
    base::linear(stored::bf16, of + "g_b_proj", all_heads, head_width, base::column);
    for (const char* which : {"q", "k", "v"})
      base::widened(of + which + "_conv1d.weight", {all_heads, 1, 4}, base::column);
    base::reshaped(of + "A_log", {heads}, {1, 1, heads / ranks_, 1});
    base::plain(of + "dt_bias", {all_heads}, base::column, base::fp32);
    base::plain(of + "o_norm.weight", {head_width});
    base::linear(stored::bf16, of + "o_proj", hidden, all_heads, base::row);
  }

  int ranks_;
};

/// All matrices but the router and the vocabulary's are block FP8.
template <class Sink>
class deepseek : writer<Sink> {
  using base = writer<Sink>;

 public:
  static constexpr const char* name = "DeepSeek-V3";
  static constexpr dims real = deepseek_dims;

  explicit deepseek(Sink& sink, wr::tensor_parallel group, const dims& sizes = deepseek_dims)
      : base(sink, sizes, group) {}

  void embedding() { base::vocabulary("model.embed_tokens.weight"); }
  void layer(int index) {
    const std::string of = "model.layers." + std::to_string(index) + ".";
    base::latent_attention(stored::block_fp8, stored::block_fp8, of + "self_attn.", "fused_qkv_a_proj");
    base::norms(of);
    base::mlp_or_moe(stored::block_fp8, of + "mlp.", index);
  }
  void head() {
    base::plain("model.norm.weight", {base::sizes_.hidden});
    base::vocabulary("lm_head.weight");
  }
};

/// Dense MLP and experts are NVFP4, the rest BF16.
template <class Sink>
class kimi : writer<Sink> {
  using base = writer<Sink>;

 public:
  static constexpr const char* name = "Kimi-K2.5";
  static constexpr dims real = kimi_dims;

  explicit kimi(Sink& sink, wr::tensor_parallel group, const dims& sizes = kimi_dims) : base(sink, sizes, group) {}

  void embedding() { base::vocabulary("language_model.model.embed_tokens.weight"); }
  void layer(int index) {
    const std::string of = "language_model.model.layers." + std::to_string(index) + ".";
    base::latent_attention(stored::bf16, stored::bf16, of + "self_attn.", "fused_qkv_a_proj_with_mqa");
    base::norms(of);
    base::mlp_or_moe(stored::nvfp4, of + "mlp.", index);
  }
  void head() {
    base::plain("language_model.model.norm.weight", {base::sizes_.hidden});
    base::vocabulary("language_model.lm_head.weight");
  }
  void vision() {
    const std::int64_t width = base::sizes_.vision_width, inner = base::sizes_.vision_inner;
    const std::int64_t patch = base::sizes_.vision_patch, grid = base::sizes_.vision_grid;
    with_bias("vision_tower.patch_embed.proj", {width, 3, patch, patch});
    base::plain("vision_tower.patch_embed.pos_emb.weight", {grid, grid, width});
    for (std::int64_t i = 0; i < base::sizes_.vision_blocks; ++i) {
      const std::string of = "vision_tower.encoder.blocks." + std::to_string(i) + ".";
      with_bias(of + "wqkv", {3 * width, width});
      with_bias(of + "wo", {width, width});
      with_bias(of + "mlp.fc0", {inner, width});
      with_bias(of + "mlp.fc1", {width, inner});
      with_bias(of + "norm0", {width});
      with_bias(of + "norm1", {width});
    }
    with_bias("vision_tower.encoder.final_layernorm", {width});
    with_bias("mm_projector.pre_norm", {width});
    with_bias("mm_projector.proj.0", {4 * width, 4 * width});
    with_bias("mm_projector.proj.2", {base::sizes_.hidden, 4 * width});
  }

 private:
  void with_bias(const std::string& module, const wr::shape& extents) {
    base::plain(module + ".weight", extents);
    base::plain(module + ".bias", {extents[0]});
  }
};

}  // namespace bench::models
