#pragma once
/// Reports and audits as JSON.

#include <cstddef>
#include <string>

#include <nlohmann/json.hpp>

#include "../core/dtype.hpp"
#include "../update/audit.hpp"
#include "../update/report.hpp"

namespace wreload {

namespace detail {

inline nlohmann::ordered_json to_json(const load_count& count) {
  return {{"tensors", count.tensors}, {"bytes", count.bytes}};
}

}  // namespace detail

/// `{"load": …, "prepare": …, "commit": …, "publish": …}`, in seconds.
inline nlohmann::ordered_json to_json(const stage_seconds& seconds) {
  return {{"load", seconds.load},
          {"prepare", seconds.prepare},
          {"commit", seconds.commit},
          {"publish", seconds.publish}};
}

/// Every field of a report under its own name; `by_dtype` has the dtypes that came, `changed` is null where it was not
/// asked for, `first_error` a line or null. Names are as the checkpoint spells them: dump with
/// `error_handler_t::replace` where they may not be UTF-8.
inline nlohmann::ordered_json to_json(const report& done) {
  nlohmann::ordered_json by_dtype = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < done.by_dtype.size(); ++i)
    if (done.by_dtype[i].tensors > 0 || done.by_dtype[i].bytes > 0)
      by_dtype[std::string(name_of(static_cast<dtype>(i)))] = detail::to_json(done.by_dtype[i]);
  nlohmann::ordered_json json;
  json["version"] = done.version;
  json["loaded"] = detail::to_json(done.loaded);
  json["by_dtype"] = std::move(by_dtype);
  json["not_needed"] = detail::to_json(done.not_needed);
  json["ignored"] = detail::to_json(done.ignored);
  json["foreign"] = detail::to_json(done.foreign);
  json["not_sent"] = done.not_sent;
  json["converted_rows"] = done.converted_rows;
  json["fused_rows"] = done.fused_rows;
  json["aliased"] = done.aliased;
  json["bound"] = done.bound;
  json["shared_bytes"] = done.shared_bytes;
  json["changed"] = nullptr;
  if (done.changed) json["changed"] = *done.changed;
  json["launches"] = done.launches;
  json["replayed_buckets"] = done.replayed_buckets;
  json["seconds"] = to_json(done.seconds);
  json["gb_per_s"] = done.gb_per_s();
  json["peak_extra_device_bytes"] = done.peak_extra_device_bytes;
  json["missing"] = done.missing;
  json["warnings"] = done.warnings;
  json["first_error"] = nullptr;
  if (!done.first_error.ok()) json["first_error"] = done.first_error.message();
  return json;
}

/// The figures of an audit as counts, and the names behind them: `names` of mismatched tensors, `moved_names`.
inline nlohmann::ordered_json to_json(const audit_result& audit) {
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  for (const mismatch& found : audit.mismatched) names.push_back(found.name);
  nlohmann::ordered_json json;
  json["compared"] = audit.compared;
  json["mismatched"] = audit.mismatched.size();
  json["moved"] = audit.moved.size();
  json["not_comparable"] = audit.not_comparable;
  json["memory_growth"] = audit.memory_growth;
  json["retired"] = audit.retired;
  json["names"] = std::move(names);
  json["moved_names"] = audit.moved;
  return json;
}

}  // namespace wreload
