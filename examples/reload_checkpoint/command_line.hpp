#pragma once
// Reads the command line with CLI11. Everything that is wrong with it is one line.

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "options.hpp"

namespace reload {

// What the options spell, before it is checked.
struct raw_options {
  std::vector<std::string> fuse, parallel, keep_fp8;
  std::string tp = "1", rank = "0", mode = "direct", scope = "complete", undo = "none",
              backend = "cutlass";
  std::optional<std::string> order, bucket, budget;
  bool no_audit = false;
};

namespace detail {

template <class Number>
bool read_number(std::string_view text, Number low, Number high, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && low <= value && value <= high;
}

// A leaf name stands between dots.
inline bool is_leaf(std::string_view name) { return !name.empty() && name.find_first_of(".=,") == std::string::npos; }

// `name=rest`; false without a name.
inline bool split_rule_text(const std::string& text, std::string& name, std::string& rest) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) return false;
  name = text.substr(0, equals);
  rest = text.substr(equals + 1);
  return is_leaf(name);
}

inline std::string wrong(std::string_view option, std::string_view expected, std::string_view got) {
  return std::string(option) + ": expected " + std::string(expected) + ", got \"" + std::string(got) + "\"";
}

// "NAME=MODULE,MODULE…"; a name and a module stand in one --fuse only.
inline std::string read_fusion(const std::string& text, std::vector<fusion>& fusions) {
  fusion next;
  std::string list;
  bool good = split_rule_text(text, next.name, list);
  for (std::size_t at = 0; good && at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    next.modules.push_back(list.substr(at, end - at));
    good = is_leaf(next.modules.back());
    at = end + 1;
  }
  if (!good) return wrong("--fuse", "NAME=MODULE,MODULE… of leaf module names", text);
  std::vector<std::string> taken;
  for (const fusion& other : fusions) {
    if (other.name == next.name) return wrong("--fuse", "each fused name once", next.name);
    taken.insert(taken.end(), other.modules.begin(), other.modules.end());
  }
  for (const std::string& module : next.modules) {
    if (std::find(taken.begin(), taken.end(), module) != taken.end())
      return wrong("--fuse", "each module once", module);
    taken.push_back(module);
  }
  fusions.push_back(std::move(next));
  return {};
}

inline std::string read_split(const std::string& text, std::vector<split_rule>& rules) {
  split_rule next;
  std::string how;
  bool good = split_rule_text(text, next.leaf, how);
  if (how == "column") next.how = wr::parallel::column;
  else if (how == "row") next.how = wr::parallel::row;
  else good &= how == "replicated";
  if (!good) return wrong("--parallel", "LEAF=column, LEAF=row or LEAF=replicated", text);
  for (const split_rule& other : rules)
    if (other.leaf == next.leaf) return wrong("--parallel", "each leaf once", next.leaf);
  rules.push_back(std::move(next));
  return {};
}

inline std::string read_order(const std::string& text, send_order& order) {
  using kind = send_order::kind;
  constexpr std::string_view shuffle = "shuffle:";
  if (text == "file") order.how = kind::file;
  else if (text == "reverse") order.how = kind::reverse;
  else if (text == "scales-first") order.how = kind::scales_first;
  else if (text == "weights-first") order.how = kind::weights_first;
  else if (text.starts_with(shuffle) &&
           read_number<std::uint64_t>(std::string_view(text).substr(shuffle.size()), 0, UINT64_MAX, order.seed))
    order.how = kind::shuffle;
  else return wrong("--order", "file, reverse, shuffle:SEED, scales-first or weights-first", text);
  return {};
}

// The mode, and what it has no use for.
inline std::string read_mode(const raw_options& raw, options& asked) {
  using wr::update_mode;
  for (const update_mode mode : {update_mode::direct, update_mode::layerwise, update_mode::staged, update_mode::swap})
    if (raw.mode == wr::name_of(mode)) asked.mode = mode;
  if (raw.undo == "host") asked.undo = wr::undo_mode::host;
  if (raw.budget && !read_number<std::int64_t>(*raw.budget, 1, INT64_MAX, asked.budget_bytes.emplace()))
    return wrong("--budget", "bytes from 1 to 2^63 - 1", *raw.budget);
  const bool is_aside = asked.mode == update_mode::layerwise || asked.mode == update_mode::staged;
  if (raw.budget && !is_aside) return wrong("--budget", "--mode layerwise or --mode staged with it", raw.mode);
  if (raw.undo != "none" && asked.mode == update_mode::swap)
    return wrong("--undo", "none with --mode swap, which keeps the old weights itself", raw.undo);
  return {};
}

