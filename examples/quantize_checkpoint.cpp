// Writes a checkpoint in F32, F16 or BF16 as block FP8, the way DeepSeek publishes it: `X.weight` in F8_E4M3 beside
// `X.weight_scale_inv` with one multiplier per block of 128 x 128.
//
//   quantize_checkpoint IN OUT                       IN: a safetensors file or folder, OUT: a folder
//   quantize_checkpoint IN OUT2 --perturb 7          the same with every tensor changed: a next version to reload
//
// Per block: scale = amax / 448 over the finite values, in FP32; codes = e4m3(w / scale), to nearest even, saturating.
// A block without a finite value but zero has scale 1. NaN becomes code 0x7F, an infinity the largest finite code.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fnmatch.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <wreload/numerics/codecs.hpp>
#include <wreload/source/checkpoint.hpp>

namespace wr = wreload;
namespace fs = std::filesystem;

namespace {

struct options {
  std::string in;
  std::string out;
  std::string block = "128,128";
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  std::optional<std::string> perturb;
  std::size_t shards = 1;
  std::string scale_dtype = "F32";
  std::string scale_name = "weight_scale_inv";
  std::string others = "keep";
  std::int64_t block_rows = 0;
  std::int64_t block_cols = 0;
  std::optional<std::uint64_t> seed;
};

// What published FP8 checkpoints keep in BF16.
constexpr const char* kept_by_default[] = {"*embed*", "*[Nn]orm*", "lm_head*", "*.lm_head.*", "*.gate.weight"};

// The input's bytes, or new ones.
struct output_tensor {
  std::string name;
  wr::dtype type = wr::dtype::none;
  wr::shape extents = {};
  const wr::checkpoint_tensor* source = nullptr;
  enum class role { keep, codes, scales } role = role::keep;

  std::int64_t bytes() const { return extents.elements() * wr::bytes_of(type); }
};

bool matches(const std::vector<std::string>& globs, const std::string& name) {
  return std::any_of(globs.begin(), globs.end(),
                     [&](const std::string& glob) { return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0; });
}

bool quantised(const options& asked, const wr::checkpoint_tensor& tensor) {
  const std::string name(tensor.name);
  if (tensor.tensor.extents.rank() != 2 || !name.ends_with(".weight") || matches(asked.exclude, name)) return false;
  if (!asked.include.empty()) return matches(asked.include, name);
  return !matches({std::begin(kept_by_default), std::end(kept_by_default)}, name);
}

// A fixed mix of 64 bits (splitmix64): the same on every machine.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

// Element access of one input tensor as FP32, perturbed where asked for.
class values {
 public:
  values(const options& asked, const wr::checkpoint_tensor& tensor)
      : data_(static_cast<const std::byte*>(tensor.tensor.data)), type_(tensor.tensor.type) {
    if (!asked.seed) return;
    seed_ = mix(*asked.seed);
    for (const char c : tensor.name) seed_ = mix(seed_ ^ static_cast<unsigned char>(c));
    perturb_ = true;
  }

  static bool known(wr::dtype type) {
    return type == wr::dtype::fp32 || type == wr::dtype::bf16 || type == wr::dtype::fp16;
  }

  float operator[](std::int64_t index) const {
    const float value = read(index);
    if (!perturb_) return value;
    const auto random = static_cast<float>(mix(seed_ + static_cast<std::uint64_t>(index)) >> 40U) * 0x1p-24F;
    if (value == 0) return 0x1p-10F * (1 + random);
    if (!std::isfinite(value)) return index == 0 ? std::copysign(1.0F, -value) : -value;
    // The other sign, so that every code differs; smaller, so that nothing overflows and every scale differs.
    return -value * (0.5F + 0.375F * random);
  }

 private:
  float read(std::int64_t index) const {
    const std::byte* const at = data_ + index * wr::bytes_of(type_);
    std::uint32_t wide = 0;
    std::uint16_t narrow = 0;
    if (type_ == wr::dtype::fp32) {
      std::memcpy(&wide, at, 4);
      return wr::fp32_from_bits(wide);
    }
    std::memcpy(&narrow, at, 2);
    return type_ == wr::dtype::bf16 ? wr::codec<wr::bf16>::decode(narrow) : wr::codec<wr::fp16>::decode(narrow);
  }

