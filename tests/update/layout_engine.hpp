#pragma once
/// One or more layers of a layout of the test's own, on poisoned memory, without the reference: for policies that the
/// plain reference does not know (Kept, Static, SameAs).

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine.hpp"

namespace wreload::test {

/// A tensor made of the bytes of some values.
template <class Value>
reference::tensor tensor_of(dtype type, reference::dims sizes, const std::vector<Value>& values) {
  reference::tensor made{type, std::move(sizes), std::vector<std::byte>(values.size() * sizeof(Value))};
  if (!values.empty()) std::memcpy(made.bytes.data(), values.data(), made.bytes.size());
  return made;
}
/// fp32 [count], all of one value.
inline reference::tensor floats(std::int64_t count, float value) {
  return tensor_of(dtype::fp32, {count}, std::vector<float>(static_cast<std::size_t>(count), value));
}
/// bf16 [count], all of one code.
inline reference::tensor halves(std::int64_t count, std::uint16_t code) {
  return tensor_of(dtype::bf16, {count}, std::vector<std::uint16_t>(static_cast<std::size_t>(count), code));
}

template <class Executor>
class layout_engine {
 public:
  wr::model<Executor>& model() { return model_; }
  test_memory<Executor>& memory() { return memory_; }

  template <class Layout>
  void add(std::string_view layer, const extents& sizes) {
    status refused;
    std::vector<storage> places;
    for (const storage_need& need : storage_plan<Layout>(layer, sizes, &refused)) {
      names_.push_back(need.name);
      bytes_.push_back(need.bytes);
      data_.push_back(memory_.allocate(need.bytes, std::byte{0xA5}));
      places.emplace_back(data_.back());
    }
    must(refused);
    if (memory_.arena() != nullptr) must(model_.use(*memory_.arena()));
    must(model_.add(Layout::specs, layer, sizes, places));
  }

  update<Executor> start(const start_options& options = {}) {
    status refused;
    update<Executor> opened = model_.start(in_mode_under_test(options), &refused);
    must(refused);
    return opened;
  }
  tensor_ref place(const reference::tensor& from) {
    const placed_source at = memory_.place(from.bytes.data(), static_cast<std::int64_t>(from.bytes.size()));
    return {.data = at.data, .type = from.type, .extents = shape_of(from.sizes), .memory = at.memory};
  }
  std::vector<std::byte> bytes(std::string_view name) const {
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (names_[i] == name) {
        std::vector<std::byte> found(static_cast<std::size_t>(bytes_[i]));
        memory_.read(found.data(), data_[i], bytes_[i]);
        return found;
      }
    throw std::logic_error("no tensor " + std::string(name));
  }
  /// Every byte of every tensor, by runtime name.
  std::map<std::string, std::vector<std::byte>> image() const {
    std::map<std::string, std::vector<std::byte>> all;
    for (const std::string& name : names_) all[name] = bytes(name);
    return all;
  }
  std::byte* data(std::string_view name) const {
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (names_[i] == name) return data_[i];
    throw std::logic_error("no tensor " + std::string(name));
  }

 private:
  test_memory<Executor> memory_ = {};
  std::vector<std::string> names_ = {};
  std::vector<std::int64_t> bytes_ = {};
  std::vector<std::byte*> data_ = {};
  wr::model<Executor> model_ = wr::model<Executor>();
};

/// Tags and layouts for these tests.
namespace tags {
struct weight {
  static constexpr std::string_view name = "weight";
};
struct input_scale {
  static constexpr std::string_view name = "input_scale";
};
struct alternative {
  static constexpr std::string_view name = "alternative";
};
struct table {
  static constexpr std::string_view name = "table";
};
}  // namespace tags

/// bf16 weight, fp32 input scale that senders may leave out; all vectors of the extents' rows.
struct KeptScale
    : ParamLayout<Param<tags::weight, StorageView<bf16>>, Param<tags::input_scale, StorageView<fp32>, Kept>> {};
/// The same with a second name for the kept value.
struct KeptTwin : ParamLayout<Param<tags::weight, StorageView<bf16>>,
                              Param<tags::input_scale, StorageView<fp32>, Kept, SameAs<tags::alternative>>> {};
struct TwinWeight : ParamLayout<Param<tags::weight, StorageView<bf16>, SameAs<tags::alternative>>> {};
/// A weight, and a table without a source.
struct StaticTable
    : ParamLayout<Param<tags::weight, StorageView<bf16>>, Param<tags::table, StorageView<fp32>, Static>> {};

/// Extents of a vector.
inline extents vector_of(std::string module, std::int64_t rows) {
  return {.shards = {{.module = std::move(module), .rows = rows}}};
}

}  // namespace wreload::test
