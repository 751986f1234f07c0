#pragma once
/// `aside_memory`: the memory that an update may keep things aside in: lent, taken at `start`, or as much as it takes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../core/on_use.hpp"
#include "../core/status.hpp"
#include "../executor/executor.hpp"
#include "options.hpp"
#include "staging_space.hpp"

namespace wreload::detail {

/// Blocks behind a `staging_space`; usable on every lane. Under the model's lock.
template <executor Executor>
class aside_memory {
 public:
  aside_memory(Executor& run, staging_space& space, const staging_memory& given) : run_(run), space_(space), given_(given) {}

  /// Lent memory, or the budget.
  status open() {
    if (given_.lent.empty()) return is_unlimited() ? status{} : grow(given_.budget_bytes);
    space_.add(given_.lent.data(), static_cast<std::int64_t>(given_.lent.size()));
    return {};
  }
  /// Room for another block of the executor's that goes back with these; null until the caller takes one.
  std::byte*& own() { return blocks_.emplace_back(nullptr); }
  bool or_direct() const { return given_.or_direct; }

  /// Sets `memory` to null, and succeeds, where there is no room.
  status take(std::int64_t bytes, std::byte** memory) {
    *memory = space_.take(bytes);
    if (*memory != nullptr || !given_.lent.empty() || !is_unlimited()) return {};
    if (status failed = grow(std::max(space_.rounded(bytes), least_growth_bytes)); !failed.ok()) return failed;
    *memory = space_.take(bytes);
    return {};
  }

  status over_budget(std::string_view name, std::int64_t bytes) const {
    return refuse(error_code::over_budget, name, std::to_string(bytes) + " bytes in one piece aside",
                  std::to_string(space_.size() - space_.used()) + " free of " + std::to_string(space_.size()));
  }

  /// Gives the blocks back; `is_stopped`: nothing that uses them can still run. (Else the executor does, at its end.)
  void release(bool is_stopped) {
    for (std::byte* block : blocks_)
      if (is_stopped && block != nullptr) run_.release(block);
    blocks_.clear();
  }

 private:
  static constexpr std::int64_t least_growth_bytes = std::int64_t{64} << 20;

  bool is_unlimited() const { return given_.budget_bytes == staging_memory::no_limit; }

  status grow(std::int64_t bytes) {
    std::byte*& memory = own();
    if (status failed = run_.allocate(bytes, given_.where, &memory); !failed.ok()) return failed;
    space_.add(memory, bytes);
    return {};
  }

  Executor& run_;
  staging_space& space_;
  staging_memory given_;
  dependent<std::vector<std::byte*>, Executor> blocks_ = {};
};

}  // namespace wreload::detail