inline std::string check(const raw_options& raw, options& asked) {
  std::string error;
  for (const std::string& text : raw.fuse)
    if (error.empty()) error = read_fusion(text, asked.fuse);
  for (const std::string& text : raw.parallel)
    if (error.empty()) error = read_split(text, asked.parallel);
  if (error.empty() && raw.order) error = read_order(*raw.order, asked.order.emplace());
  if (!error.empty()) return error;
  if (!read_number(raw.tp, 1, INT32_MAX, asked.tp.size)) return wrong("--tp", "a number of ranks from 1", raw.tp);
  if (!read_number(raw.rank, 0, asked.tp.size - 1, asked.tp.rank))
    return wrong("--rank", "a rank from 0 to " + std::to_string(asked.tp.size - 1) + " (--tp " + raw.tp + ")",
                 raw.rank);
  if (raw.bucket && !read_number<std::int64_t>(*raw.bucket, 1, INT64_MAX, asked.bucket_bytes.emplace()))
    return wrong("--bucket", "bytes from 1 to 2^63 - 1", *raw.bucket);
  if (asked.dump && asked.dump->empty()) return wrong("--dump", "a file to write", "");
  for (const std::string& leaf : raw.keep_fp8)
    if (!is_leaf(leaf)) return wrong("--keep-fp8", "the leaf name of a layer", leaf);
  asked.keep_fp8 = raw.keep_fp8;
  asked.backend = raw.backend == "trtllm" ? backend::trtllm : backend::cutlass;
  asked.partial = raw.scope == "partial";
  asked.audit = !raw.no_audit;
  return read_mode(raw, asked);
}

}  // namespace detail

struct command_line {
  std::optional<int> exit = {};  // set: there is nothing to run
  std::string error = {};        // a usage error, one line
};

// Fills `asked`. `--help` prints and asks for exit 0; a usage error is returned.
inline command_line read_command_line(int argc, char** argv, options& asked) {
  raw_options raw;
  CLI::App app("Loads FIRST cold, reloads each NEXT in place, audits against a fresh cold start from the last one.",
               "reload_checkpoint");
  app.add_option("FIRST", asked.checkpoints,
                 "checkpoints, FIRST and each NEXT: a *.safetensors file, or a folder of them")
      ->type_name("[NEXT]")->required();
  const auto choice = [&](const char* name, std::string& value, std::vector<std::string> allowed, const char* text) {
    app.add_option(name, value, text)->check(CLI::IsMember(std::move(allowed)));
  };
  const auto list = [&](const char* name, std::vector<std::string>& values, const char* type, const char* text) {
    app.add_option(name, values, text)->type_name(type)->allow_extra_args(false);
  };
  choice("--device", asked.device, {"auto", "host", "cuda"}, "where the weights live");
  app.add_option("--tp", raw.tp, "ranks of the tensor-parallel group")->type_name("SIZE");
  app.add_option("--rank", raw.rank, "this process's rank in it")->type_name("R");
  list("--fuse", raw.fuse, "NAME=MODULE,MODULE...", "fuse modules (leaf names) along dim 0, in this order");
  list("--parallel", raw.parallel, "LEAF=column|row|replicated", "how layers of this leaf name are cut; default: not");
  list("--keep-fp8", raw.keep_fp8, "LEAF", "layers of this leaf name that stay block FP8; `experts` for stacked ones");
  choice("--backend", raw.backend, {"cutlass", "trtllm"}, "the kernels' order of NVFP4 weights");
  app.add_option("--order", raw.order, "file, reverse, shuffle:SEED, scales-first or weights-first; default: as is fastest")
      ->type_name("ORDER");
  app.add_option("--bucket", raw.bucket, "send tensors in buckets of this size, in file order without --order; larger ones are cut")
      ->type_name("BYTES");
  choice("--mode", raw.mode, {"direct", "layerwise", "staged", "swap"}, "how an update reaches live storage");
  choice("--scope", raw.scope, {"complete", "partial"}, "whether each NEXT is whole, or brings what it holds");
  app.add_option("--budget", raw.budget, "memory that layerwise or staged may keep an update in; default: no limit")->type_name("BYTES");
  choice("--undo", raw.undo, {"none", "host"}, "whether a failed update puts back what it overwrote");
  app.add_option("--dump", asked.dump, "write the runtime tensors there if every update succeeds")
      ->type_name("OUT.safetensors");
  app.add_flag("--json", asked.json, "print one JSON object");
  app.add_flag("--no-audit", raw.no_audit, "do not compare with a cold start");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return {.exit = app.exit(help)};
  } catch (const CLI::ParseError& error) {
    for (int i = 1; i < argc; ++i) asked.json |= std::string_view(argv[i]) == "--json";
    return {.error = error.what()};
  }
  return {.error = detail::check(raw, asked)};
}

}  // namespace reload
