#pragma once
// FIRST's tensors by the layer that they belong to: one module, modules that are fused, or experts that are stacked.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <wreload/source/checkpoint.hpp>

#include "formats.hpp"
#include "names.hpp"
#include "options.hpp"

namespace reload {

struct group {
  std::string name = {};                  // of the layer
  const fusion* rule = nullptr;
  bool has_module = false;
  bool stacked = false;                   // experts
  stored_format format = {};              // of any member
  std::vector<std::string> modules = {};  // in row order; stacked: behind the expert, as FIRST names them
  std::vector<std::string> params = {};   // that any member has; stacked: with their module, `gate_proj.weight`
  std::int64_t last_expert = -1;

  std::string_view leaf() const { return has_module ? leaf_of(name) : std::string_view(); }
  bool has_param(std::string_view param) const { return std::find(params.begin(), params.end(), param) != params.end(); }
  bool has_expert_module(std::string_view module) const {
    return std::find(modules.begin(), modules.end(), module) != modules.end();
  }
};

// In the order in which FIRST names them.
class model_groups {
 public:
  // Refuses, by the tensor's name, an expert's number that is none.
  wr::status collect(const options& asked, const wr::checkpoint& first, const formats& stored) {
    for (const wr::checkpoint_tensor& found : first.tensors()) {
      const expert_name expert(found.name);
      if (!expert.is_expert()) {
        collect_module(asked, stored, tensor_name(found.name));
        continue;
      }
      const std::optional<std::int64_t> index = expert.index();
      if (!index)
        return refuse_in(first.path(), found.name, "the number of an expert", std::string(expert.number));
      collect_expert(stored, expert, *index, tensor_name(found.name).module);
    }
    return {};
  }

  const std::vector<group>& all() const { return groups_; }

  // Rules that met no module: a typing error, or a rule for another model.
  std::vector<std::string> unused_rules(const options& asked) const {
    std::vector<std::string> unused;
    const auto none = [&](auto&& is_met) { return std::none_of(groups_.begin(), groups_.end(), is_met); };
    const auto warn_of_leaf = [&](const char* option, const std::string& leaf) {
      if (none([&](const group& one) { return one.leaf() == leaf; }))
        unused.push_back(option + leaf + ": the model has no layer of this name");
    };
    for (const fusion& rule : asked.fuse)
      if (none([&](const group& one) { return one.rule == &rule; }))
        unused.push_back("--fuse " + rule.name + ": the model has none of its modules");
    for (const split_rule& rule : asked.parallel) warn_of_leaf("--parallel ", rule.leaf);
    for (const std::string& leaf : asked.keep_fp8) warn_of_leaf("--keep-fp8 ", leaf);
    return unused;
  }

 private:
  static const fusion* rule_of(const options& asked, std::string_view leaf) {
    for (const fusion& rule : asked.fuse)
      if (std::find(rule.modules.begin(), rule.modules.end(), leaf) != rule.modules.end()) return &rule;
    return nullptr;
  }

  // The group of this key; `is_new` where it is made now.
  group& find_or_make(const std::string& key, bool& is_new) {
    const auto [at, made] = index_.try_emplace(key, groups_.size());
    is_new = made;
    if (made) groups_.emplace_back();
    return groups_[at->second];
  }

  void collect_module(const options& asked, const formats& stored, const tensor_name& name) {
    const fusion* rule = name.has_module ? rule_of(asked, leaf_of(name.module)) : nullptr;
    const std::string owner = rule != nullptr  ? sibling(name.module, rule->name)
                              : name.has_module ? std::string(name.module) : std::string(name.param);
    const std::string key = (rule != nullptr ? "fused " : name.has_module ? "module " : "tensor ") + owner;
    bool is_new = false;
    group& one = find_or_make(key, is_new);
    if (is_new) {
      one = {.name = owner, .rule = rule, .has_module = name.has_module};
      if (rule == nullptr) one.modules.emplace_back(name.module);
      else for (const std::string& leaf : rule->modules) one.modules.push_back(sibling(name.module, leaf));
    }
    if (name.has_module) one.format = std::max(one.format, stored.of(name.module));
    note_param(one, key, std::string(name.param));
  }

  void collect_expert(const formats& stored, const expert_name& expert, std::int64_t index, std::string_view module) {
    const std::string key = "experts " + std::string(expert.layer);
    bool is_new = false;
    group& one = find_or_make(key, is_new);
    if (is_new) one = {.name = std::string(expert.layer), .has_module = true, .stacked = true};
    one.last_expert = std::max(one.last_expert, index);
    one.format = std::max(one.format, stored.of(module));
    if (!one.has_expert_module(expert.module)) one.modules.emplace_back(expert.module);
    note_param(one, key, join(expert.module, expert.param));
  }

  void note_param(group& one, const std::string& key, std::string param) {
    if (seen_.insert(key + "." + param).second) one.params.push_back(std::move(param));
  }

  std::vector<group> groups_ = {};
  std::unordered_map<std::string, std::size_t> index_ = {};  // of groups_
  std::unordered_set<std::string> seen_ = {};                // params of groups
};

}  // namespace reload
