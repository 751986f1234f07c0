#pragma once
/// The header of a safetensors file, read as if an enemy had written it.
///
///   bytes 0..7     length of the header, little-endian
///   header         JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …, "__metadata__": {…}}
///   data section   to the end of the file; offsets count from its start; every byte belongs to exactly one tensor

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../core/dtype.hpp"
#include "../core/shape.hpp"
#include "../core/status.hpp"
#include "json_events.hpp"

namespace wreload {

/// One tensor of the header.
struct safetensors_entry {
  std::string name;
  dtype type = dtype::none;
  shape extents = {};
  std::int64_t begin = 0;  ///< bytes from the start of the data section
  std::int64_t end = 0;    ///< one past the last byte; end - begin = elements * bytes_of(type)
};

/// A header that has passed every check.
struct safetensors_header {
  std::vector<safetensors_entry> entries;  ///< in the order of the data
  std::vector<std::uint32_t> by_name;      ///< indices of `entries`, sorted by name
  std::vector<std::pair<std::string, std::string>> metadata;
  std::int64_t data_begin = 0;  ///< bytes from the start of the file to the data section

  /// Index of a name in `entries`, or -1.
  std::ptrdiff_t find(std::string_view name) const {
    const auto at = std::lower_bound(by_name.begin(), by_name.end(), name,
                                     [&](std::uint32_t i, std::string_view key) { return entries[i].name < key; });
    return at == by_name.end() || entries[*at].name != name ? -1 : static_cast<std::ptrdiff_t>(*at);
  }
};

namespace detail {

/// The spellings of the format. Sub-byte types (`F4`, …) are unknown: their elements have no byte address.
constexpr dtype safetensors_dtype(std::string_view text) {
  for (int i = 1; i < dtype_count; ++i) {
    const auto type = static_cast<dtype>(i);
    if (type != dtype::fp4_e2m1x2 && name_of(type) == text) return type;
  }
  return dtype::none;
}

/// Fills `safetensors_header` from JSON events. Each entry is checked against its own shape and the data section when
/// it ends; what concerns several entries is checked by `read_safetensors_header`.
class safetensors_reader : public json_events {
 public:
  safetensors_reader(safetensors_header& header, std::uint64_t data_bytes) : header_(header), data_bytes_(data_bytes) {}

