#pragma once
/// Safetensors files: reading without a copy, and writing.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../core/status.hpp"
#include "../core/tensor_ref.hpp"
#include "mapped_file.hpp"
#include "safetensors_header.hpp"

namespace wreload {

/// Owns the mapping and the checked header of one file; move-only. Names and data stay where they are when it moves.
class safetensors_file {
 public:
  /// Errors: bad_file as `mapped_file::open` and `read_safetensors_header`; the object then is as before.
  [[nodiscard]] status open(const std::string& path, file_mapping how = file_mapping::read_only) {
    safetensors_file opened;
    if (status result = opened.file_.open(path, how); !result.ok()) return result;
    status result = read_safetensors_header(opened.file_.bytes(), path, opened.header_);
    if (!result.ok()) return result;
    *this = std::move(opened);
    return {};
  }

  /// In the order of the data.
  std::span<const safetensors_entry> entries() const { return header_.entries; }
  std::span<const std::pair<std::string, std::string>> metadata() const { return header_.metadata; }
  const std::string& path() const { return file_.path(); }
  bool is_shared() const { return file_.is_shared(); }  ///< see `mapped_file`

  /// Row-major view into the mapping, alive as long as the file is open; alignment is what the file has.
  ///
  /// Requires: index < entries().size()
  tensor_ref tensor(std::size_t index) const {
    const safetensors_entry& entry = header_.entries[index];
    tensor_ref view;
    view.data = file_.bytes().data() + header_.data_begin + entry.begin;
    view.type = entry.type;
    view.extents = entry.extents;
    return view;
  }

  /// Index in `entries()`, or -1.
  std::ptrdiff_t find(std::string_view name) const { return header_.find(name); }

 private:
  mapped_file file_;
  safetensors_header header_;
};

/// A tensor to write.
struct named_tensor {
  std::string_view name;
  tensor_ref tensor;
};

namespace detail {

/// Appends a JSON string; false where the text is not UTF-8.
inline bool append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead >= 0xC2 && lead < 0xE0 ? 2 : (lead >> 4U) == 14 ? 3 : 4;
    if ((lead >= 0x80 && lead < 0xC2) || lead > 0xF4 || length > text.size() - i) return false;
    for (std::size_t k = 1; k < length; ++k)
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0U) != 0x80U) return false;
    const unsigned second = length > 2 ? static_cast<unsigned char>(text[i + 1]) : 0;
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) || (lead == 0xF0 && second < 0x90) ||
        (lead == 0xF4 && second > 0x8F))
      return false;  // longer than needed, a surrogate, beyond U+10FFFF
    if (lead < 0x20) {
      out += "\\u00";
      out += "0123456789abcdef"[lead >> 4U];
      out += "0123456789abcdef"[lead & 15U];
    } else {
      if (lead == '"' || lead == '\\') out += '\\';
      out.append(text.substr(i, length));
    }
    i += length;
  }
  out += '"';
  return true;
}

/// Writes a file under a temporary name beside `path` and renames it when it is whole, so that a failure leaves
/// `path` as it was.
class replacing_file {
 public:
  replacing_file() = default;
  replacing_file(const replacing_file&) = delete;  // owns a descriptor and a temporary name
  replacing_file& operator=(const replacing_file&) = delete;
  ~replacing_file() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }

  [[nodiscard]] status create(const std::string& path) {
    path_ = path;
    struct ::stat facts = {};
    if (::stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode))
      return refuse(error_code::bad_file, path, "a regular file to write",
                    S_ISDIR(facts.st_mode) ? "a folder" : "a pipe, socket or device");
    static std::atomic<unsigned> counter = 0;
    for (int attempt = 0; attempt < 100 && descriptor_ < 0; ++attempt) {
      std::string name = path + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
      descriptor_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (descriptor_ >= 0) temporary_ = std::move(name);
      else if (errno != EEXIST) break;
    }
    return descriptor_ >= 0 ? status{} : failed();
  }
  [[nodiscard]] status write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), std::min<std::size_t>(bytes.size(), 1U << 30U));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return failed();
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
  }
  [[nodiscard]] status commit() {
    if (::close(std::exchange(descriptor_, -1)) != 0) return failed();
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return failed();
    temporary_.clear();
    return {};
  }

 private:
  status failed() const { return refuse(error_code::bad_file, path_, "a file that can be written", errno_text(errno)); }

  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
};

}  // namespace detail

