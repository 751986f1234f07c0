#pragma once
/// A file's bytes, mapped read-only into memory.

#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../core/status.hpp"

namespace wreload {

namespace detail {

/// What the C library says about an errno value; safe in threads, unlike strerror.
inline std::string errno_text(int error) { return std::error_code(error, std::generic_category()).message(); }

}  // namespace detail

/// How a file is mapped. Nothing is ever written through a mapping.
enum class file_mapping {
  read_only,
  writable,  ///< opened for writing too: for a GPU that cannot pin read-only pages. Pinning may mark the file's pages
             ///< dirty, and touch its time of modification, though no byte changes
};

/// Owns a mapping of one regular file; move-only. The mapping stays at its address when the object moves,
/// and keeps the bytes of the file it opened when another one is renamed over it.
///
/// Limits: a file that somebody *truncates* while it is mapped raises SIGBUS on access, as any mapping does; replace
///         files by renaming (`write_safetensors` does).
class mapped_file {
 public:
  mapped_file() = default;
  mapped_file(const mapped_file&) = delete;  // two owners would unmap twice
  mapped_file& operator=(const mapped_file&) = delete;
  mapped_file(mapped_file&& other) noexcept { swap(other); }
  mapped_file& operator=(mapped_file&& other) noexcept {
    mapped_file(std::move(other)).swap(*this);
    return *this;
  }
  ~mapped_file() { close(); }

  /// Maps the file at `path` in place of the one that was open.
  ///
  /// Errors: bad_file, `path` as given: cannot be opened, or is not a regular file (folder, pipe, device). The object
  ///         then is as before. An empty file is success with zero bytes. `writable` also needs leave to write.
  /// Cost:   no byte is read before it is used; the descriptor is closed at once.
  [[nodiscard]] status open(const std::string& path, file_mapping how = file_mapping::read_only) {
    if (path.find('\0') != std::string::npos)
      return refuse(error_code::bad_file, path.c_str(), "a file name", "one with a zero byte");
    // O_NONBLOCK: opening a pipe without a writer would wait for ever.
    const bool writable = how == file_mapping::writable;
    const int descriptor = ::open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
      return refuse(error_code::bad_file, path, writable ? "a readable and writable file" : "a readable file",
                    detail::errno_text(errno));
    mapped_file opened;
    status result = opened.map(descriptor, path, writable);
    ::close(descriptor);
    if (result.ok()) swap(opened);
    return result;
  }

  void close() noexcept {
    if (data_ != nullptr) ::munmap(data_, size_);
    data_ = nullptr;
    size_ = 0;
    path_.clear();
  }

  /// The whole file; page aligned; valid until `close`, destruction or the next successful `open`.
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
  /// As given to `open`; empty where nothing is open.
  const std::string& path() const { return path_; }
  /// Whether the mapping has the file's own pages: those of a private one are copied, one by one, when they are pinned.
  bool is_shared() const { return is_shared_; }

  void swap(mapped_file& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(is_shared_, other.is_shared_);
    path_.swap(other.path_);
  }

 private:
  status map(int descriptor, const std::string& path, bool writable) {
    struct ::stat facts = {};
    if (::fstat(descriptor, &facts) != 0)
      return refuse(error_code::bad_file, path, "a readable file", detail::errno_text(errno));
    if (!S_ISREG(facts.st_mode))
      return refuse(error_code::bad_file, path, "a regular file",
                    S_ISDIR(facts.st_mode) ? "a folder" : "a pipe, socket or device");
    size_ = static_cast<std::size_t>(facts.st_size);
    if (size_ > 0) {
      const int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
      void* mapped = ::mmap(nullptr, size_, access, MAP_SHARED, descriptor, 0);
      if (mapped == MAP_FAILED && !writable) {  // some file systems have no shared mappings
        mapped = ::mmap(nullptr, size_, access, MAP_PRIVATE, descriptor, 0);
        is_shared_ = false;
      }
      if (mapped == MAP_FAILED) {
        size_ = 0;
        return refuse(error_code::bad_file, path, "a file that can be mapped", detail::errno_text(errno));
      }
      data_ = mapped;
    }
    path_ = path;
    return {};
  }

  void* data_ = nullptr;
  std::size_t size_ = 0;
  bool is_shared_ = true;
  std::string path_;
};

static_assert(std::is_nothrow_move_constructible_v<mapped_file> && !std::is_copy_constructible_v<mapped_file>);

}  // namespace wreload
