#pragma once
// How a run is printed: in words, or as one JSON object.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <wreload/source/report_json.hpp>
#include <wreload/source/safetensors_header.hpp>

#include "options.hpp"
#include "summary.hpp"

namespace reload {

inline std::string to_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// The object of a success; keys as the design names them.
inline nlohmann::ordered_json to_json(const summary& done) {
  wr::report sum;
  for (const wr::report& load : done.loads) {
    sum.loaded.tensors += load.loaded.tensors;
    sum.loaded.bytes += load.loaded.bytes;
    sum.seconds.load += load.seconds.load;
    sum.seconds.prepare += load.seconds.prepare;
    sum.seconds.commit += load.seconds.commit;
    sum.seconds.publish += load.seconds.publish;
    sum.peak_extra_device_bytes = std::max(sum.peak_extra_device_bytes, load.peak_extra_device_bytes);
  }
  nlohmann::ordered_json json;
  json["state"] = wr::name_of(done.state);
  json["version"] = done.version;
  json["tensors"] = sum.loaded.tensors;
  json["bytes"] = sum.loaded.bytes;
  json["seconds"] = wr::to_json(sum.seconds);
  json["seconds"]["audit"] = done.audit_seconds;
  json["gb_per_s"] = sum.gb_per_s();
  json["pause_seconds"] = done.loads.empty() ? 0.0 : done.loads.back().pause_seconds;
  json["peak_extra_device_bytes"] = sum.peak_extra_device_bytes;
  json["warnings"] = done.warnings;
  json["audit"] = nullptr;
  if (done.audit) {
    const nlohmann::ordered_json all = wr::to_json(*done.audit);
    for (const char* key : {"compared", "mismatched", "moved", "memory_growth", "retired", "names"})
      json["audit"][key] = all[key];
  }
  return json;
}

inline nlohmann::ordered_json to_json(const summary& done, std::string_view error) {
  return {{"state", wr::name_of(done.state)}, {"version", done.version}, {"error", error}};
}

inline std::string in_units(std::int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  return bytes < 1'000'000 ? fmt::format("{} bytes", bytes)
         : bytes < 1'000'000'000 ? fmt::format("{:.1f} MB", size / 1e6) : fmt::format("{:.2f} GB", size / 1e9);
}

inline std::string extra_memory(const wr::report& load) {
  std::string words;
  if (load.peak_extra_device_bytes > 0) words += ", " + in_units(load.peak_extra_device_bytes) + " of extra memory";
  if (load.undo_bytes > 0) words += ", " + in_units(load.undo_bytes) + " kept for undo";
  return words;
}

inline void print_words(const options& asked, const summary& done) {
  fmt::print("device: {}\n", done.device);
  fmt::print("mode: {}\n", wr::name_of(asked.mode));
  for (std::size_t i = 0; i < done.loads.size(); ++i) {
    const wr::report& load = done.loads[i];
    const wr::stage_seconds& spent = load.seconds;
    fmt::print("{}: {}, version {}, {} tensors, {} in {:.3f} s ({:.2f} GB/s), pause {:.3f} ms{}\n",
               asked.checkpoints[i], i == 0 ? "loaded cold" : "reloaded in place", load.version, load.loaded.tensors,
               in_units(load.loaded.bytes), spent.load + spent.prepare + spent.commit + spent.publish, load.gb_per_s(),
               1e3 * load.pause_seconds, extra_memory(load));
  }
  for (const std::string& warning : done.warnings) fmt::print("warning: {}\n", warning);
  if (done.audit) {
    const wr::audit_result& audit = *done.audit;
    fmt::print("audit against a cold start from {}: {} tensors compared, {} mismatched, {} moved, {} bytes of memory "
               "growth ({} retired)\n",
               asked.partial && asked.checkpoints.size() > 1 ? "the overlay of the checkpoints"
                                                             : asked.checkpoints.back(),
               audit.compared, audit.mismatched.size(), audit.moved.size(), audit.memory_growth, audit.retired);
    for (const wr::mismatch& found : audit.mismatched)
      fmt::print("  {} differs, first at row {}, column {}\n", found.name, found.row, found.col);
    for (const std::string& name : audit.moved) fmt::print("  {} moved\n", name);
  }
  if (asked.dump) fmt::print("dump: {}\n", *asked.dump);
}

// Prints the outcome; returns the exit status.
inline int finish(const options& asked, const summary& done, const std::string& error) {
  if (!error.empty()) {
    const std::string line = wr::detail::shown(error, 1U << 20U);
    fmt::print(stderr, "reload_checkpoint: {}\n", line);
    if (asked.json) fmt::print("{}\n", to_line(to_json(done, line)));
    return 2;
  }
  if (asked.json) fmt::print("{}\n", to_line(to_json(done)));
  else print_words(asked, done);
  return done.audit && !done.audit->clean() ? 1 : 0;
}

}  // namespace reload