  const std::byte* data_;
  wr::dtype type_;
  std::uint64_t seed_ = 0;
  bool perturb_ = false;
};

void store(std::byte* at, wr::dtype type, float value) {
  if (type == wr::dtype::fp32) {
    std::memcpy(at, &value, 4);
    return;
  }
  const std::uint16_t bits =
      type == wr::dtype::bf16 ? wr::codec<wr::bf16>::encode(value) : wr::codec<wr::fp16>::encode(value);
  std::memcpy(at, &bits, 2);
}

// The multiplier of a block whose largest finite magnitude is `amax`, as the scale tensor will hold it.
float scale_of(float amax, wr::dtype scale_type) {
  if (amax == 0) return 1.0F;
  const float scale = amax / 448.0F;
  if (scale_type == wr::dtype::fp32) return scale > 0 ? scale : 0x1p-149F;
  const float rounded = wr::codec<wr::bf16>::decode(wr::codec<wr::bf16>::encode(scale));
  return rounded > 0 ? rounded : 0x1p-133F;
}

// Calls visit(first row, last row, first column, last column, block index) for the blocks of a matrix.
template <class Visit>
void for_each_block(const options& asked, const wr::shape& matrix, Visit visit) {
  std::int64_t block = 0;
  for (std::int64_t row = 0; row < matrix[0]; row += asked.block_rows)
    for (std::int64_t col = 0; col < matrix[1]; col += asked.block_cols)
      visit(row, std::min(row + asked.block_rows, matrix[0]), col, std::min(col + asked.block_cols, matrix[1]),
            block++);
}

std::vector<std::byte> compute(const options& asked, const output_tensor& output) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(output.bytes()));
  const wr::tensor_ref& source = output.source->tensor;
  const values input(asked, *output.source);
  const wr::dtype scale_type = asked.scale_dtype == "BF16" ? wr::dtype::bf16 : wr::dtype::fp32;
  if (output.role == output_tensor::role::keep && !values::known(source.type)) {
    std::memcpy(bytes.data(), source.data, bytes.size());  // perturbed: the lowest bit of each element
    if (asked.seed)
      for (std::size_t i = 0; i < bytes.size(); i += static_cast<std::size_t>(wr::bytes_of(source.type)))
        bytes[i] ^= std::byte{1};
    return bytes;
  }
  if (output.role == output_tensor::role::keep) {
    for (std::int64_t i = 0; i < source.extents.elements(); ++i)
      store(bytes.data() + i * wr::bytes_of(output.type), output.type, input[i]);
    return bytes;
  }
  const std::int64_t cols = source.extents[1];
  for_each_block(asked, source.extents, [&](auto row_begin, auto row_end, auto col_begin, auto col_end, auto block) {
    float amax = 0;
    for (std::int64_t row = row_begin; row < row_end; ++row)
      for (std::int64_t col = col_begin; col < col_end; ++col)
        if (const float size = std::fabs(input[row * cols + col]); std::isfinite(size)) amax = std::max(amax, size);
    const float scale = scale_of(amax, scale_type);
    if (output.role == output_tensor::role::scales) {
      store(bytes.data() + block * wr::bytes_of(scale_type), scale_type, scale);
      return;
    }
    for (std::int64_t row = row_begin; row < row_end; ++row)
      for (std::int64_t col = col_begin; col < col_end; ++col)
        bytes[static_cast<std::size_t>(row * cols + col)] =
            std::byte{wr::codec<wr::fp8_e4m3>::encode(input[row * cols + col] / scale)};
  });
  return bytes;
}

// The tensors of OUT in order: each weight is followed by its scale.
wr::status plan(const options& asked, const wr::checkpoint& in, std::vector<output_tensor>& outputs) {
  const auto refuse = [&](std::string_view name, std::string expected, std::string got) {
    return wr::refuse(wr::error_code::bad_file, in.path() + ": " + wr::detail::shown(name), std::move(expected),
                      std::move(got));
  };
  for (const wr::checkpoint_tensor& tensor : in.tensors()) {
    const wr::tensor_ref& source = tensor.tensor;
    if (!quantised(asked, tensor)) {
      const bool cast = asked.others == "bf16" && values::known(source.type);
      outputs.push_back({std::string(tensor.name), cast ? wr::dtype::bf16 : source.type, source.extents, &tensor});
      continue;
    }
    if (!values::known(source.type))
      return refuse(tensor.name, "F32, F16 or BF16 to quantise (or --exclude it)", to_string(source));
    const std::string module(tensor.name.substr(0, tensor.name.size() - std::string_view("weight").size()));
    const std::string scale_name = module + asked.scale_name;
    if (in.find(scale_name) != nullptr) return refuse(scale_name, "a weight without a scale yet", "one with it");
    const wr::shape grid = {wr::ceil_div(source.extents[0], asked.block_rows),
                            wr::ceil_div(source.extents[1], asked.block_cols)};
    const wr::dtype scale_type = asked.scale_dtype == "BF16" ? wr::dtype::bf16 : wr::dtype::fp32;
    outputs.push_back(
        {std::string(tensor.name), wr::dtype::fp8_e4m3, source.extents, &tensor, output_tensor::role::codes});
    outputs.push_back({scale_name, scale_type, grid, &tensor, output_tensor::role::scales});
  }
  return {};
}

