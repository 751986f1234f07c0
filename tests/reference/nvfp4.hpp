#pragma once
/// The plain reference for NVFP4 layers: what each runtime tensor holds, byte by byte, from the formulas of formats.md
/// 2.1 to 2.3. No map, no landing, no plan of the library. Slow on purpose.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cold_load.hpp"

namespace reference::nvfp4 {

enum class backend { cutlass, trtllm };

/// A linear layer of fused modules, or stacked experts. Counts are values of the whole tensors.
struct layer {
  std::string name = {};
  backend to = backend::cutlass;
  bool compressed = false;  ///< compressed-tensors: global scales come as reciprocals
  std::vector<std::pair<std::string, std::int64_t>> modules = {};  ///< linear: module and rows
  std::int64_t hidden = 0;  ///< linear: columns
  bool stacked = false;
  bool gated = true;
  std::int64_t width = 0;  ///< of one expert: gate and up [width, hidden], down [hidden, width]
  std::int64_t experts_total = 0;
  std::vector<std::int64_t> experts_local = {};
  cut split = cut::whole;  ///< stacked and column: by width
  int tp_size = 1;
  int tp_rank = 0;

  std::string global_scale() const { return compressed ? "weight_global_scale" : "weight_scale_2"; }
  std::string input_scale() const { return compressed ? "input_global_scale" : "input_scale"; }
};

/// One checkpoint module.
struct module_of {
  std::string name = {};
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

inline std::string expert_module(const layer& of, std::int64_t expert, const std::string& module) {
  return of.name + "." + std::to_string(expert) + "." + module;
}
/// Modules of w13 in the order of their scalars.
inline std::vector<std::string> first_modules(const layer& of) {
  if (of.gated) return {"gate_proj", "up_proj"};
  return {"up_proj"};
}
inline std::vector<module_of> modules_of(const layer& of) {
  std::vector<module_of> all;
  for (const auto& [name, rows] : of.modules) all.push_back({name, rows, of.hidden});
  for (std::int64_t expert = 0; expert < of.experts_total; ++expert) {
    for (const std::string& module : first_modules(of))
      all.push_back({expert_module(of, expert, module), of.width, of.hidden});
    all.push_back({expert_module(of, expert, "down_proj"), of.hidden, of.width});
  }
  return all;
}

/// Bytes in rows and columns.
struct matrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::byte> bytes = {};

