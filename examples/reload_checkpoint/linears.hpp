#pragma once
// The sizes of layers that are not stacked, from the shapes of FIRST's tensors.

#include <cstddef>
#include <string>
#include <vector>

#include <wreload/source/checkpoint.hpp>

#include "groups.hpp"
#include "layer.hpp"
#include "layouts.hpp"

namespace reload {

using fused_tensors = std::vector<const wr::checkpoint_tensor*>;  // in row order

// One param of every module of a group; refuses by name what FIRST lacks.
inline wr::status find_fused(const wr::checkpoint& first, const group& one, const std::string& param,
                             fused_tensors& members) {
  for (const std::string& module : one.modules) {
    const std::string name = one.has_module ? join(module, param) : param;
    members.push_back(first.find(name));
    if (members.back() == nullptr)
      return refuse_in(first.path(), name, "a tensor to fuse into " + join(one.name, param), "nothing",
                       wr::error_code::incomplete);
  }
  return {};
}

// Of a layer with a quantised weight.
inline wr::status quantised_sizes(const wr::checkpoint& first, const group& one, layout_specs specs,
                                  const fused_tensors& weights, wr::extents& sizes) {
  const wr::dtype_set accepted = reader_of(specs, {}, "weight")->accepted;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const wr::tensor_ref& tensor = weights[i]->tensor;
    const auto refused = [&](std::string expected) {
      return refuse_in(first.path(), weights[i]->name, std::move(expected), to_string(tensor));
    };
    if (!accepted.contains(tensor.type)) return refused(to_string(accepted) + " in the layer " + one.name);
    if (tensor.extents.rank() != 2) return refused("2 dims, as a quantised weight has");
    if (i == 0) sizes.inner = {tensor.extents[1]};
    if (tensor.extents[1] != sizes.inner[0])
      return refused(std::to_string(sizes.inner[0]) + " columns as " + std::string(weights[0]->name));
    sizes.shards.push_back({.module = one.modules[i], .rows = tensor.extents[0]});
  }
  return {};
}

// Of tensors that run as they are stored.
inline wr::status plain_sizes(const wr::checkpoint& first, const fused_tensors& members, wr::extents& sizes) {
  const wr::tensor_ref& model = members[0]->tensor;
  for (const wr::checkpoint_tensor* member : members) {
    const wr::tensor_ref& tensor = member->tensor;
    const wr::extents own = wr::extents::tensor(std::string(member->name), tensor.extents, tensor.type);
    if (member == members[0]) {
      sizes = own;
      sizes.shards.clear();
    }
    if (own.type != model.type || !(own.inner == sizes.inner))
      return refuse_in(first.path(), member->name,
                       "the dtype and further dims of " + std::string(members[0]->name) + ", " + to_string(model),
                       to_string(tensor));
    sizes.scalar &= own.scalar;
    sizes.shards.push_back(own.shards[0]);
    if (own.scalar) sizes.shards.back().split = wr::parallel::replicated;  // there is no dim to cut
  }
  return {};
}

}  // namespace reload
