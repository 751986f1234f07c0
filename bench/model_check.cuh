#pragma once
/// What a loaded model has to hold, from the checkpoint tensors and a layer's extents alone: slices cut, stacked,
/// swizzled and dequantised by formulas written here, which share nothing with the library.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include <wreload/wreload.cuh>

#include "harness.cuh"
#include "plain_dequant.cuh"

namespace bench {

namespace wr = wreload;

/// How a slice of a checkpoint tensor is kept.
enum class kept_as { bytes, widened, dequantised, swizzled };

/// A slice of a checkpoint tensor and where it has to be. `cols` counts stored elements.
struct slice_check {
  const std::uint8_t* source = nullptr;   // (rows, cols), its first needed element
  const float* scales = nullptr;          // dequantised: (ceil(tensor rows / 128), scale_cols), of the whole tensor
  const std::uint8_t* runtime = nullptr;  // (rows, cols); swizzled: the first byte of the slot
  std::int64_t source_stride = 0, runtime_stride = 0;  // bytes
  std::uint32_t rows = 0, cols = 0;
  std::uint32_t row_begin = 0, col_begin = 0;  ///< in the checkpoint tensor
  std::uint32_t scale_cols = 0;
  std::uint32_t slot_row = 0;  ///< swizzled: where in the slot the slice begins
  kept_as how = kept_as::bytes;
};

namespace {

__device__ bool is_vector(std::uint64_t value) { return value % 16 == 0; }

/// Wrong elements, or vectors of 16 bytes; `blocks_each` blocks take turns on a slice, a row's threads side by side.
__global__ void __launch_bounds__(256)
    count_wrong_slices(const slice_check* all, unsigned blocks_each, unsigned long long* wrong) {
  const slice_check each = all[blockIdx.x / blocks_each];
  const std::uint32_t first = blockIdx.x % blocks_each * blockDim.x + threadIdx.x, stride = blocks_each * blockDim.x;
  const auto for_each = [&](std::uint32_t in_a_row, auto&& is_wrong) {
    unsigned long long mine = 0;
    for (std::uint32_t i = first; i < each.rows * in_a_row; i += stride) {
      const std::uint32_t row = i / in_a_row, at = i % in_a_row;
      mine += is_wrong(each.source + row * each.source_stride, each.runtime + row * each.runtime_stride, row, at);
    }
    if (mine != 0) atomicAdd(wrong, mine);
  };
  using bytes = const std::uint8_t*;
  if (each.how == kept_as::bytes) {
    if (is_vector(each.cols) && is_vector(each.source_stride) && is_vector(each.runtime_stride) &&
        is_vector(reinterpret_cast<std::uintptr_t>(each.source) | reinterpret_cast<std::uintptr_t>(each.runtime)))
      for_each(each.cols / 16, [](bytes from, bytes to, std::uint32_t, std::uint32_t at) {
        const uint4 a = reinterpret_cast<const uint4*>(from)[at], b = reinterpret_cast<const uint4*>(to)[at];
        return a.x != b.x || a.y != b.y || a.z != b.z || a.w != b.w;
      });
    else
      for_each(each.cols, [](bytes from, bytes to, std::uint32_t, std::uint32_t at) { return from[at] != to[at]; });
  } else if (each.how == kept_as::widened) {
    for_each(each.cols, [](bytes from, bytes to, std::uint32_t, std::uint32_t at) {
      return static_cast<std::uint32_t>(reinterpret_cast<const std::uint16_t*>(from)[at]) << 16 !=
             reinterpret_cast<const std::uint32_t*>(to)[at];
    });
  } else if (each.how == kept_as::dequantised) {  // four elements, in one block: columns begin at multiples of 4
    for_each(each.cols / 4, [&](bytes from, bytes to, std::uint32_t row, std::uint32_t at) {
      const std::uint32_t codes = reinterpret_cast<const std::uint32_t*>(from)[at];
      const ushort4 found = reinterpret_cast<const ushort4*>(to)[at];
      const float scale = each.scales[(each.row_begin + row) / 128 * each.scale_cols + (each.col_begin + 4 * at) / 128];
      const auto is_wrong = [&](unsigned i, std::uint16_t value) {
        return value != plain_dequant(static_cast<std::uint8_t>(codes >> 8 * i), scale);
      };
      return is_wrong(0, found.x) + is_wrong(1, found.y) + is_wrong(2, found.z) + is_wrong(3, found.w);
    });
  } else {  // tiles of 128 rows and 4 columns, a row's 4 scales side by side, rows 32 apart next to one another
    for_each(each.cols, [&](bytes from, bytes, std::uint32_t row, std::uint32_t at) {
      const std::uint32_t r = each.slot_row + row;
      const std::uint32_t place = (r / 128 * (each.cols / 4) + at / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + at % 4;
      return each.runtime[place] != from[at];
    });
  }
}

}  // namespace

/// A checkpoint tensor on the device; `value` of a scalar.
struct sent_tensor {
  const std::uint8_t* data = nullptr;
  wr::dtype type = wr::dtype::none;
  wr::shape extents = {};
  float value = 0;
};

/// What a model has to hold. The bytes that it moves are counted on the way.
class model_check {
 public:
  explicit model_check(const std::unordered_map<std::string, sent_tensor>& sent) : sent_(sent) {}
  model_check(const model_check&) = delete;  // owns device memory
  model_check& operator=(const model_check&) = delete;
  ~model_check() { (void)cudaFree(table_); }

