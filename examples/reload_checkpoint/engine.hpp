#pragma once
// What stands for an inference engine: it owns the memory of its layers and knows where each tensor is.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "device_memory.hpp"
#include "layer.hpp"
#include "weight_memory.hpp"

namespace reload {

template <wr::executor Executor>
requires has_device_memory<Executor>
class engine {
 public:
  explicit engine(std::byte fill) : memory_(fill) {}
  engine(const engine&) = delete;  // the model's updates point to it
  engine& operator=(const engine&) = delete;

  // Allocates and registers the layers, and seals the model. `swaps`: in an arena with spare pages, for mode swap. A
  // refusal names the checkpoint module.
  wr::status build(std::span<const layer> layers, bool swaps = false) {
    std::vector<wr::layer_plan> plans(layers.size());
    for (std::size_t i = 0; i < layers.size(); ++i)
      if (wr::status refused = wr::plan_layer(layers[i].specs, layers[i].name, layers[i].sizes, plans[i]);
          !refused.ok())
        return refused;
    if (swaps)
      if (wr::status failed = use_arena(plans); !failed.ok()) return failed;
    for (std::size_t i = 0; i < layers.size(); ++i)
      if (wr::status refused = add(layers[i], plans[i]); !refused.ok()) return refused;
    return model_.seal();
  }

  wr::model<Executor>& model() { return model_; }

  // The engine's own table, for `start` and `audit`.
  wr::engine_addresses addresses() { return {.find = &engine::find, .context = this}; }

  // Of the second generation of pages; 0 without.
  std::int64_t spare_bytes() const { return memory_.spare_bytes(); }

 private:
  wr::status use_arena(std::span<const wr::layer_plan> plans) {
    std::int64_t bytes = 0;
    for (const wr::layer_plan& plan : plans)
      for (const wr::planned_param& param : plan.params)
        if (param.has_storage()) bytes += memory_.rounded(param.bytes());
    if (wr::status failed = memory_.use_arena(bytes); !failed.ok()) return failed;
    return model_.use(*memory_.arena());
  }

  wr::status add(const layer& next, const wr::layer_plan& plan) {
    std::vector<wr::storage> storages;
    for (const wr::planned_param& param : plan.params) {
      if (!param.has_storage()) continue;  // it lives in a derived one
      std::byte* data = nullptr;
      if (wr::status failed = memory_.allocate(param.bytes(), &data); !failed.ok()) return within(param.name, failed);
      storages.emplace_back(data);
      tensors_[param.name] = {.data = data, .type = param.spec.runtime, .extents = param.extents};
    }
    return model_.add(next.specs, next.name, next.sizes, storages);
  }

  static bool find(std::string_view name, wr::tensor_address* found, void* context) {
    const auto& tensors = static_cast<engine*>(context)->tensors_;
    const auto at = tensors.find(std::string(name));
    if (at != tensors.end()) *found = at->second;
    return at != tensors.end();
  }

  weight_memory<Executor> memory_;  // outlives the model
  wr::model<Executor> model_;
  std::unordered_map<std::string, wr::tensor_address> tensors_ = {};
};

}  // namespace reload