  bool null() { return misplaced("null"); }
  bool boolean(bool value) { return misplaced(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) { return misplaced(std::to_string(value)); }
  bool number_float(double, const std::string& text) { return misplaced(shown(text, 40)); }
  bool number_unsigned(std::uint64_t value) {
    if (in_ == place::dims) {
      if (value > INT64_MAX) return misplaced(std::to_string(value));
      if (entry_.extents.rank() == max_rank)
        return fail(entry_.name, "at most " + std::to_string(max_rank) + " dims", "more");
      entry_.extents.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (in_ != place::offsets) return misplaced(std::to_string(value));
    if (offset_count_ == 2) return fail(entry_.name, "two data_offsets", "more");
    offsets_[offset_count_++] = value;
    return true;
  }
  bool string(std::string& text) {
    if (in_ == place::metadata) {
      header_.metadata.back().second = std::move(text);
      return true;
    }
    if (in_ != place::entry || field_ != field::dtype) return misplaced("a string");
    entry_.type = safetensors_dtype(text);
    return entry_.type != dtype::none || fail(entry_.name, "a known dtype", "\"" + shown(text, 40) + "\"");
  }
  bool key(std::string& text) {
    if (in_ == place::top) {
      entry_ = {};
      entry_.name = std::move(text);
      seen_ = 0;
      offset_count_ = 0;
      return true;
    }
    if (in_ == place::metadata) {
      header_.metadata.emplace_back(std::move(text), std::string());
      return true;
    }
    field_ = text == "dtype" ? field::dtype : text == "shape" ? field::shape : field::offsets;
    if (field_ == field::offsets && text != "data_offsets")
      return fail(entry_.name, "only dtype, shape and data_offsets", "\"" + shown(text, 40) + "\"");
    if ((seen_ & bit(field_)) != 0) return fail(entry_.name, "one " + text, "two");
    seen_ |= bit(field_);
    return true;
  }
  bool start_object(std::size_t) {
    if (in_ == place::outside) {
      in_ = place::top;
      return true;
    }
    if (in_ != place::top) return misplaced("an object");
    in_ = entry_.name == metadata_name ? place::metadata : place::entry;
    if (in_ == place::metadata && std::exchange(have_metadata_, true))
      return fail(metadata_name, "one " + std::string(metadata_name), "two");
    return true;
  }
  bool end_object() {
    if (in_ == place::entry && !finish_entry()) return false;
    in_ = in_ == place::top ? place::outside : place::top;
    return true;
  }
  bool start_array(std::size_t) {
    if (in_ != place::entry || field_ == field::dtype) return misplaced("a list");
    in_ = field_ == field::shape ? place::dims : place::offsets;
    return true;
  }
  bool end_array() {
    in_ = place::entry;
    return true;
  }

  static constexpr std::string_view metadata_name = "__metadata__";

 private:
  enum class place : std::uint8_t { outside, top, metadata, entry, dims, offsets };
  enum class field : std::uint8_t { dtype, shape, offsets };
  static constexpr unsigned bit(field which) { return 1U << static_cast<unsigned>(which); }

  bool misplaced(std::string got) {
    switch (in_) {
      case place::outside: return fail({}, "a JSON object", std::move(got));
      case place::top: return fail(entry_.name, "an object", std::move(got));
      case place::metadata: return fail(metadata_name, "only strings", std::move(got));
      case place::dims: return fail(entry_.name, "whole dims from 0 to 2^63 - 1", std::move(got));
      case place::offsets: return fail(entry_.name, "data_offsets within the data section", std::move(got));
      case place::entry: break;
    }
    return fail(entry_.name,
                field_ == field::dtype ? "dtype as a string"
                                       : field_ == field::shape ? "shape as a list" : "data_offsets as a list",
                std::move(got));
  }

  bool finish_entry() {
    if (seen_ != 7U) {
      const auto* const missing = (seen_ & bit(field::dtype)) == 0    ? "dtype"
                                  : (seen_ & bit(field::shape)) == 0 ? "shape"
                                                                     : "data_offsets";
      return fail(entry_.name, missing, "an entry without it");
    }
    if (offset_count_ != 2) return fail(entry_.name, "two data_offsets", std::to_string(offset_count_));
    if (offsets_[0] > offsets_[1]) return fail(entry_.name, "data_offsets [begin, end] with begin <= end", range());
    if (offsets_[1] > data_bytes_)
      return fail(entry_.name, "data_offsets within " + std::to_string(data_bytes_) + " bytes of data", range());
    const auto what = [&] { return std::string(name_of(entry_.type)) + " " + to_string(entry_.extents); };
    if (!entry_.extents.valid()) return fail(entry_.name, "a size that 64 bits can hold", what());
    const auto bytes = static_cast<std::uint64_t>(entry_.extents.elements() * bytes_of(entry_.type));
    if (offsets_[1] - offsets_[0] != bytes)
      return fail(entry_.name, std::to_string(bytes) + " bytes for " + what(),
                  std::to_string(offsets_[1] - offsets_[0]) + " (data_offsets " + range() + ")");
    entry_.begin = static_cast<std::int64_t>(offsets_[0]);
    entry_.end = static_cast<std::int64_t>(offsets_[1]);
    header_.entries.push_back(std::move(entry_));
    return true;
  }

  std::string range() const { return "[" + std::to_string(offsets_[0]) + ", " + std::to_string(offsets_[1]) + "]"; }

  safetensors_header& header_;
  std::uint64_t data_bytes_;
  safetensors_entry entry_;
  std::uint64_t offsets_[2] = {};
  unsigned offset_count_ = 0;
  unsigned seen_ = 0;
  place in_ = place::outside;
  field field_ = field::dtype;
  bool have_metadata_ = false;
};

}  // namespace detail

/// Reads and checks the header of a file that lies in memory.
///
///   file    the whole file; only the header is read
///   path    what messages start with
///   header  the result; empty after a refusal
///
/// Errors: bad_file; param is `path` or `path: tensor`. Refused: lengths beyond the file or the format's limit (before
///         anything is allocated), anything but the entries the format knows, unknown dtypes, sizes that are not
///         shape x dtype, offsets that overlap, leave a hole or leave bytes at the end, a name twice.
/// Cost:   memory for the entries, a small multiple of the header; sorts by offset and by name.
[[nodiscard]] inline status read_safetensors_header(std::span<const std::byte> file, std::string_view path,
                                                    safetensors_header& header) {
  header = {};
  const auto bad = [&](std::string_view name, std::string expected, std::string got) {
    std::string param = name.empty() ? std::string(path) : std::string(path) + ": " + detail::shown(name);
    header = {};  // `name` may lie in it
    return refuse(error_code::bad_file, param, std::move(expected), std::move(got));
  };
  if (file.size() < 8) return bad({}, "at least 8 bytes", std::to_string(file.size()));
  std::uint64_t length = 0;
  for (unsigned i = 0; i < 8; ++i) length |= std::to_integer<std::uint64_t>(file[i]) << (8U * i);
  if (length > file.size() - 8)
    return bad({}, "a header within the file's " + std::to_string(file.size()) + " bytes", std::to_string(length));
  if (length > max_header_bytes)
    return bad({}, "a header of at most " + std::to_string(max_header_bytes) + " bytes", std::to_string(length));
  if (length == 0 || file[8] != std::byte{'{'}) return bad({}, "a header that starts with {", "something else");
  const std::uint64_t data_bytes = file.size() - 8 - length;

  detail::safetensors_reader reader(header, data_bytes);
  if (status result = detail::json_events::read(file.subspan(8, length), reader, std::string(path)); !result.ok()) {
    header = {};
    return result;
  }
  auto& entries = header.entries;
  const auto before = [](const safetensors_entry& a, const safetensors_entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  };
  if (!std::is_sorted(entries.begin(), entries.end(), before)) std::stable_sort(entries.begin(), entries.end(), before);
  std::int64_t covered = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::int64_t begin = entries[i].begin;
    if (begin != covered)
      return bad(entries[i].name, "data from byte " + std::to_string(covered) + ", where the tensor before it ends",
                 "from byte " + std::to_string(begin) +
                     (begin > covered ? " (a hole)" : " (overlaps " + detail::shown(entries[i - 1].name) + ")"));
    covered = entries[i].end;
  }
  if (static_cast<std::uint64_t>(covered) != data_bytes)
    return bad({}, "tensors that cover " + std::to_string(data_bytes) + " bytes of data",
               std::to_string(covered) + " (trailing bytes)");

  header.by_name.resize(entries.size());
  std::iota(header.by_name.begin(), header.by_name.end(), 0U);
  std::sort(header.by_name.begin(), header.by_name.end(),
            [&](std::uint32_t a, std::uint32_t b) { return entries[a].name < entries[b].name; });
  for (std::size_t i = 1; i < header.by_name.size(); ++i)
    if (const auto& name = entries[header.by_name[i]].name; name == entries[header.by_name[i - 1]].name)
      return bad(name, "one tensor with this name", "two");
  auto keys = header.metadata;
  std::sort(keys.begin(), keys.end());
  for (std::size_t i = 1; i < keys.size(); ++i)
    if (keys[i].first == keys[i - 1].first)
      return bad(detail::safetensors_reader::metadata_name, "one \"" + detail::shown(keys[i].first, 40) + "\"", "two");
  header.data_begin = static_cast<std::int64_t>(8 + length);
  return {};
}

}  // namespace wreload
