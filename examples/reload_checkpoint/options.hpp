#pragma once
// What the command line asks for, as a plain record. No CLI11 here: a .cu file may include it.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <wreload/wreload.hpp>

namespace reload {

namespace wr = wreload;

// --fuse fused_qkv_a_proj=q_a_proj,kv_a_proj_with_mqa: leaf names of modules, in row order.
struct fusion {
  std::string name = {};
  std::vector<std::string> modules = {};
};

// --parallel o_proj=row: by the leaf name of a layer, after fusing.
struct split_rule {
  std::string leaf = {};
  wr::parallel how = wr::parallel::replicated;
};

// --order: in which order the tensors of a checkpoint are sent.
struct send_order {
  enum class kind { file, reverse, shuffle, scales_first, weights_first } how = kind::file;
  std::uint64_t seed = 0;  // of shuffle
};

// --backend: whose kernels read NVFP4 weights.
enum class backend { cutlass, trtllm };

struct options {
  std::vector<std::string> checkpoints = {};  // FIRST and each NEXT, as given
  std::string device = "auto";
  wr::tensor_parallel tp = {};
  std::vector<fusion> fuse = {};
  std::vector<split_rule> parallel = {};
  std::vector<std::string> keep_fp8 = {};  // leaf names of layers, after fusing
  reload::backend backend = backend::cutlass;
  std::optional<send_order> order = {};           // none: a feed's, or the file's
  std::optional<std::int64_t> bucket_bytes = {};  // none: a feed's, or every tensor comes whole
  wr::update_mode mode = wr::update_mode::direct;
  std::optional<std::int64_t> budget_bytes = {};  // layerwise and staged; none: what it takes
  wr::undo_mode undo = wr::undo_mode::none;
  bool partial = false;           // each NEXT declares the names that it holds
  std::optional<std::string> dump = {};
  bool json = false;
  bool audit = true;

  wr::parallel split_of(std::string_view leaf) const {
    for (const split_rule& rule : parallel)
      if (rule.leaf == leaf) return rule.how;
    return wr::parallel::replicated;
  }
  // Whether tensors are sent one after the other: in an order or in buckets that were asked for, or so that a layer is
  // whole soon, since a budget has room for few that are not. Else a feed sends them, which is faster.
  bool sends_in_order() const {
    return order || bucket_bytes || (mode == wr::update_mode::layerwise && budget_bytes);
  }
  bool keeps_fp8(std::string_view leaf) const {
    return std::find(keep_fp8.begin(), keep_fp8.end(), leaf) != keep_fp8.end();
  }
};

// Puts what a refusal is about (a path, as given) in front of the tensor that it names.
inline wr::status within(std::string_view path, wr::status refused) {
  if (refused.ok()) return refused;
  refused.param = std::string(path) + (refused.param.empty() ? "" : ": ") + refused.param;
  return refused;
}

// A refusal of a checkpoint's tensor or module.
inline wr::status refuse_in(std::string_view path, std::string_view name, std::string expected, std::string got,
                            wr::error_code code = wr::error_code::bad_layout) {
  return within(path, wr::refuse(code, name, std::move(expected), std::move(got)));
}

}  // namespace reload
