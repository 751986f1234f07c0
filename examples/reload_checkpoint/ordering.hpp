#pragma once
// The order in which a checkpoint's tensors are sent.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <wreload/source/checkpoint.hpp>

#include "names.hpp"
#include "options.hpp"

namespace reload {

// The next number of a fixed sequence (splitmix64): a seed means the same order everywhere.
inline std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t x = state += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

inline std::vector<wr::checkpoint_tensor> in_order(std::span<const wr::checkpoint_tensor> by_file,
                                                   const send_order& order) {
  std::vector<wr::checkpoint_tensor> tensors(by_file.begin(), by_file.end());
  const auto scale = [](const wr::checkpoint_tensor& it) { return is_scale(it.name); };
  switch (order.how) {
    case send_order::kind::file: break;
    case send_order::kind::reverse: std::reverse(tensors.begin(), tensors.end()); break;
    case send_order::kind::scales_first: std::stable_partition(tensors.begin(), tensors.end(), scale); break;
    case send_order::kind::weights_first:
      std::stable_partition(tensors.begin(), tensors.end(), std::not_fn(scale));
      break;
    case send_order::kind::shuffle: {
      std::uint64_t state = order.seed;
      for (std::size_t left = tensors.size(); left > 1; --left)
        std::swap(tensors[left - 1], tensors[next_random(state) % left]);
    }
  }
  return tensors;
}

}  // namespace reload
