// Host cost of `load` per whole tensor: 100,000 small tensors, by name and by id, in file order and shuffled.
// Prints nanoseconds a tensor and heap allocations during the loads.

#include <wreload/wreload.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace wr = wreload;

static std::size_t allocations = 0;
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  std::abort();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

int main() {
  constexpr int tensors = 100'000;
  constexpr std::int64_t elements = 16;
  std::vector<std::uint16_t> live(tensors * elements), sent(tensors * elements, 0x3F80);
  std::vector<std::string> names;
  wr::model<> model;
  for (int i = 0; i < tensors; ++i) {
    names.push_back("model.layers." + std::to_string(i / 1000) + ".mlp.experts." + std::to_string(i % 1000) +
                    ".input_layernorm.weight");
    const wr::status refused = model.add<wr::Plain>(
        names.back(), wr::extents::tensor(names.back(), {elements}, wr::dtype::bf16), live.data() + i * elements);
    if (!refused.ok()) return std::printf("%s\n", refused.message().c_str()), 1;
  }
  if (!model.seal().ok()) return 1;
  std::vector<wr::tensor_id> ids;
  for (const std::string& name : names) ids.push_back(model.find(name));

  const auto run = [&](const char* what, const std::vector<int>& order, bool by_id) {
    std::vector<double> rounds;
    std::size_t heap = 0;
    for (int round = 0; round < 7; ++round) {
      wr::status error;
      auto update = model.start({}, &error);
      const std::size_t before = allocations;
      const double began = wr::detail::seconds_now();
      for (const int i : order) {
        const wr::tensor_ref tensor{sent.data() + i * elements, wr::dtype::bf16, {elements}};
        error = by_id ? update.load(ids[static_cast<std::size_t>(i)], tensor)
                      : update.load(names[static_cast<std::size_t>(i)], tensor);
        if (!error.ok()) std::abort();
      }
      rounds.push_back((wr::detail::seconds_now() - began) / tensors * 1e9);
      heap = allocations - before;
      if (!update.finish().ok()) std::abort();
    }
    std::sort(rounds.begin(), rounds.end());
    std::printf("%-28s %6.0f ns a tensor   %zu allocations\n", what, rounds[rounds.size() / 2], heap);
  };
  std::vector<int> order(tensors);
  std::iota(order.begin(), order.end(), 0);
  run("by name, file order", order, false);
  run("by id, file order", order, true);
  std::shuffle(order.begin(), order.end(), std::mt19937(7));
  run("by name, shuffled", order, false);
  run("by id, shuffled", order, true);
  return 0;
}