wr::status bad_out(const std::string& path, std::string expected, std::string got) {
  return wr::refuse(wr::error_code::bad_file, path, std::move(expected), std::move(got));
}

// OUT is new, or holds nothing that a reader would mix up with what is written.
wr::status prepare_folder(const options& asked, const std::vector<std::string>& names, bool indexed) {
  std::error_code error;
  fs::create_directories(asked.out, error);
  if (error || !fs::is_directory(asked.out, error)) return bad_out(asked.out, "a folder to write", error.message());
  const fs::path in_folder = fs::is_directory(asked.in) ? fs::path(asked.in) : fs::absolute(asked.in).parent_path();
  if (fs::equivalent(in_folder, asked.out, error)) return bad_out(asked.out, "another folder than the input's", "it");
  for (const fs::directory_entry& item : fs::directory_iterator(asked.out)) {
    const std::string name = item.path().filename().string();
    const bool stale = name.ends_with(".safetensors") && std::find(names.begin(), names.end(), name) == names.end();
    if (stale || (name == "model.safetensors.index.json" && !indexed))
      return bad_out(asked.out + "/" + name, "a folder without other tensors", "this file");
  }
  return {};
}

wr::status write_text(const std::string& path, const std::string& text) {
  wr::detail::replacing_file file;
  wr::status result = file.create(path);
  if (result.ok()) result = file.write(std::as_bytes(std::span(text)));
  return result.ok() ? file.commit() : result;
}

// The input's config, if it has one, with what readers of block FP8 look for.
wr::status write_config(const options& asked) {
  const fs::path folder = fs::is_directory(asked.in) ? fs::path(asked.in) : fs::path(asked.in).parent_path();
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  if (wr::mapped_file file; file.open((folder / "config.json").string()).ok()) {
    const auto* const text = reinterpret_cast<const char*>(file.bytes().data());
    config = nlohmann::ordered_json::parse(text, text + file.bytes().size(), nullptr, false);
    if (!config.is_object()) return bad_out(file.path(), "a JSON object", "something else");
  }
  config["quantization_config"] = {{"quant_method", "fp8"},
                                   {"fmt", "e4m3"},
                                   {"weight_block_size", {asked.block_rows, asked.block_cols}},
                                   {"activation_scheme", "dynamic"}};
  return write_text(asked.out + "/config.json", config.dump(2) + "\n");
}

wr::status run(const options& asked) {
  wr::checkpoint in;
  if (wr::status result = in.open(asked.in); !result.ok()) return result;
  std::vector<output_tensor> outputs;
  if (wr::status result = plan(asked, in, outputs); !result.ok()) return result;

  // Each shard takes its part of the bytes, and one tensor at least. A weight and its scale may fall into two shards.
  std::int64_t total = 0;
  for (const output_tensor& output : outputs) total += output.bytes();
  const std::size_t shards = std::max<std::size_t>(1, std::min(asked.shards, outputs.size()));
  std::vector<std::vector<const output_tensor*>> parts(1);
  std::int64_t planned = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    parts.back().push_back(&outputs[i]);
    planned += outputs[i].bytes();
    const bool full = planned >= total / static_cast<std::int64_t>(shards) * static_cast<std::int64_t>(parts.size());
    if (parts.size() < shards && (full || outputs.size() - i - 1 == shards - parts.size())) parts.emplace_back();
  }
  std::vector<std::string> names = {"model.safetensors"};
  if (shards > 1) names.clear();
  for (std::size_t i = 1; i <= shards && shards > 1; ++i)
    names.push_back(fmt::format("model-{:05}-of-{:05}.safetensors", i, shards));
  if (wr::status result = prepare_folder(asked, names, shards > 1); !result.ok()) return result;

  nlohmann::ordered_json weight_map = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < shards; ++i) {
    std::vector<std::vector<std::byte>> storage;  // of this shard only
    std::vector<wr::named_tensor> tensors;
    for (const output_tensor* const output : parts[i]) {
      wr::tensor_ref view = {nullptr, output->type, output->extents};
      if (output->role == output_tensor::role::keep && output->type == output->source->tensor.type && !asked.seed) {
        view = output->source->tensor;
      } else {
        storage.push_back(compute(asked, *output));
        view.data = storage.back().data();
      }
      tensors.push_back({output->name, view});
      weight_map[output->name] = names[i];
    }
    const std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"}};
    if (wr::status result = wr::write_safetensors(asked.out + "/" + names[i], tensors, metadata); !result.ok())
      return result;
  }
  if (shards > 1) {
    const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}};
    wr::status result = write_text(asked.out + "/model.safetensors.index.json", index.dump(2) + "\n");
    if (!result.ok()) return result;
  }
  if (wr::status result = write_config(asked); !result.ok()) return result;

  const auto is_codes = [](const output_tensor& output) { return output.role == output_tensor::role::codes; };
  const auto codes = static_cast<std::size_t>(std::count_if(outputs.begin(), outputs.end(), is_codes));
  fmt::print("{}: {} tensors as FP8 in blocks of {} x {}, {} others, {} bytes in {} {}\n", asked.out, codes,
             asked.block_rows, asked.block_cols, outputs.size() - 2 * codes, total, shards,
             shards == 1 ? "file" : "files");
  return {};
}

