#pragma once
/// `host_combine`: computes scalars in plain memory.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../core/job.hpp"
#include "../numerics/codecs.hpp"
#include "../numerics/combine.hpp"
#include "../numerics/dequant.hpp"

namespace wreload::detail {

template <class Use>
class host_combine {
 public:
  static void compute(const combine_job& job) {
    float greatest[std::extent_v<decltype(combine_job::factors)>] = {};
    for (std::int64_t i = 0; i < job.count; ++i) {
      float product = 1;
      for (std::int32_t f = 0; f < job.factor_count; ++f) {
        // One maximum for all results (over all experts, say) is found once.
        if (i == 0 || job.factors[f].stride_bytes != 0) greatest[f] = greatest_of(job.factors[f], i);
        product = f == 0 ? greatest[f] : dequant_product(product, greatest[f]);
      }
      const codec<fp32>::bits result = codec<fp32>::encode(job.inverted ? reciprocal(product) : product);
      std::memcpy(job.results + i * static_cast<std::int64_t>(sizeof result), &result, sizeof result);
    }
  }

 private:
  static float greatest_of(const combine_factor& factor, std::int64_t index) {
    float greatest = 0;
    for (std::int64_t i = 0; i < factor.count; ++i) {
      float value = 0;
      std::memcpy(&value, factor.first + index * factor.stride_bytes + i * factor.across_bytes, sizeof value);
      if (factor.inverted) value = reciprocal(value);
      greatest = i == 0 ? value : maximum(greatest, value);
    }
    return greatest;
  }
};

}  // namespace wreload::detail