  /// A layer of one of the five layouts of models.hpp, with the storage it was registered with.
  template <class Layout>
  void add(const std::string& name, const wr::extents& sizes, const std::vector<wr::storage_need>& needs,
           const std::vector<wr::storage>& places) {
    const auto place = [&](std::string_view param) {
      for (std::size_t i = 0; i < needs.size(); ++i)
        if (needs[i].name == (param.empty() ? name : name + "." + std::string(param)))
          return static_cast<const std::uint8_t*>(places[i].data);
      return fail(name + ": no param " + std::string(param));
    };
    for (const wr::storage_need& need : needs)
      if (!need.retired) live_bytes_ += need.bytes;
    constexpr std::int64_t one_slot = 0;
    if constexpr (std::is_same_v<Layout, wr::Plain>) {
      std::int64_t row = 0;
      for (const wr::shard& part : sizes.shards) {
        const sent_tensor& from = find(part.module);
        row += expect(from, from.type == sizes.type ? kept_as::bytes : kept_as::widened, part, sizes, place({}), row);
      }
    } else if constexpr (std::is_same_v<Layout, wr::Fp8DequantLinear>) {
      std::int64_t row = 0;
      for (const wr::shard& part : sizes.shards) row += dequantised(part.module, part, sizes, place("weight"), row);
    } else if constexpr (std::is_same_v<Layout, wr::Fp8DequantMoe>) {
      std::int64_t w13 = 0, w2 = 0;
      for (std::int64_t expert = 0; expert < sizes.experts->total; ++expert) {
        const std::string of = name + "." + std::to_string(expert) + ".";
        for (int i = 0; i < 2; ++i)
          w13 += dequantised(of + sizes.shards[i].module, sizes.shards[i], sizes, place("w13_weight"), w13);
        w2 += dequantised(of + "down_proj", sizes.shards[2], sizes, place("w2_weight"), w2);
      }
    } else if constexpr (std::is_same_v<Layout, wr::Nvfp4Linear>) {
      std::vector<float> inputs;
      float weight_scale = 0;
      std::int64_t row = 0;
      for (const wr::shard& part : sizes.shards) {
        packed(part.module, part, sizes, place("weight"), place("weight_scale_interleaved"), one_slot, row);
        row += local_rows(part, sizes);
        inputs.push_back(scalar(part.module + ".input_scale"));
        weight_scale = std::max(weight_scale, scalar(part.module + ".weight_scale_2"));
      }
      const float input = *std::max_element(inputs.begin(), inputs.end());
      expect_floats(place("input_scale"), inputs);
      expect_floats(place("alpha"), {input * weight_scale});
      expect_floats(place("input_scale_inv"), {1.0F / input});
    } else {
      static_assert(std::is_same_v<Layout, wr::Nvfp4Moe>);
      const wr::shard &gate = sizes.shards[0], &up = sizes.shards[1], &down = sizes.shards[2];
      std::vector<float> w13_inputs, w2_inputs, gates, ups, downs;
      for (std::int64_t expert = 0; expert < sizes.experts->total; ++expert) {
        const std::string of = name + "." + std::to_string(expert) + ".";
        const std::int64_t half = local_rows(up, sizes);  // up above gate
        packed(of + "up_proj", up, sizes, place("w13_weight"), place("w13_blockscale_swizzled"), expert * 2 * half, 0);
        packed(of + "gate_proj", gate, sizes, place("w13_weight"), place("w13_blockscale_swizzled"), expert * 2 * half,
               half);
        packed(of + "down_proj", down, sizes, place("w2_weight"), place("w2_blockscale_swizzled"), expert * down.rows,
               0);
        w13_inputs.push_back(scalar(of + "gate_proj.input_scale"));
        w13_inputs.push_back(scalar(of + "up_proj.input_scale"));
        w2_inputs.push_back(scalar(of + "down_proj.input_scale"));
        gates.push_back(scalar(of + "gate_proj.weight_scale_2"));
        ups.push_back(scalar(of + "up_proj.weight_scale_2"));
        downs.push_back(scalar(of + "down_proj.weight_scale_2"));
      }
      const float w13 = *std::max_element(w13_inputs.begin(), w13_inputs.end());
      const float w2 = *std::max_element(w2_inputs.begin(), w2_inputs.end());
      for (float& each : gates) each *= w13;
      for (float& each : ups) each *= w13;
      for (float& each : downs) each *= w2;
      expect_floats(place("w13_input_scale"), w13_inputs);
      expect_floats(place("w2_input_scale"), w2_inputs);
      expect_floats(place("g1_alphas"), gates);
      expect_floats(place("g1_alphas_up"), ups);
      expect_floats(place("g2_alphas"), downs);
      expect_floats(place("w13_input_scale_quant"), {1.0F / w13});
      expect_floats(place("w2_input_scale_quant"), {1.0F / w2});
    }
  }

