#pragma once
/// Buckets for tests: deliveries cut into blocks of memory, which come with other bytes at other addresses each time.

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "generators.hpp"

namespace wreload::test {

/// What an executor under test is made with, so that it has room for plans.
template <class Executor>
struct plan_room {
  static std::tuple<> options() { return {}; }
};

/// An executor with room for plans that counts how often a table is replayed, and fails when a test says so.
template <class Executor>
class planning_executor : public Executor {
 public:
  using lane = typename Executor::lane;

  planning_executor() : planning_executor(plan_room<Executor>::options()) {}

  std::int64_t replays = 0;
  std::int64_t replays_left = -1;  ///< the replay that finds it at zero fails
  std::int64_t lands = 0;

  status land(lane& on, std::span<const land_job> jobs) {
    ++lands;
    return Executor::land(on, jobs);
  }
  status replay(lane& on, const typename Executor::table& kept, std::ptrdiff_t shift) {
    ++replays;
    if (replays_left >= 0 && replays_left-- == 0)
      return refuse(error_code::execution_failed, "replay", "success", "a failure that the test asked for");
    return Executor::replay(on, kept, shift);
  }

 private:
  template <class... Options>
  explicit planning_executor(const std::tuple<Options...>& options) : Executor(std::get<Options>(options)...) {}
};

/// A host executor that is to a caller as one of a device: no table names pageable memory.
class device_like_executor : public host_executor {
 public:
  static constexpr bool converts_from(memory_kind where) { return where != memory_kind::pageable; }

  status land(lane& on, std::span<const land_job> jobs) {
    status landed = host_executor::land(on, jobs);
    for (const land_job& job : jobs)
      if (on.kept != nullptr && !converts_from(job.memory)) on.kept->whole = false;
    return landed;
  }
};
template <>
class test_memory<device_like_executor> : public test_memory<host_executor> {
 public:
  placed_source place(const void* bytes, std::int64_t count) {
    return {test_memory<host_executor>::place(bytes, count).data, memory_kind::device};
  }
};
template <>
struct launch_memory<device_like_executor> : launch_memory<host_executor> {};

template <class Executor>
class test_memory<planning_executor<Executor>> : public test_memory<Executor> {};
template <class Executor>
struct launch_memory<planning_executor<Executor>> : launch_memory<Executor> {};

/// Whether updates of the mode under test make plans.
inline bool makes_plans() { return mode_under_test() == update_mode::direct || mode_under_test() == update_mode::swap; }

/// Tensors of the same names, dtypes and shapes, with other bytes.
inline reference::checkpoint other_bytes(const reference::checkpoint& than, std::uint64_t seed) {
  noise random(seed);
  reference::checkpoint made;
  for (const auto& [name, value] : than)
    made[name] = random_tensor(value.type, value.sizes, name.ends_with("_scale_inv") || name.ends_with("weight_scale_2"), random);
  return made;
}

/// The bytes of a parcel, taken from another checkpoint.
inline std::vector<std::byte> bytes_of_parcel(const parcel& of, const reference::checkpoint& all) {
  auto found = all.find(of.name);
  if (found == all.end()) found = all.find(of.name + "_inv");  // Quark's spelling
  const reference::tensor& from = found->second;
  const int rank = of.extents.rank();
  std::vector<std::byte> bytes(of.bytes.size(), std::byte{0xEE});
  const auto element = static_cast<std::size_t>(bytes_of(of.type));
  shape index = of.extents;
  for (int dim = 0; dim < rank; ++dim) index[dim] = 0;
  for (std::int64_t i = 0; i < of.extents.elements(); ++i) {
    std::int64_t source = 0, target = 0, dense = 0;
    for (int dim = 0; dim < rank; ++dim) {
      source = source * from.sizes[static_cast<std::size_t>(dim)] + (of.part.whole ? 0 : of.part.offset[dim]) + index[dim];
      dense = dense * of.extents[dim] + index[dim];
      if (of.strides.rank() != 0) target += index[dim] * of.strides[dim];
    }
    if (of.strides.rank() == 0) target = dense;
    std::memcpy(bytes.data() + static_cast<std::size_t>(target) * element,
                from.bytes.data() + static_cast<std::size_t>(source) * element, element);
    for (int dim = rank - 1; dim >= 0 && ++index[dim] == of.extents[dim]; --dim) index[dim] = 0;
  }
  return bytes;
}

/// A parcel for a whole tensor.
inline parcel whole_parcel(const std::string& name, const reference::tensor& from) {
  parcel made{.name = name, .type = from.type, .extents = shape_of(from.sizes), .bytes = from.bytes};
  return made;
}

/// Parcels in one block.
struct test_bucket {
  std::vector<parcel> parcels = {};
  std::vector<std::int64_t> places = {};
  std::int64_t bytes = 0;
  std::uint64_t manifest = 0;  ///< 0: the library computes it