  matrix(std::int64_t of_rows, std::int64_t of_cols)
      : rows(of_rows), cols(of_cols), bytes(static_cast<std::size_t>(of_rows * of_cols)) {}
  std::byte& at(std::int64_t row, std::int64_t col) { return bytes[static_cast<std::size_t>(row * cols + col)]; }
  std::byte at(std::int64_t row, std::int64_t col) const { return bytes[static_cast<std::size_t>(row * cols + col)]; }
};

inline std::int64_t round_up(std::int64_t x, std::int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

inline matrix padded(const matrix& from, std::int64_t row_multiple, std::int64_t col_multiple) {
  matrix made(round_up(from.rows, row_multiple), round_up(from.cols, col_multiple));
  for (std::int64_t r = 0; r < from.rows; ++r)
    for (std::int64_t c = 0; c < from.cols; ++c) made.at(r, c) = from.at(r, c);
  return made;
}
/// new[i] = old[src(i)], in blocks of 32 rows.
inline matrix shuffled(const matrix& from) {
  matrix made(from.rows, from.cols);
  for (std::int64_t i = 0; i < from.rows; ++i)
    for (std::int64_t c = 0; c < from.cols; ++c)
      made.at(i, c) = from.at(32 * (i / 32) + 4 * (i % 8) + i % 32 / 8, c);
  return made;
}
/// Two halves interleaved and shuffled, by the composed table.
inline matrix gated(const matrix& from) {
  matrix made(from.rows, from.cols);
  const std::int64_t half = from.rows / 2;
  for (std::int64_t h = 0; h < 2; ++h)
    for (std::int64_t u = 0; u < half; ++u)
      for (std::int64_t c = 0; c < from.cols; ++c)
        made.at(32 * (u / 16) + 16 * (u % 2) + 8 * h + u % 16 / 2, c) = from.at(half * h + u, c);
  return made;
}
/// The 128x4 order of block scales, padded.
inline matrix swizzled(const matrix& from) {
  matrix made(round_up(from.rows, 128), round_up(from.cols, 4));
  const std::int64_t tiles = (from.cols + 3) / 4;
  for (std::int64_t r = 0; r < from.rows; ++r)
    for (std::int64_t c = 0; c < from.cols; ++c)
      made.bytes[static_cast<std::size_t>(r / 128 * tiles * 512 + c / 4 * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4)] =
          from.at(r, c);
  return made;
}

/// The kernel's order of one slot. Only w13 of gated experts has two halves.
inline matrix weight_order(const layer& of, const matrix& from, bool halves) {
  if (of.stacked && of.to == backend::cutlass) return from;
  if (of.stacked) return halves ? gated(from) : shuffled(from);
  return of.to == backend::cutlass ? padded(from, 32, 16) : shuffled(padded(from, 128, 32));
}
inline matrix scale_order(const layer& of, const matrix& from, bool halves) {
  if (of.to == backend::cutlass) return swizzled(from);
  return swizzled(halves ? gated(from) : shuffled(padded(from, 128, 4)));
}

/// This rank's part of a tensor, below what a slot has already. `rows` and `cols` say which dims are cut.
inline void append_part(matrix& slot, const tensor& from, const layer& of, bool rows, bool cols) {
  const std::int64_t all_cols = from.sizes[1];
  const std::int64_t height = from.sizes[0] / (rows ? of.tp_size : 1), width = all_cols / (cols ? of.tp_size : 1);
  const std::int64_t first_row = rows ? of.tp_rank * height : 0, first_col = cols ? of.tp_rank * width : 0;
  slot.rows += height;
  slot.cols = width;
  for (std::int64_t r = 0; r < height; ++r)
    for (std::int64_t c = 0; c < width; ++c)
      slot.bytes.push_back(from.bytes[static_cast<std::size_t>((first_row + r) * all_cols + first_col + c)]);
}

inline float scalar(const checkpoint& from, const std::string& name) {
  float value = 0;
  std::memcpy(&value, from.at(name).bytes.data(), sizeof value);
  return value;
}
inline float rounded(double value) {
  const std::uint32_t code = nearest(dtype::fp32, value);
  float result = 0;
  std::memcpy(&result, &code, sizeof result);
  return result;
}
inline float times(float a, float b) { return rounded(static_cast<double>(a) * static_cast<double>(b)); }
inline float inverse(float value) { return rounded(1.0 / static_cast<double>(value)); }
inline float greatest(const std::vector<float>& values) {
  float best = values.at(0);
  for (const float value : values) {
    if (std::isnan(value)) return rounded(std::numeric_limits<double>::quiet_NaN());
    if (value > best || (value == best && std::signbit(best))) best = value;
  }
  return best;
}

using image = std::map<std::string, std::vector<std::byte>>;  ///< runtime name -> dense bytes

inline void put_floats(image& out, const std::string& name, const std::vector<float>& values) {
  std::vector<std::byte>& bytes = out[name];
  bytes.resize(values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
}
inline void put_slot(image& out, const std::string& name, const matrix& slot) {
  std::vector<std::byte>& bytes = out[name];
  bytes.insert(bytes.end(), slot.bytes.begin(), slot.bytes.end());
}

inline void put_linear(image& out, const layer& of, const checkpoint& from) {
  matrix weight(0, 0), scale(0, 0);
  std::vector<float> inputs, globals, raw_inputs, raw_globals;
  for (const auto& [module, rows] : of.modules) {
    const bool by_rows = of.split == cut::column, by_cols = of.split == cut::row;
    append_part(weight, from.at(module + ".weight"), of, by_rows, by_cols);
    append_part(scale, from.at(module + ".weight_scale"), of, by_rows, by_cols);
    raw_inputs.push_back(scalar(from, module + "." + of.input_scale()));
    raw_globals.push_back(scalar(from, module + "." + of.global_scale()));
    inputs.push_back(of.compressed ? inverse(raw_inputs.back()) : raw_inputs.back());
    globals.push_back(of.compressed ? inverse(raw_globals.back()) : raw_globals.back());
  }
  put_slot(out, of.name + ".weight", weight_order(of, weight, false));
  put_slot(out, of.name + ".weight_scale_interleaved", scale_order(of, scale, false));
  put_floats(out, of.name + "." + of.global_scale(), raw_globals);
  put_floats(out, of.name + "." + of.input_scale(), raw_inputs);
  put_floats(out, of.name + ".alpha", {times(greatest(inputs), greatest(globals))});
  put_floats(out, of.name + ".input_scale_inv", {inverse(greatest(inputs))});
}

inline void put_experts(image& out, const layer& of, const checkpoint& from) {
  const std::vector<std::string> scalars = first_modules(of);
  std::vector<std::string> rows = scalars;  // up above gate
  if (of.gated) std::swap(rows[0], rows[1]);
  const bool cuts = of.split == cut::column;
  std::vector<float> inputs1, inputs2, globals1, globals2, g1, g1_up, g2, c;
  for (std::int64_t expert = 0; expert < of.experts_total; ++expert) {
    for (const std::string& module : scalars)
      inputs1.push_back(scalar(from, expert_module(of, expert, module) + ".input_scale"));
    inputs2.push_back(scalar(from, expert_module(of, expert, "down_proj") + ".input_scale"));
  }
  const float first = greatest(inputs1), second = greatest(inputs2);
  for (const char* name : {".w13_weight", ".w13_blockscale_swizzled", ".w2_weight", ".w2_blockscale_swizzled"})
    out[of.name + name];  // there without experts, too
  for (const std::int64_t expert : of.experts_local) {
    matrix weight1(0, 0), scale1(0, 0), weight2(0, 0), scale2(0, 0);
    for (const std::string& module : rows) {
      append_part(weight1, from.at(expert_module(of, expert, module) + ".weight"), of, cuts, false);
      append_part(scale1, from.at(expert_module(of, expert, module) + ".weight_scale"), of, cuts, false);
    }
    const std::string down = expert_module(of, expert, "down_proj");
    append_part(weight2, from.at(down + ".weight"), of, false, cuts);
    append_part(scale2, from.at(down + ".weight_scale"), of, false, cuts);
    put_slot(out, of.name + ".w13_weight", weight_order(of, weight1, of.gated));
    put_slot(out, of.name + ".w13_blockscale_swizzled", scale_order(of, scale1, of.gated));
    put_slot(out, of.name + ".w2_weight", weight_order(of, weight2, false));
    put_slot(out, of.name + ".w2_blockscale_swizzled", scale_order(of, scale2, false));
    for (const std::string& module : scalars)
      globals1.push_back(scalar(from, expert_module(of, expert, module) + ".weight_scale_2"));
    globals2.push_back(scalar(from, down + ".weight_scale_2"));
    g1.push_back(times(first, scalar(from, expert_module(of, expert, scalars[0]) + ".weight_scale_2")));
    g1_up.push_back(times(first, scalar(from, expert_module(of, expert, "up_proj") + ".weight_scale_2")));
    g2.push_back(times(second, globals2.back()));
    c.push_back(times(inverse(second), g1_up.back()));
  }
  put_floats(out, of.name + ".w13_weight_scale_2", globals1);
  put_floats(out, of.name + ".w13_input_scale", inputs1);
  put_floats(out, of.name + ".w2_weight_scale_2", globals2);
  put_floats(out, of.name + ".w2_input_scale", inputs2);
  put_floats(out, of.name + ".g1_alphas", g1);
  if (of.gated) put_floats(out, of.name + ".g1_alphas_up", g1_up);
  put_floats(out, of.name + ".g2_alphas", g2);
  put_floats(out, of.name + ".w13_input_scale_quant", {inverse(first)});
  put_floats(out, of.name + ".w2_input_scale_quant", {inverse(second)});
  if (of.to == backend::trtllm) put_floats(out, of.name + ".g1_scale_c", c);
}

/// Everything in storage after a cold start from this checkpoint, retired tensors and pads too.
inline image cold_image(const std::vector<layer>& layers, const checkpoint& from) {
  image out;
  for (const layer& of : layers) of.stacked ? put_experts(out, of, from) : put_linear(out, of, from);
  return out;
}

}  // namespace reference::nvfp4