// "128,128" -> rows and columns.
bool read_block(options& asked) {
  const char* at = asked.block.data();
  const char* const end = at + asked.block.size();
  const auto number = [&](std::int64_t& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    at = next;
    return error == std::errc() && value >= 1 && value <= INT32_MAX;
  };
  return number(asked.block_rows) && at != end && *at++ == ',' && number(asked.block_cols) && at == end;
}

bool read_seed(options& asked) {
  if (!asked.perturb) return true;
  const char* const end = asked.perturb->data() + asked.perturb->size();
  const auto [next, error] = std::from_chars(asked.perturb->data(), end, asked.seed.emplace());
  return error == std::errc() && next == end;
}

int fail(const std::string& message) {
  fmt::print(stderr, "quantize_checkpoint: {}\n", message);
  return 2;
}

int run_command_line(int argc, char** argv) {
  options asked;
  CLI::App app("Writes a safetensors checkpoint in F32, F16 or BF16 as block FP8.", "quantize_checkpoint");
  app.add_option("IN", asked.in, "a safetensors file or a folder of them")->required();
  app.add_option("OUT", asked.out, "the folder to write")->required();
  app.add_option("--block", asked.block, "rows and columns of one scale")->type_name("R,C")->capture_default_str();
  const auto globs = [&](const char* name, std::vector<std::string>& list, const std::string& text) {
    app.add_option(name, list, text)->type_name("GLOB[,GLOB]")->delimiter(',')->allow_extra_args(false);
  };
  globs("--include", asked.include,
        "quantise the 2-d `*.weight` of these names only, instead of all but " +
            fmt::format("{}", fmt::join(kept_by_default, " ")));
  globs("--exclude", asked.exclude, "never quantise these names");
  app.add_option("--perturb", asked.perturb, "change the values of every tensor, the same way for the same seed")
      ->type_name("SEED");
  app.add_option("--shards", asked.shards, "files to write; with an index where more than one")
      ->type_name("N")->capture_default_str()->check(CLI::Range(1, 99999));
  app.add_option("--scale-dtype", asked.scale_dtype)->capture_default_str()->check(CLI::IsMember({"F32", "BF16"}));
  app.add_option("--scale-name", asked.scale_name)
      ->capture_default_str()->check(CLI::IsMember({"weight_scale_inv", "weight_scale"}));
  app.add_option("--others", asked.others, "the other F32 and F16 tensors: as they are, or rounded to BF16")
      ->capture_default_str()->check(CLI::IsMember({"keep", "bf16"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return fail(wr::detail::shown(error.what()));
  }
  if (!read_block(asked))
    return fail("--block: expected R,C from 1 to 2147483647, got " + wr::detail::shown(asked.block));
  if (!read_seed(asked))
    return fail("--perturb: expected a number below 2^64, got " + wr::detail::shown(*asked.perturb));
  const wr::status result = run(asked);
  return result.ok() ? 0 : fail(result.message());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_command_line(argc, argv);
  } catch (const std::exception& error) {  // host allocation, a folder that vanishes while it is read
    std::fprintf(stderr, "quantize_checkpoint: %s\n", error.what());
    return 2;
  }
}
