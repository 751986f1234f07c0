#pragma once
/// A checkpoint on disk: one safetensors file, or a Hugging Face style folder of them.

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dirent.h>
#include <sys/stat.h>

#include "../core/status.hpp"
#include "../core/tensor_ref.hpp"
#include "checkpoint_json.hpp"
#include "safetensors.hpp"
#include "safetensors_header.hpp"

namespace wreload {

/// One tensor of a checkpoint.
struct checkpoint_tensor {
  std::string_view name;          ///< lives as long as the checkpoint is open
  tensor_ref tensor;              ///< row-major, in the mapping of its file
  int file = 0;                   ///< position in `checkpoint::file`
  std::int64_t offset_bytes = 0;  ///< from the start of the file's data section
  bool is_shared = true;          ///< the mapping: see `mapped_file`
};

namespace detail {

inline bool exists(const std::string& path) {
  struct ::stat facts = {};
  return ::lstat(path.c_str(), &facts) == 0;  // a dangling link is there: opening it says what is wrong
}

}  // namespace detail

/// Owns the files of a checkpoint; move-only. Names and data stay where they are when it moves.
class checkpoint {
 public:
  /// Opens one file, or a folder: with `model.safetensors.index.json` exactly the files and tensors that it names,
  /// without it every `*.safetensors`. `config.json` beside the tensors may give the block size.
  ///
  /// Errors: bad_file; the object then is as before. Besides what `safetensors_file::open` refuses: a path that is
  ///         neither, a folder without tensors, a name in two files, and an index that is not valid, leads out of the
  ///         folder, names a file or tensor that is not there, or leaves one out; a `config.json` that is not valid.
  [[nodiscard]] status open(const std::string& path, file_mapping how = file_mapping::read_only) {
    checkpoint opened;
    opened.path_ = path;
    opened.mapping_ = how;
    struct ::stat facts = {};
    if (::stat(path.c_str(), &facts) != 0)
      return refuse(error_code::bad_file, path, "a safetensors file or a folder", detail::errno_text(errno));
    const bool folder = S_ISDIR(facts.st_mode);
    const std::string beside = path.substr(0, path.rfind('/') + 1);  // npos + 1 is 0: the working directory
    status result = folder ? opened.open_folder() : opened.open_files({path});
    if (result.ok()) result = opened.read_config(folder ? opened.inside("config.json") : beside + "config.json");
    if (result.ok()) *this = std::move(opened);
    return result;
  }

  /// In file order: files by name, tensors by data offset.
  std::span<const checkpoint_tensor> tensors() const { return tensors_; }
  /// Null where no tensor has this name.
  const checkpoint_tensor* find(std::string_view name) const {
    const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                     [&](std::uint32_t i, std::string_view key) { return tensors_[i].name < key; });
    return at == by_name_.end() || tensors_[*at].name != name ? nullptr : &tensors_[*at];
  }
  /// As given to `open`.
  const std::string& path() const { return path_; }
  std::span<const safetensors_file> files() const { return files_; }
  /// Rows and columns of a block-FP8 scale, from `config.json`; empty where that file or key is absent.
  std::optional<std::pair<int, int>> weight_block_size() const { return weight_block_size_; }

 private:
  std::string inside(std::string_view name) const {
    return path_ + (path_.ends_with('/') ? "" : "/") + std::string(name);
  }