  void add(const parcel& more, std::int64_t alignment) {
    places.push_back((bytes + alignment - 1) / alignment * alignment);
    bytes = places.back() + static_cast<std::int64_t>(more.bytes.size());
    parcels.push_back(more);
  }
};

/// Where pieces of a bucket seem to lie: built once, whatever the block is.
inline constexpr std::uintptr_t bucket_base = std::uintptr_t{1} << 20;

/// A block that lies `misalignment` bytes behind a multiple of 16, and pieces for it.
template <class Executor>
class placed_bucket {
 public:
  placed_bucket(test_memory<Executor>& memory, const test_bucket& of, const reference::checkpoint& all,
                std::int64_t misalignment)
      : of_(std::make_shared<const test_bucket>(of)), manifest_(of.manifest), bytes_(of.bytes) {
    std::vector<std::byte> block(static_cast<std::size_t>(of.bytes + 64));
    placed_source at = memory.place(block.data(), of.bytes + 64);
    while (at.memory == memory_kind::pinned || (at.memory == memory_kind::pageable && !reads_pageable()))
      at = memory.place(block.data(), of.bytes + 64);
    const auto address = reinterpret_cast<std::uintptr_t>(at.data);
    data_ = static_cast<const std::byte*>(at.data) + (address + 15) / 16 * 16 + static_cast<std::uintptr_t>(misalignment) - address;
    for (std::size_t i = 0; i < of.parcels.size(); ++i) {
      const parcel& each = of_->parcels[i];
      const std::vector<std::byte> bytes = bytes_of_parcel(each, all);
      if (!bytes.empty()) std::memcpy(block.data() + of.places[i], bytes.data(), bytes.size());
      const auto place = bucket_base + static_cast<std::uintptr_t>(of.places[i]);
      tensor_ref tensor{bytes.empty() ? nullptr : reinterpret_cast<const void*>(place), each.type, each.extents, each.strides, at.memory};
      pieces_.push_back({.name = each.name, .tensor = tensor, .part = each.part, .form = each.form});
    }
    memory.write(const_cast<std::byte*>(data_), block.data(), of.bytes);
  }

  bucket get() const {
    return {.pieces = pieces_, .manifest = manifest_, .base = reinterpret_cast<const void*>(bucket_base), .data = data_, .bytes = bytes_};
  }
  void mark(memory_kind as) {
    for (piece& each : pieces_) each.tensor.memory = as;
  }
  memory_kind memory() const { return pieces_.front().tensor.memory; }
  /// The same as pieces that name the block itself.
  std::vector<piece> pieces() const {
    std::vector<piece> all = pieces_;
    for (piece& each : all)
      if (each.tensor.data != nullptr)
        each.tensor.data = data_ + (reinterpret_cast<std::uintptr_t>(each.tensor.data) - bucket_base);
    return all;
  }

 private:
  static constexpr bool reads_pageable() { return Executor::converts_from(memory_kind::pageable); }

  std::shared_ptr<const test_bucket> of_;  ///< its names are the pieces'
  std::uint64_t manifest_;
  std::int64_t bytes_;
  const std::byte* data_ = nullptr;
  std::vector<piece> pieces_ = {};
};

/// Cuts a delivery into buckets of up to `most` parcels.
inline std::vector<test_bucket> draw_buckets(const std::vector<parcel>& all, std::int64_t most) {
  std::vector<test_bucket> made;
  std::int64_t left = 0;
  const bool numbered = one_in(2);
  for (const parcel& each : all) {
    if (left == 0) {
      made.emplace_back();
      if (numbered) made.back().manifest = made.size();
      left = draw_small(1, most);
    }
    made.back().add(each, std::int64_t{1} << (2 * draw_small(0, 2)));
    --left;
  }
  return made;
}

inline std::vector<std::size_t> draw_order(std::size_t count) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < count; ++i) order.push_back(i);
  noise random(draw_seed());
  for (std::size_t i = count; i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  return order;
}

/// What two updates that brought the same tensors report alike.
inline std::string told_by(const report& of) {
  std::string text;
  const auto add = [&](const load_count& each) { text += std::to_string(each.tensors) + "/" + std::to_string(each.bytes) + " "; };
  add(of.loaded);
  for (const load_count& each : of.by_dtype) add(each);
  add(of.not_needed);
  add(of.ignored);
  add(of.foreign);
  // Rows that lie aside are counted by runs, which depend on the order.
  for (const std::int64_t each : {of.not_sent, makes_plans() ? of.converted_rows : 0, of.aliased, of.bound, of.shared_bytes})
    text += std::to_string(each) + " ";
  for (const std::string& each : of.warnings) text += each + "; ";
  return text;
}

}  // namespace wreload::test
