#pragma once
/// Checkpoints of the plain reference, written to files.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <wreload/source/checkpoint.hpp>

#include "../update/engine.hpp"

namespace wreload::test {

/// A checkpoint of the reference as files; data begins anywhere and tensors lie in any order, without alignment.
class checkpoint_files {
 public:
  checkpoint_files(const reference::checkpoint& all, int count, std::uint64_t seed) {
    std::string name = (std::filesystem::temp_directory_path() / "wreload-feed-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    noise random(seed);
    std::vector<std::vector<std::pair<std::string, const reference::tensor*>>> split(static_cast<std::size_t>(count));
    for (const auto& [tensor, value] : all) {
      auto& into = split[static_cast<std::size_t>(random.below(count))];
      into.insert(into.begin() + random.below(static_cast<std::int64_t>(into.size()) + 1), {tensor, &value});
    }
    for (std::size_t i = 0; i < split.size(); ++i) write(i, split[i], random);
    must(opened_.open(folder_.string()));
  }
  checkpoint_files(const checkpoint_files&) = delete;  // owns a folder
  checkpoint_files& operator=(const checkpoint_files&) = delete;
  ~checkpoint_files() { std::filesystem::remove_all(folder_); }

  const checkpoint& operator*() const { return opened_; }
  std::span<const checkpoint_tensor> tensors() const { return opened_.tensors(); }
  std::int64_t bytes() const {
    std::int64_t total = 0;
    for (const checkpoint_tensor& each : tensors()) total += each.tensor.bytes();
    return total;
  }

 private:
  template <class List>
  void write(std::size_t index, const List& tensors, noise& random) {
    std::string header = "{", data;
    for (const auto& [name, value] : tensors) {
      const std::size_t begin = data.size();
      data.append(reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
      header += (header.size() > 1 ? ",\"" : "\"") + name + "\":{\"dtype\":\"" + std::string(name_of(value->type)) +
                "\",\"shape\":" + to_string(shape_of(value->sizes)) + ",\"data_offsets\":[" + std::to_string(begin) +
                "," + std::to_string(data.size()) + "]}";
    }
    header += "}" + std::string(static_cast<std::size_t>(random.below(9)), ' ');
    std::ofstream out(folder_ / (std::to_string(index) + ".safetensors"), std::ios::binary);
    for (unsigned i = 0; i < 8; ++i) out.put(static_cast<char>(header.size() >> (8U * i)));
    out << header << data;
  }

  std::filesystem::path folder_ = {};
  checkpoint opened_ = {};
};

}  // namespace wreload::test