/// Writes a safetensors file. Wider element types come first, so that every tensor is aligned to its element (Torch's
/// reader needs that); otherwise the order given is kept. Packed fp4 is written as U8.
///
///   tensors   row-major, in host memory
///   metadata  written as `__metadata__` unless empty
///
/// Errors: bad_argument, `path: tensor`: a name twice or not UTF-8, no dtype, strides, device memory, null data.
///         bad_file, `path`: cannot be written, or is no regular file. An existing file is left alone by every error.
/// Cost:   holds the header in memory, no tensor.
[[nodiscard]] inline status write_safetensors(
    const std::string& path, std::span<const named_tensor> tensors,
    std::span<const std::pair<std::string, std::string>> metadata = {}) {
  const auto bad = [&](std::string_view name, std::string expected, std::string got) {
    return refuse(error_code::bad_argument, path + ": " + detail::shown(name), std::move(expected), std::move(got));
  };
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return tensors[a].name < tensors[b].name; });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (tensors[order[i]].name == tensors[order[i - 1]].name)
      return bad(tensors[order[i]].name, "one tensor with this name", "two");
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto wide_a = bytes_of(tensors[a].tensor.type);
    const auto wide_b = bytes_of(tensors[b].tensor.type);
    return wide_a != wide_b ? wide_a > wide_b : a < b;
  });

  constexpr std::string_view metadata_name = detail::safetensors_reader::metadata_name;
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"" + std::string(metadata_name) + "\":{";
    for (std::size_t i = 0; i < metadata.size(); ++i) {
      if (i > 0) header += ',';
      for (std::size_t k = 0; k < i; ++k)
        if (metadata[k].first == metadata[i].first) return bad(metadata_name, "one " + metadata[i].first, "two");
      if (!detail::append_json_string(header, metadata[i].first)) return bad(metadata_name, "UTF-8", "other bytes");
      header += ':';
      if (!detail::append_json_string(header, metadata[i].second)) return bad(metadata_name, "UTF-8", "other bytes");
    }
    header += '}';
  }
  std::int64_t end = 0;
  for (const std::size_t i : order) {
    const auto& [name, tensor] = tensors[i];
    const dtype type = tensor.type == dtype::fp4_e2m1x2 ? dtype::u8 : tensor.type;
    if (name == metadata_name) return bad(name, "a tensor name", "the key of the metadata");
    if (bytes_of(type) == 0) return bad(name, "a dtype", "none");
    if (!tensor.extents.valid()) return bad(name, "a size that 64 bits can hold", to_string(tensor));
    if (!tensor.row_major()) return bad(name, "a row-major tensor", "strides " + to_string(tensor.strides));
    if (tensor.memory == memory_kind::device) return bad(name, "host memory", "device memory");
    if (tensor.data == nullptr && tensor.bytes() > 0) return bad(name, "data", "a null pointer");
    const std::int64_t begin = end;
    if (__builtin_add_overflow(end, tensor.bytes(), &end)) return bad(name, "a file below 2^63 bytes", "more");
    if (header.size() > 1) header += ',';
    if (!detail::append_json_string(header, name)) return bad(name, "a name in UTF-8", "other bytes");
    header += ":{\"dtype\":\"" + std::string(name_of(type)) + "\",\"shape\":" + to_string(tensor.extents) +
              ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');
  if (header.size() > max_header_bytes)
    return refuse(error_code::bad_argument, path, "a header of at most " + std::to_string(max_header_bytes) + " bytes",
                  std::to_string(header.size()));
  std::byte length[8];
  for (unsigned i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(header.size() >> (8U * i));

  detail::replacing_file file;
  status result = file.create(path);
  if (result.ok()) result = file.write(length);
  if (result.ok()) result = file.write(std::as_bytes(std::span(header)));
  for (std::size_t i = 0; i < order.size() && result.ok(); ++i) {
    const tensor_ref& tensor = tensors[order[i]].tensor;
    result = file.write({static_cast<const std::byte*>(tensor.data), static_cast<std::size_t>(tensor.bytes())});
  }
  return result.ok() ? file.commit() : result;
}

}  // namespace wreload
