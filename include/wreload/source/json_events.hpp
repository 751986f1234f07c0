#pragma once
/// JSON of files that nobody vouches for: events without a tree, a depth limit, and one readable refusal.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "../core/status.hpp"

namespace wreload {

/// Longest header, in bytes, that the format allows; also the limit for an index and a config.
inline constexpr std::uint64_t max_header_bytes = 100'000'000;

namespace detail {

/// Text of an unknown file for a message: one line, of bounded length.
inline std::string shown(std::string_view text, std::size_t limit = 200) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (result.size() >= limit && (byte & 0xC0U) != 0x80U) return result + "...";
    if (byte >= 0x20 && byte != 0x7F) {
      result += c;
    } else {
      result += "\\x";
      result += "0123456789abcdef"[byte >> 4U];
      result += "0123456789abcdef"[byte & 15U];
    }
  }
  return result;
}

/// Base of the JSON readers in source/: takes the events of `nlohmann::json::sax_parse`, builds nothing, refuses deep
/// nesting and keeps the first refusal. A reader hides the events that it wants to see.
class json_events {
 public:
  static constexpr int max_depth = 64;

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(std::int64_t) { return true; }  // only numbers written with a minus sign
  bool number_unsigned(std::uint64_t) { return true; }
  bool number_float(double, const std::string&) { return true; }  // fractions, exponents, more than 64 bits
  bool string(std::string&) { return true; }
  bool binary(nlohmann::json::binary_t&) { return true; }
  bool key(std::string&) { return true; }
  bool start_object(std::size_t) { return ++depth_ <= max_depth || too_deep(); }
  bool start_array(std::size_t) { return ++depth_ <= max_depth || too_deep(); }
  bool end_object() { return --depth_ >= 0; }
  bool end_array() { return --depth_ >= 0; }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) {
    std::string_view reason = error.what();  // "[json.exception…] parse error at …: <reason>; last read: <text>"
    reason = reason.substr(0, reason.find("; last read"));
    if (const auto at = reason.find(": "); at != std::string_view::npos) reason.remove_prefix(at + 2);
    return fail({}, "valid JSON", "at byte " + std::to_string(position) + ": " + shown(reason));
  }

  /// Reads a whole JSON text; `path` is what messages start with.
  template <class Reader>
  static status read(std::span<const std::byte> text, Reader& reader, std::string path) {
    reader.path_ = std::move(path);
    const auto* const first = reinterpret_cast<const char*>(text.data());
    // The lexer takes a zero byte for the end of the text.
    if (const auto* zero = text.empty() ? nullptr : static_cast<const char*>(std::memchr(first, 0, text.size())))
      reader.fail({}, "valid JSON", "at byte " + std::to_string(zero - first) + ": a zero byte");
    else if (!nlohmann::json::sax_parse(first, first + text.size(), &reader) && reader.result_.ok())
      reader.fail({}, "valid JSON", "something else");
    return std::move(reader.result_);
  }

 protected:
  /// Always false: the event's answer that ends the parse.
  bool fail(std::string_view name, std::string expected, std::string got) {
    if (result_.ok())
      result_ = refuse(error_code::bad_file, name.empty() ? path_ : path_ + ": " + shown(name), std::move(expected),
                       std::move(got));
    return false;
  }
  int depth() const { return depth_; }

 private:
  bool too_deep() { return fail({}, "JSON nested at most " + std::to_string(max_depth) + " deep", "more"); }

  std::string path_;
  status result_;
  int depth_ = 0;
};

}  // namespace detail
}  // namespace wreload
