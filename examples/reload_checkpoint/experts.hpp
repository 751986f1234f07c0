#pragma once
// Experts `P.experts.N.{gate,up,down}_proj` stacked into one layer `P.experts`.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <wreload/source/checkpoint.hpp>

#include "groups.hpp"
#include "layer.hpp"
#include "layouts.hpp"

namespace reload {

class expert_stack {
 public:
  expert_stack(const wr::checkpoint& first, const group& one, layout_specs specs)
      : first_(first), one_(one), specs_(specs) {}

  // Refuses by name: a gap, a tensor that the layout does not read, and experts of other dtypes or shapes.
  wr::status build(wr::parallel how, layer& made) const {
    if (specs_.empty())
      return refuse_in(first_.path(), weight_name(0, "gate_proj"), "experts with a gate, unless they are NVFP4", "nothing",
                       wr::error_code::unsupported);
    if (how == wr::parallel::row)
      return refuse_in(first_.path(), one_.name, "--parallel experts=column or experts=replicated", "row");
    if (wr::status refused = check_params(); !refused.ok()) return refused;
    made.name = one_.name;
    made.specs = specs_;
    for (const std::string_view module : {"gate_proj", "up_proj", "down_proj"})
      if (module != "gate_proj" || one_.has_expert_module(module))
        if (wr::status refused = add_module(module, how, made.sizes); !refused.ok()) return refused;
    made.sizes.inner = {made.sizes.shards[0].cols};
    made.sizes.experts = wr::expert_slots::all(one_.last_expert + 1);
    return {};
  }

 private:
  std::string weight_name(std::int64_t expert, std::string_view module) const {
    return one_.name + "." + std::to_string(expert) + "." + std::string(module) + ".weight";
  }

  wr::status check_params() const {
    const auto is_read = [this](std::string_view module, std::string_view param) {
      return reader_of(specs_, module, param) != nullptr;
    };
    bool all_read = true;
    for (const std::string& param : one_.params) {
      const std::size_t dot = param.find('.');
      all_read &= is_read(std::string_view(param).substr(0, dot), std::string_view(param).substr(dot + 1));
    }
    if (all_read) return {};
    for (const wr::checkpoint_tensor& found : first_.tensors()) {
      const expert_name name(found.name);
      if (name.layer == one_.name && !is_read(name.module, name.param))
        return refuse_in(first_.path(), found.name, "the weight of an expert, or its scale", to_string(found.tensor),
                         wr::error_code::unsupported);
    }
    return {};
  }

  // All experts have one shape: gate and up [I, H], down [H, I]; columns count bytes where two values are packed.
  wr::status add_module(std::string_view module, wr::parallel how, wr::extents& sizes) const {
    const wr::param_spec& spec = *reader_of(specs_, module, "weight");
    const std::int64_t packed = spec.stored == wr::dtype::fp4_e2m1x2 ? 2 : 1;
    wr::shape dims;
    for (std::int64_t expert = 0; expert <= one_.last_expert; ++expert) {
      const std::string name = weight_name(expert, module);
      const wr::checkpoint_tensor* found = first_.find(name);
      const auto refused = [&](const std::string& expected) {
        return refuse_in(first_.path(), name, expected, found == nullptr ? "nothing" : to_string(found->tensor),
                         found == nullptr ? wr::error_code::incomplete : wr::error_code::bad_layout);
      };
      if (found == nullptr)
        return refused("a weight of each of the " + std::to_string(one_.last_expert + 1) + " experts that " +
                       one_.name + " has");
      if (!spec.accepted.contains(found->tensor.type)) return refused(to_string(spec.accepted));
      if (found->tensor.extents.rank() != 2) return refused("2 dims, as an expert's weight has");
      if (expert == 0) {
        dims = found->tensor.extents;
        if (sizes.shards.empty()) continue;
        const wr::shard& upper = sizes.shards[0];
        const bool is_down = module == "down_proj";
        const wr::shape wanted = is_down ? wr::shape{upper.cols * packed, upper.rows / packed}
                                         : wr::shape{upper.rows, upper.cols};
        if (!(dims == wanted) || (is_down && upper.rows % packed != 0))
          return refused(to_string(wanted) + " beside " + weight_name(0, upper.module));
      } else if (!(found->tensor.extents == dims)) {
        return refused(to_string(dims) + " as " + weight_name(0, module));
      }
    }
    const wr::parallel cut = how == wr::parallel::column && module == "down_proj" ? wr::parallel::row : how;
    sizes.shards.push_back({.module = std::string(module), .rows = dims[0], .cols = dims[1], .split = cut});
    return {};
  }

  const wr::checkpoint& first_;
  const group& one_;
  layout_specs specs_;
};

}  // namespace reload