  status open_folder() {
    std::vector<std::string> names;
    {
      const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path_.c_str()), &::closedir);
      if (folder == nullptr) return refuse(error_code::bad_file, path_, "a readable folder", detail::errno_text(errno));
      while (const dirent* const item = ::readdir(folder.get()))
        if (std::string_view(item->d_name).ends_with(".safetensors")) names.emplace_back(item->d_name);
    }
    std::sort(names.begin(), names.end());
    const std::string index_path = inside("model.safetensors.index.json");
    const bool indexed = detail::exists(index_path);
    detail::index_reader index;
    if (indexed) {
      if (status result = detail::read_json_file(index_path, index); !result.ok()) return result;
      if (status result = check_index_files(index_path, index, names); !result.ok()) return result;
    }
    if (names.empty()) return refuse(error_code::bad_file, path_, "*.safetensors files in the folder", "none");
    std::vector<std::string> paths;
    for (const std::string& name : names) paths.push_back(inside(name));
    if (status result = open_files(paths); !result.ok()) return result;
    return indexed ? check_index_tensors(index_path, index, names) : status{};
  }

  status open_files(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      const int file = static_cast<int>(files_.size());
      files_.emplace_back();
      if (status result = files_.back().open(path, mapping_); !result.ok()) return result;
      const auto entries = files_.back().entries();
      for (std::size_t i = 0; i < entries.size(); ++i)
        tensors_.push_back({entries[i].name, files_.back().tensor(i), file, entries[i].begin,
                            files_.back().is_shared()});
    }
    by_name_.resize(tensors_.size());
    std::iota(by_name_.begin(), by_name_.end(), 0U);
    std::sort(by_name_.begin(), by_name_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return tensors_[a].name != tensors_[b].name ? tensors_[a].name < tensors_[b].name : a < b;
    });
    for (std::size_t i = 1; i < by_name_.size(); ++i) {
      const checkpoint_tensor& a = tensors_[by_name_[i - 1]];
      const checkpoint_tensor& b = tensors_[by_name_[i]];
      if (a.name == b.name)
        return refuse(error_code::bad_file, path_ + ": " + detail::shown(a.name), "one file with this tensor",
                      paths[static_cast<std::size_t>(a.file)] + " and " + paths[static_cast<std::size_t>(b.file)]);
    }
    return {};
  }

  /// Both ways: every file of the index is in the folder, every file in the folder is in the index.
  status check_index_files(const std::string& index_path, const detail::index_reader& index,
                           const std::vector<std::string>& names) const {
    const auto bad = [&](std::string_view name, const char* expected, std::string got) {
      return refuse(error_code::bad_file, index_path + ": " + detail::shown(name), expected, std::move(got));
    };
    if (!index.found) return refuse(error_code::bad_file, index_path, "a weight_map", "none");
    std::vector<bool> named(names.size(), false);
    for (const auto& [tensor, file] : index.map) {
      if (file.find_first_of("/\\") != std::string::npos || !file.ends_with(".safetensors"))
        return bad(tensor, "a .safetensors file of this folder", "\"" + detail::shown(file) + "\"");
      const auto at = std::lower_bound(names.begin(), names.end(), file);
      if (at == names.end() || *at != file) return bad(tensor, "a file that is there", detail::shown(file));
      named[static_cast<std::size_t>(at - names.begin())] = true;
    }
    for (std::size_t i = 0; i < names.size(); ++i)
      if (!named[i])
        return refuse(error_code::bad_file, inside(names[i]), "a file that model.safetensors.index.json names",
                      "one that it does not");
    return {};
  }

  /// Both ways: every tensor of the index is in its file, every tensor of the files is in the index.
  status check_index_tensors(const std::string& index_path, const detail::index_reader& index,
                             const std::vector<std::string>& names) const {
    std::vector<bool> named(tensors_.size(), false);
    for (const auto& [name, file] : index.map) {
      const checkpoint_tensor* const tensor = find(name);
      const std::string where = tensor == nullptr ? "no such tensor" : names[static_cast<std::size_t>(tensor->file)];
      const std::string param = index_path + ": " + detail::shown(name);
      if (where != file) return refuse(error_code::bad_file, param, "the tensor in " + file, where);
      const auto at = static_cast<std::size_t>(tensor - tensors_.data());
      if (named[at]) return refuse(error_code::bad_file, param, "the name once", "twice");
      named[at] = true;
    }
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (named[i]) continue;
      const std::string& file = files_[static_cast<std::size_t>(tensors_[i].file)].path();
      return refuse(error_code::bad_file, file + ": " + detail::shown(tensors_[i].name),
                    "a tensor that model.safetensors.index.json names", "one that it does not");
    }
    return {};
  }

  status read_config(const std::string& config_path) {
    if (!detail::exists(config_path)) return {};
    detail::config_reader config;
    if (status result = detail::read_json_file(config_path, config); !result.ok()) return result;
    if (!config.block.empty())
      weight_block_size_ = std::pair(static_cast<int>(config.block[0]), static_cast<int>(config.block[1]));
    return {};
  }

  std::string path_;
  file_mapping mapping_ = file_mapping::read_only;
  std::vector<safetensors_file> files_;
  std::vector<checkpoint_tensor> tensors_;
  std::vector<std::uint32_t> by_name_;
  std::optional<std::pair<int, int>> weight_block_size_;
};

}  // namespace wreload
