#pragma once
// From the tensors of FIRST to layers: fused, stacked, cut, and with a layout each.

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <wreload/source/checkpoint.hpp>

#include "block_sizes.hpp"
#include "experts.hpp"
#include "formats.hpp"
#include "groups.hpp"
#include "layer.hpp"
#include "layouts.hpp"
#include "linears.hpp"

namespace reload {

class layer_builder {
 public:
  layer_builder(const options& asked, const wr::checkpoint& first, const block_layouts& blocks)
      : asked_(asked), first_(first), blocks_(blocks) {}

  // Adds the layers of a group. Refuses by module or tensor what cannot be fused or stacked.
  wr::status add(const group& one, std::vector<layer>& layers) const {
    const layout_specs specs = choose_layout(one, asked_, blocks_);
    if (one.stacked) {
      layer next;
      wr::status refused = expert_stack(first_, one, specs).build(asked_.split_of(one.leaf()), next);
      if (refused.ok()) push(one, std::move(next), layers);
      return refused;
    }
    for (const std::string& param : one.params) {
      const bool quantised = reader_of(specs, {}, param) != nullptr;
      if (quantised && param != "weight") continue;  // comes with its weight's layer
      fused_tensors members;
      if (wr::status refused = find_fused(first_, one, param, members); !refused.ok()) return refused;
      layer next;
      next.specs = quantised ? specs : layout_specs(wr::Plain::specs);
      next.name = quantised || !one.has_module ? one.name : join(one.name, param);
      wr::status refused = quantised ? quantised_sizes(first_, one, specs, members, next.sizes)
                                     : plain_sizes(first_, members, next.sizes);
      if (!refused.ok()) return refused;
      push(one, std::move(next), layers);
    }
    return {};
  }

 private:
  void push(const group& one, layer&& next, std::vector<layer>& layers) const {
    next.sizes.split = asked_.split_of(one.leaf());
    next.sizes.tp = asked_.tp;
    layers.push_back(std::move(next));
  }

  const options& asked_;
  const wr::checkpoint& first_;
  const block_layouts& blocks_;
};

// Chooses layouts from the headers of all checkpoints for the tensors of the first.
inline wr::status choose_layers(std::span<const wr::checkpoint> checkpoints, const options& asked,
                                std::vector<layer>& layers, std::vector<std::string>& warnings) {
  const wr::checkpoint& first = checkpoints.front();
  block_layouts blocks;
  if (wr::status refused = choose_block_layouts(checkpoints, blocks); !refused.ok()) return refused;
  formats stored;
  if (wr::status refused = stored.read(checkpoints); !refused.ok()) return refused;
  model_groups groups;
  if (wr::status refused = groups.collect(asked, first, stored); !refused.ok()) return refused;
  const layer_builder builder(asked, first, blocks);
  for (const group& one : groups.all())
    if (wr::status refused = builder.add(one, layers); !refused.ok()) return refused;
  warnings = groups.unused_rules(asked);
  return {};
}

}  // namespace reload
