#pragma once
// How the modules are stored, in any of the checkpoints: block FP8, NVFP4, or as they run.

#include <span>
#include <string>
#include <string_view>
#include <unordered_set>

#include <wreload/source/checkpoint.hpp>

#include "names.hpp"
#include "options.hpp"

namespace reload {

// In order of precedence for modules that share a layer.
enum class stored_format { plain, block_fp8, nvfp4 };

class formats {
 public:
  // Looks at the headers of all checkpoints. Refuses by path and name what cannot be loaded from any of them.
  wr::status read(std::span<const wr::checkpoint> checkpoints) {
    checkpoints_ = checkpoints;
    for (const wr::checkpoint& file : checkpoints)
      for (const wr::checkpoint_tensor& found : file.tensors()) recognise(found);
    for (const wr::checkpoint& file : checkpoints)
      for (const wr::checkpoint_tensor& found : file.tensors())
        if (wr::status refused = check(file, found); !refused.ok()) return refused;
    return check_lone_scales();
  }

  stored_format of(std::string_view module) const {
    const std::string key(module);
    return nvfp4_.contains(key) ? stored_format::nvfp4 : fp8_.contains(key) ? stored_format::block_fp8
                                                                            : stored_format::plain;
  }

 private:
  template <class Predicate>
  bool anywhere(const std::string& name, Predicate&& good) const {
    for (const wr::checkpoint& file : checkpoints_)
      if (const wr::checkpoint_tensor* found = file.find(name); found != nullptr && good(found->tensor)) return true;
    return false;
  }

  // A 0-d or 1-d `weight_scale` is one per tensor or per row.
  bool has_block_scale(const std::string& module) const {
    return anywhere(join(module, "weight_scale_inv"), [](const wr::tensor_ref&) { return true; }) ||
           anywhere(join(module, "weight_scale"), [](const wr::tensor_ref& it) { return it.extents.rank() == 2; });
  }

  // One of the two is enough to know it; the other is then missing by name.
  bool has_nvfp4_scale(const std::string& module) const {
    return anywhere(join(module, "weight_scale"), [](const wr::tensor_ref& it) { return it.type == wr::dtype::fp8_e4m3; }) ||
           anywhere(join(module, "weight_scale_2"), [](const wr::tensor_ref&) { return true; });
  }

  void recognise(const wr::checkpoint_tensor& found) {
    const tensor_name name(found.name);
    if (!name.has_module || name.param != "weight") return;
    const std::string module(name.module);
    if (found.tensor.type == wr::dtype::fp8_e4m3 && has_block_scale(module)) fp8_.insert(module);
    if (found.tensor.type == wr::dtype::u8 && has_nvfp4_scale(module)) nvfp4_.insert(module);
  }

  wr::status check(const wr::checkpoint& file, const wr::checkpoint_tensor& found) const {
    const tensor_name name(found.name);
    const wr::dtype type = found.tensor.type;
    const auto refused = [&](const char* expected, const char* more = "") {
      return refuse_in(file.path(), found.name, expected, to_string(found.tensor) + more);
    };
    const bool is_weight = name.has_module && name.param == "weight";
    const stored_format stored = name.has_module ? of(name.module) : stored_format::plain;
    if (is_weight && stored == stored_format::nvfp4 && type != wr::dtype::u8)
      return refused("U8, as NVFP4 weights are in all checkpoints or in none");
    if (is_weight && type == wr::dtype::fp8_e5m2) return refused("an FP8 weight in F8_E4M3");
    if (type != wr::dtype::fp8_e4m3) return {};
    if (stored == stored_format::nvfp4 && name.param == "weight_scale") return {};
    if (stored == stored_format::block_fp8) {
      if (is_weight && found.tensor.extents.rank() != 2) return refused("an FP8 weight of 2 dims");
      if (is_weight || is_block_scale_param(name.param)) return {};  // a scale of this dtype is refused when it comes
    }
    return refused(is_weight ? "an FP8 weight with its block scale (weight_scale_inv, or a 2-d weight_scale)"
                             : "F8_E4M3 only in a `.weight` with its block scale, or as the scale of an NVFP4 weight",
                   " with no block scale in any checkpoint");
  }

  // A scale that FIRST has without its weight scales nothing.
  wr::status check_lone_scales() const {
    const wr::checkpoint& first = checkpoints_.front();
    for (const wr::checkpoint_tensor& found : first.tensors()) {
      const tensor_name name(found.name);
      if (!name.has_module) continue;
      const bool is_scale_here = name.param == "weight_scale_inv" || (of(name.module) == stored_format::nvfp4 &&
                                                                      is_nvfp4_scale_param(name.param));
      const std::string weight = join(name.module, "weight");
      if (is_scale_here && first.find(weight) == nullptr)
        return refuse_in(first.path(), weight, "the weight of " + std::string(found.name), "nothing",
                         wr::error_code::incomplete);
    }
    return {};
  }

  std::span<const wr::checkpoint> checkpoints_ = {};
  std::unordered_set<std::string> fp8_ = {};
  std::unordered_set<std::string> nvfp4_ = {};
};

}  // namespace reload
