#pragma once
/// The JSON files of a checkpoint folder: the index and the config, as far as wreload reads them.

#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "json_events.hpp"
#include "mapped_file.hpp"

namespace wreload::detail {

/// Reads `weight_map` of `model.safetensors.index.json` (name -> file); everything else in it is skipped.
class index_reader : public json_events {
 public:
  std::vector<std::pair<std::string, std::string>> map;  ///< in the order of the file
  bool found = false;

  bool null() { return value("null"); }
  bool boolean(bool) { return value("a boolean"); }
  bool number_integer(std::int64_t) { return value("a number"); }
  bool number_unsigned(std::uint64_t) { return value("a number"); }
  bool number_float(double, const std::string&) { return value("a number"); }
  bool string(std::string& text) {
    if (depth() != 2 || !in_map_) return value("a string");
    map.back().second = std::move(text);
    return true;
  }
  bool key(std::string& text) {
    if (depth() == 1) {
      in_map_ = text == "weight_map";
      if (in_map_ && std::exchange(found, true)) return fail("weight_map", "one", "two");
    } else if (depth() == 2 && in_map_) {
      map.emplace_back(std::move(text), std::string());
    }
    return true;
  }
  bool start_object(std::size_t size) {
    if ((depth() != 1 || !in_map_) && !value("an object", depth() == 0)) return false;
    return json_events::start_object(size);
  }
  bool start_array(std::size_t size) { return value("a list") && json_events::start_array(size); }

 private:
  bool value(const char* got, bool good = false) {
    if (depth() == 0 && !good) return fail({}, "a JSON object", got);
    if (depth() == 1 && in_map_) return fail("weight_map", "an object", got);
    if (depth() == 2 && in_map_) return fail(map.back().first, "a file name", got);
    return true;
  }
  bool in_map_ = false;
};

/// Reads `quantization_config.weight_block_size` of `config.json`; everything else in it is skipped.
class config_reader : public json_events {
 public:
  std::vector<std::uint64_t> block;  ///< empty where absent or null

  bool null() { return place_ == place::block || place_ == place::quantization || other("null"); }
  bool boolean(bool) { return other("a boolean"); }
  bool number_integer(std::int64_t) { return other("a number"); }
  bool number_float(double, const std::string&) { return other("a number"); }
  bool string(std::string&) { return other("a string"); }
  bool number_unsigned(std::uint64_t number) {
    if (place_ != place::numbers || number == 0 || number > INT_MAX || block.size() == 2) return other("a number");
    block.push_back(number);
    return true;
  }
  bool key(std::string& text) {
    if (depth() == 1) {
      place_ = text == "quantization_config" ? place::quantization : place::elsewhere;
      if (place_ == place::quantization && std::exchange(seen_quantization_, true)) return fail(text, "one", "two");
    } else if (depth() == 2 && (place_ == place::quantization || place_ == place::block)) {
      place_ = text == "weight_block_size" ? place::block : place::quantization;
      if (place_ == place::block && std::exchange(seen_block_, true)) return fail(text, "one", "two");
    }
    return true;
  }
  bool start_object(std::size_t size) {
    const bool good = depth() == 0 || (depth() == 1 && place_ == place::quantization);
    return (good || other("an object")) && json_events::start_object(size);
  }
  bool end_object() {
    if (depth() == 2) place_ = place::elsewhere;
    return json_events::end_object();
  }
  bool start_array(std::size_t size) {
    if (place_ == place::block) place_ = place::numbers;
    else if (!other("a list")) return false;
    return json_events::start_array(size);
  }
  bool end_array() {
    if (place_ == place::numbers) {
      if (block.size() != 2) return other("another count");
      place_ = place::quantization;
    }
    return json_events::end_array();
  }

 private:
  enum class place : std::uint8_t { elsewhere, quantization, block, numbers };
  /// Anything that is not what its place asks for.
  bool other(const char* got) {
    if (depth() == 0) return fail({}, "a JSON object", got);
    if (depth() == 1 && place_ == place::quantization) return fail("quantization_config", "an object", got);
    if (place_ == place::block || place_ == place::numbers)
      return fail("weight_block_size", "two numbers from 1 to 2^31 - 1", got);
    return true;
  }
  place place_ = place::elsewhere;
  bool seen_quantization_ = false;
  bool seen_block_ = false;
};

/// Reads a small JSON file with one of the readers above.
template <class Reader>
status read_json_file(const std::string& path, Reader& reader) {
  mapped_file file;
  if (status result = file.open(path); !result.ok()) return result;
  if (file.bytes().size() > max_header_bytes)
    return refuse(error_code::bad_file, path, "at most " + std::to_string(max_header_bytes) + " bytes",
                  std::to_string(file.bytes().size()));
  return json_events::read(file.bytes(), reader, path);
}

}  // namespace wreload::detail