  /// Bytes that landings read and write, codes still as codes; elements that are dequantised.
  std::int64_t landed_bytes() const { return landed_bytes_; }
  std::int64_t dequantised_elements() const { return dequantised_; }

  /// Uploads what was added. Ends the program where it is not every byte that kernels read.
  void seal() {
    if (checked_bytes_ != live_bytes_)
      fail(std::to_string(checked_bytes_) + " bytes would be checked, of " + std::to_string(live_bytes_));
    table_ = device_array<slice_check>(static_cast<std::int64_t>(slices_.size()));
    BENCH_CUDA(cudaMemcpy(table_, slices_.data(), slices_.size() * sizeof(slice_check), cudaMemcpyHostToDevice));
  }
  /// Adds what differs to a device counter, and returns the wrong floats. Waits.
  std::int64_t run(unsigned long long* wrong, cudaStream_t stream) const {
    constexpr unsigned blocks_each = 16;
    count_wrong_slices<<<static_cast<unsigned>(slices_.size()) * blocks_each, 256, 0, stream>>>(table_, blocks_each,
                                                                                                wrong);
    BENCH_CUDA(cudaGetLastError());
    BENCH_CUDA(cudaStreamSynchronize(stream));
    std::int64_t wrong_floats = 0;
    std::vector<float> found;
    for (const floats& each : floats_) {
      found.resize(each.expected.size());
      BENCH_CUDA(cudaMemcpy(found.data(), each.data, found.size() * sizeof(float), cudaMemcpyDeviceToHost));
      for (std::size_t i = 0; i < found.size(); ++i) wrong_floats += !(found[i] == each.expected[i]);
    }
    return wrong_floats;
  }

 private:
  struct floats {
    const std::uint8_t* data = nullptr;
    std::vector<float> expected = {};
  };

  [[noreturn]] static const std::uint8_t* fail(const std::string& why) {
    std::fprintf(stderr, "%s\n", why.c_str());
    std::exit(1);
  }
  const sent_tensor& find(const std::string& name) const {
    const auto found = sent_.find(name);
    if (found == sent_.end()) fail(name + ": not in the checkpoint");
    return found->second;
  }
  float scalar(const std::string& name) {
    landed_bytes_ += 8;
    return find(name).value;
  }
  static std::int64_t local_rows(const wr::shard& part, const wr::extents& sizes) {
    return part.split.value_or(sizes.split) == wr::parallel::column ? part.rows / sizes.tp.size : part.rows;
  }
  void expect_floats(const std::uint8_t* data, const std::vector<float>& values) {
    checked_bytes_ += static_cast<std::int64_t>(values.size() * sizeof(float));
    floats_.push_back({data, values});
  }

  /// This rank's slice of a tensor goes to the rows from `local_row` on (swizzled: `slot` bytes further and
  /// `local_row` in the slot). Returns its rows.
  std::int64_t expect(const sent_tensor& from, kept_as how, const wr::shard& part, const wr::extents& sizes,
                      const std::uint8_t* first, std::int64_t local_row, const sent_tensor* scale = nullptr) {
    const wr::parallel split = part.split.value_or(sizes.split);
    const std::int64_t stored = wr::bytes_of(from.type), whole_cols = from.extents.cols();
    const bool by_row = split == wr::parallel::column, by_col = split == wr::parallel::row;
    const std::int64_t rows = by_row ? from.extents.rows() / sizes.tp.size : from.extents.rows();
    const std::int64_t cols = by_col ? whole_cols / sizes.tp.size : whole_cols;
    const std::int64_t row_begin = by_row ? sizes.tp.rank * rows : 0, col_begin = by_col ? sizes.tp.rank * cols : 0;
    const std::int64_t kept = how == kept_as::widened ? 4 : how == kept_as::dequantised ? 2 : stored;
    slice_check made{.source = from.data + (row_begin * whole_cols + col_begin) * stored,
                     .runtime = first,
                     .source_stride = whole_cols * stored,
                     .runtime_stride = cols * kept,
                     .rows = static_cast<std::uint32_t>(rows),
                     .cols = static_cast<std::uint32_t>(how == kept_as::bytes ? cols * stored : cols),
                     .row_begin = static_cast<std::uint32_t>(row_begin),
                     .col_begin = static_cast<std::uint32_t>(col_begin),
                     .how = how};
    if (how == kept_as::swizzled)
      made.slot_row = static_cast<std::uint32_t>(local_row);
    else
      made.runtime += local_row * made.runtime_stride;
    if (rows * std::int64_t{made.cols} >= std::int64_t{1} << 31 || (how == kept_as::dequantised && cols % 4 != 0) ||
        (how == kept_as::swizzled && cols % 4 != 0))
      fail("a slice of " + std::to_string(rows) + " x " + std::to_string(cols) + ", which the check is not made for");
    checked_bytes_ += rows * cols * kept;
    landed_bytes_ += rows * cols * (stored + (how == kept_as::widened ? 4 : stored));
    if (scale != nullptr) {
      made.scales = reinterpret_cast<const float*>(scale->data);
      made.scale_cols = static_cast<std::uint32_t>(scale->extents.cols());
      const auto blocks = [](std::int64_t begin, std::int64_t count) {
        return (begin + count - 1) / 128 - begin / 128 + 1;
      };
      landed_bytes_ += blocks(row_begin, rows) * blocks(col_begin, cols) * 8;
      dequantised_ += rows * cols;
    }
    slices_.push_back(made);
    return rows;
  }
  std::int64_t dequantised(const std::string& module, const wr::shard& part, const wr::extents& sizes,
                           const std::uint8_t* first, std::int64_t local_row) {
    return expect(find(module + ".weight"), kept_as::dequantised, part, sizes, first, local_row,
                  &find(module + ".weight_scale_inv"));
  }
  /// NVFP4 codes, and their scales in a slot that begins at row `slot` of the weight.
  void packed(const std::string& module, const wr::shard& part, const wr::extents& sizes, const std::uint8_t* codes,
              const std::uint8_t* scales, std::int64_t slot, std::int64_t row) {
    const sent_tensor& grid = find(module + ".weight_scale");
    const bool by_col = part.split.value_or(sizes.split) == wr::parallel::row;
    const std::int64_t grid_cols = by_col ? grid.extents.cols() / sizes.tp.size : grid.extents.cols();
    (void)expect(find(module + ".weight"), kept_as::bytes, part, sizes, codes, slot + row);
    (void)expect(grid, kept_as::swizzled, part, sizes, scales + slot * grid_cols, row);
  }

  const std::unordered_map<std::string, sent_tensor>& sent_;
  std::vector<slice_check> slices_ = {};
  std::vector<floats> floats_ = {};
  slice_check* table_ = nullptr;
  std::int64_t live_bytes_ = 0, checked_bytes_ = 0, landed_bytes_ = 0, dequantised_ = 0;
};

}  // namespace bench
