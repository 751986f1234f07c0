#pragma once
/// Parts of tensors in kernel order: claimed in checkpoint coordinates exactly, or refused by name.

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "closed_checks.hpp"
#include "nvfp4_engine.hpp"

namespace wreload::test {

/// A runtime tensor as its kernels see it: slots of matrices (rows, cols), in kernel order.
struct ordered_tensor {
  std::string name = {};
  dtype type = dtype::none;
  bool is_stack = false;
  bool swizzled = false;
  std::int64_t slots = 1;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t element_bytes = 1;  ///< 1 or 4

  /// Where in storage an element lies, in elements.
  std::size_t offset(std::int64_t slot, std::int64_t r, std::int64_t c) const {
    const std::int64_t within = swizzled ? r / 128 * (cols / 4) * 512 + c / 4 * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4
                                         : r * cols + c;
    return static_cast<std::size_t>(slot * rows * cols + within);
  }
};

/// A part of it: [slots, rows, cols].
struct ordered_part {
  const ordered_tensor* of = nullptr;
  std::array<std::int64_t, 3> first = {};
  std::array<std::int64_t, 3> count = {};

  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::int64_t s = first[0]; s < first[0] + count[0]; ++s)
      for (std::int64_t r = first[1]; r < first[1] + count[1]; ++r)
        for (std::int64_t c = first[2]; c < first[2] + count[2]; ++c) visit(s, r, c);
  }
};

/// What `load` is given for a part: its elements packed in an order of its own.
///
///   packing   0: dense; 1: a gap behind each slot; not swizzled also 2: a gap behind each row; 3: transposed
inline parcel pack_ordered(const ordered_part& part, const std::vector<std::byte>& storage, int packing) {
  const ordered_tensor& of = *part.of;
  const auto element = static_cast<std::size_t>(of.element_bytes);
  const auto [slots, rows, cols] = part.count;
  if (of.swizzled) packing = packing == 1 ? 1 : 0;
  const std::int64_t row_stride = packing == 3 ? 1 : packing == 2 ? cols + 3 : cols;
  const std::int64_t col_stride = packing == 3 ? rows : 1;
  const std::int64_t slot_stride = packing == 2 ? rows * (cols + 3) : rows * cols + (packing == 1 ? 5 : 0);
  const bool flat = !of.is_stack || (packing != 1 && (slots == 1 || (rows == of.rows && packing != 3)));
  parcel made{.name = of.name, .type = of.type, .bytes = std::vector<std::byte>(static_cast<std::size_t>(slots * slot_stride) * element, std::byte{0xEE})};
  made.part = flat ? box({part.first[0] * of.rows + part.first[1], part.first[2]}, {slots * rows, cols})
                   : box({part.first[0], part.first[1], part.first[2]}, {slots, rows, cols});
  made.extents = made.part.extent;
  if (packing != 0) made.strides = flat ? shape{row_stride, col_stride} : shape{slot_stride, row_stride, col_stride};
  const ordered_tensor own{.swizzled = true, .rows = rows, .cols = cols};
  part.for_each([&](std::int64_t s, std::int64_t r, std::int64_t c) {
    const std::int64_t down = r - part.first[1], right = c - part.first[2];
    const std::size_t within = of.swizzled ? own.offset(0, down, right) : static_cast<std::size_t>(down * row_stride + right * col_stride);
    const std::size_t to = static_cast<std::size_t>((s - part.first[0]) * slot_stride) + within;
    std::memcpy(&made.bytes[to * element], &storage[of.offset(s, r, c) * element], element);
  });
  return made;
}

/// Cuts a tensor into parts on its grid: slots, 128 rows (any where not swizzled), 4 columns (any).
inline void cut_ordered(std::vector<ordered_part>& out, const ordered_part& part, int depth) {
  const std::array<std::int64_t, 3> grid = {1, part.of->swizzled ? 128 : 1, part.of->swizzled ? 4 : 1};
  std::vector<std::size_t> cuttable;
  for (std::size_t dim = 0; dim < 3; ++dim)
    if (part.count[dim] > grid[dim]) cuttable.push_back(dim);
  if (depth == 0 || cuttable.empty() || draw_small(0, 4) == 0) {
    out.push_back(part);
    return;
  }
  const std::size_t dim = cuttable[static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(cuttable.size()) - 1))];
  const std::int64_t at = grid[dim] * draw(1, part.count[dim] / grid[dim] - 1);
  ordered_part low = part, high = part;
  low.count[dim] = at;
  high.first[dim] += at, high.count[dim] -= at;
  cut_ordered(out, low, depth - 1);
  cut_ordered(out, high, depth - 1);
}

using image_of = std::function<nv::image(const reference::checkpoint&)>;

/// Whether a checkpoint tensor is numbered: a matrix, of elements of 1 or 4 bytes.
inline bool is_matrix(const reference::tensor& value) { return value.sizes.size() == 2; }

/// Where each element of a runtime image comes from, by the reference alone: it is asked for the bytes of numbers that the
/// checkpoint's elements were given. 0: a pad.
class provenance {
 public:
  struct element {
    const std::string* source = nullptr;
    std::size_t index = 0;
  };

  provenance(const reference::checkpoint& all, const image_of& cold) {
    for (const auto& [name, value] : all)
      for (std::int64_t i = 0; is_matrix(value) && i < reference::product(value.sizes); ++i) elements_.push_back({&name, static_cast<std::size_t>(i)});
    for (std::uint32_t byte = 0; byte < 3; ++byte) {  // elements of 4 bytes hold their number each time
      reference::checkpoint numbered = all;
      std::uint32_t number = 0;
      for (auto& [name, value] : numbered) {
        const auto element = static_cast<std::size_t>(bytes_of(value.type));
        for (std::size_t i = 0; is_matrix(value) && i < value.bytes.size(); i += element) {
          const std::uint32_t code = element == 1 ? ++number >> (8 * byte) : ++number;
          std::memcpy(&value.bytes[i], &code, element);
        }
      }
      for (auto& [name, bytes] : cold(numbered)) images_[byte][name] = bytes;
    }
  }
  /// Number of the element that lies there.
  std::uint32_t at(const ordered_tensor& of, std::int64_t slot, std::int64_t r, std::int64_t c) const {
    const std::size_t offset = of.offset(slot, r, c);
    std::uint32_t number = 0;
    if (of.element_bytes == 4) {
      std::memcpy(&number, &images_[0].at(of.name)[offset * 4], 4);
      return number;
    }
    for (std::uint32_t byte = 0; byte < 3; ++byte) number |= std::to_integer<std::uint32_t>(images_[byte].at(of.name)[offset]) << (8 * byte);
    return number;
  }
  const element& operator[](std::uint32_t number) const { return elements_[number]; }

 private:
  std::vector<element> elements_ = {{}};
  std::array<nv::image, 3> images_ = {};
};

/// A piece on its way in either form.
struct formed_parcel {
  parcel sent = {};
  load_form form = load_form::checkpoint;
  bool holds = true;  ///< an element: not pads alone
};

/// What of a source was not sent yet, in rectangles.
inline void pack_rest(std::vector<formed_parcel>& out, const std::string& name, const reference::tensor& from, const std::vector<bool>& wanted) {
  const std::int64_t rows = from.sizes[0], cols = from.sizes[1];
  const auto runs_of = [&](std::int64_t r) {
    std::vector<std::pair<std::int64_t, std::int64_t>> runs;
    for (std::int64_t c = 0; c < cols; ++c)
      if (wanted[static_cast<std::size_t>(r * cols + c)]) {
        if (runs.empty() || runs.back().second != c) runs.emplace_back(c, c);
        runs.back().second = c + 1;
      }
    return runs;
  };
  for (std::int64_t row = 0, end = 0; row < rows; row = end) {
    const auto runs = runs_of(row);
    for (end = row + 1; end < rows && runs_of(end) == runs;) ++end;
    for (const auto& [begin, last] : runs)
      out.push_back({pack(name, from, {row, begin}, {end - row, last - begin}, one_in(3) ? static_cast<int>(draw(1, 3)) : 0)});
  }
}

/// Tensors of a model in kernel order that hold something.
template <class Executor>
std::vector<ordered_tensor> ordered_tensors(layout_engine<Executor>& tested) {
  std::vector<ordered_tensor> all;
  for (const param_record& param : tested.model().params()) {
    const shape& size = param.plan.extents;
    const param_kind kind = param.plan.spec.kind;
    if (param.plan.spec.is_computed() || kind == param_kind::per_shard || size.rank() < 2 || size.elements() == 0) continue;
    ordered_tensor made{.name = param.name(), .type = param.plan.spec.runtime, .is_stack = size.rank() == 3, .swizzled = param.plan.map.swizzled};
    made.element_bytes = bytes_of(made.type);
    if (made.is_stack) made.slots = size[0];
    made.rows = size[size.rank() - 2], made.cols = size[size.rank() - 1];
    all.push_back(made);
  }
  return all;
}

template <class Executor>
tensor_ref place_parcel(layout_engine<Executor>& tested, const parcel& each) {
  const placed_source at = tested.memory().place(each.bytes.data(), static_cast<std::int64_t>(each.bytes.size()));
  return {at.data, each.type, each.extents, each.strides, at.memory};
}

/// Sends a checkpoint, some of it in kernel order: random parts in any order, a duplicate and an off-grid cut among them,
/// and anything where pads are. Each checkpoint element has at most one place in storage.
template <class Executor>
void send_in_both_forms(layout_engine<Executor>& tested, const reference::checkpoint& all, const image_of& cold) {
  const provenance from(all, cold);
  nv::image image = cold(all);
  const std::vector<ordered_tensor> tensors = ordered_tensors(tested);
  std::vector<formed_parcel> pieces;
  std::map<std::string, std::vector<bool>> rest;
  for (const ordered_tensor& of : tensors) {
    const ordered_part whole{&of, {0, 0, 0}, {of.slots, of.rows, of.cols}};
    whole.for_each([&](std::int64_t s, std::int64_t r, std::int64_t c) {
      if (from.at(of, s, r, c) == 0) image.at(of.name)[of.offset(s, r, c) * static_cast<std::size_t>(of.element_bytes)] = std::byte{0x77};
    });
    std::vector<ordered_part> parts;
    cut_ordered(parts, whole, static_cast<int>(draw_small(0, 5)));
    for (const ordered_part& part : parts) {
      const bool in_order = !one_in(3);
      if (!in_order) {
        part.for_each([&](std::int64_t s, std::int64_t r, std::int64_t c) {
          const auto& [source, index] = from[from.at(of, s, r, c)];
          if (source == nullptr) return;
          std::vector<bool>& wanted = rest[*source];
          wanted.resize(static_cast<std::size_t>(reference::product(all.at(*source).sizes)));
          wanted[index] = true;
        });
        continue;
      }
      parcel sent = pack_ordered(part, image.at(of.name), static_cast<int>(draw_small(0, 3)));
      if (sent.type == dtype::fp4_e2m1x2 && one_in(2)) sent.type = dtype::u8;
      if (part.count == whole.count && one_in(2)) sent.part = {};
      bool holds = false;
      part.for_each([&](std::int64_t s, std::int64_t r, std::int64_t c) { holds |= from.at(of, s, r, c) != 0; });
      pieces.push_back({std::move(sent), load_form::runtime, holds});
    }
  }
  for (const auto& [name, wanted] : rest) pack_rest(pieces, name, all.at(name), wanted);
  for (const auto& [name, value] : all)  // scalars, and what this rank does not need
    if (!is_matrix(value)) pieces.push_back({pack(name, value, shape_of(reference::dims(value.sizes.size())), shape_of(value.sizes), 0)});
  noise random(draw_seed());
  for (std::size_t i = pieces.size(); i > 1; --i) std::swap(pieces[i - 1], pieces[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);

  update<Executor> open = tested.start();
  const auto load = [&](const formed_parcel& each) { return open.load(each.sent.name, place_parcel(tested, each.sent), each.sent.part, each.form); };
  const auto refuses = [&](const status& refused, error_code code, const std::string& name) {
    demand(refused.code == code, "not refused as it should be: " + refused.message());
    demand(refused.message().find(name) != std::string::npos, "'" + refused.message() + "' names no " + name);
  };
  const std::int64_t repeated = draw(0, static_cast<std::int64_t>(pieces.size()) - 1);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const bool is_needed = pieces[i].holds && pieces[i].sent.extents.rank() >= 2;  // scalars may be kept, or another rank's
    const std::string told = pieces[i].form == load_form::checkpoint ? pieces[i].sent.name : std::string();
    if (i + 1 == pieces.size() && is_needed) refuses(open.prepare(), error_code::incomplete, told);
    must(load(pieces[i]));
    if (static_cast<std::int64_t>(i) != repeated) continue;
    const auto before = tested.image();
    if (is_needed) refuses(load(pieces[i]), error_code::duplicate, told);
    demand(before == tested.image(), "a duplicate wrote");
    for (const ordered_tensor& of : tensors) {  // off the grid
      if (!of.swizzled) continue;
      const std::int64_t row = draw(0, of.slots * of.rows - 1), col = draw(0, of.cols - 1);
      const std::int64_t rows = draw(1, of.slots * of.rows - row), cols = draw(1, of.cols - col);
      if (row % 128 == 0 && rows % 128 == 0 && col % 4 == 0 && cols % 4 == 0) continue;
      const std::vector<std::byte> bytes(static_cast<std::size_t>(rows * cols), std::byte{0x5A});
      const placed_source at = tested.memory().place(bytes.data(), rows * cols);
      refuses(open.load(of.name, {at.data, of.type, {rows, cols}, {}, at.memory}, {{row, col}, {rows, cols}}, load_form::runtime), error_code::unsupported, of.name);
    }
    demand(before == tested.image(), "a refused cut wrote");
  }
  must(open.finish());
  tested.memory().drop_sources();
}

TEST_CASE_TEMPLATE_DEFINE("kernel order, laws 1, 5 and 6: NVFP4 in parts, some from the checkpoint, equals a cold start", Executor,
                          runtime_parts_nvfp4) {
  property("any parts on the grid, any order", [] {
    nv::layer of = one_in(2) ? draw_nvfp4_experts("layer") : draw_nvfp4_linear("layer");
    if (of.stacked) {  // no replicas: each element has one place
      std::sort(of.experts_local.begin(), of.experts_local.end());
      of.experts_local.erase(std::unique(of.experts_local.begin(), of.experts_local.end()), of.experts_local.end());
    }
    RC_LOG() << in_words({of});
    nvfp4_engine<Executor> tested({of});
    const auto a = nvfp4_checkpoint({of}, draw_seed()), b = nvfp4_checkpoint({of}, draw_seed());
    tested.reload(a);
    send_in_both_forms(tested, b, [&](const reference::checkpoint& from) { return nv::cold_image({of}, from); });
    tested.demand_cold(b);
  });
}

/// Halves that are padded by themselves, in each order that has them.
template <class... Steps>
struct Halves : ParamLayout<Param<tags::weight, StorageView<fp8_e4m3>, Map<Steps...>>> {};

TEST_CASE_TEMPLATE_DEFINE("kernel order: parts of padded, swapped, interleaved and shuffled halves", Executor, runtime_parts_halves) {
  property("any parts on the grid, any order", [] {
    const std::int64_t half = draw_small(1, 140), cols = draw_small(1, 9);
    const std::int64_t order = draw_small(0, 3);
    const extents sizes{.shards = {{.module = "w1", .rows = half}, {.module = "w3", .rows = half}}, .inner = {cols}};
    layout_engine<Executor> tested;
    if (order == 0) tested.template add<Halves<PadToMultiple<32, 4>, SwapHalves>>("l", sizes);
    if (order == 1) tested.template add<Halves<PadToMultiple<32, 4>, GatedInterleave, ShuffleRows<32>>>("l", sizes);
    if (order == 2) tested.template add<Halves<PadToMultiple<64, 4>, GatedInterleave, ShuffleRows<32>, Swizzle128x4>>("l", sizes);
    if (order == 3) tested.template add<Halves<SwapHalves, Swizzle128x4>>("l", sizes);
    must(tested.model().seal());
    const image_of cold = [&](const reference::checkpoint& from) {
      const std::int64_t multiple = order < 2 ? 32 : order == 2 ? 64 : 1;
      const std::int64_t padded = nv::round_up(half, multiple), width = order == 3 ? cols : nv::round_up(cols, 4);
      nv::matrix plain(2 * padded, width);
      for (const std::int64_t h : {0, 1})
        for (std::int64_t r = 0; r < half; ++r)
          for (std::int64_t c = 0; c < cols; ++c)
            plain.at((order == 0 || order == 3 ? 1 - h : h) * padded + r, c) = from.at(h == 0 ? "w1.weight" : "w3.weight").bytes[static_cast<std::size_t>(r * cols + c)];
      if (order == 1 || order == 2) plain = nv::gated(plain);
      if (order >= 2) plain = nv::swizzled(plain);
      return nv::image{{"l.weight", plain.bytes}};
    };
    noise random(draw_seed());
    for (int round = 0; round < 2; ++round) {
      reference::checkpoint all;
      for (const char* name : {"w1.weight", "w3.weight"}) all[name] = random_tensor(dtype::fp8_e4m3, {half, cols}, false, random);
      send_in_both_forms(tested, all, cold);
      demand(tested.bytes("l.weight") == cold(all).at("l.weight"), "kernel order");
      demand(tested.memory().guards_intact(), "a byte outside an allocation was written");
    }
  });
}

TEST_CASE_TEMPLATE_DEFINE("kernel order: the runtime tensors of two tensor-parallel ranks make the whole layer's", Executor, runtime_parts_ranks) {
  for (const reference::cut split : {reference::cut::column, reference::cut::row}) {
    nv::layer whole = nvfp4_linear("l", {{"a", 256}}, 128);
    nvfp4_engine<Executor> tested({whole});
    const auto a = nvfp4_checkpoint({whole}, 1), b = nvfp4_checkpoint({whole}, 2);
    tested.reload(a);
    update<Executor> open = tested.start();
    for (int rank = 0; rank < 2; ++rank) {
      nv::layer half = whole;
      half.split = split, half.tp_size = 2, half.tp_rank = rank;
      const nv::image image = nv::cold_image({half}, b);
      for (const auto& [name, type, cols] : {std::tuple<const char*, dtype, std::int64_t>{"l.weight", dtype::u8, 64}, {"l.weight_scale_interleaved", dtype::fp8_e4m3, 8}}) {
        const bool by_rows = split == reference::cut::column;
        const shape size = by_rows ? shape{128, cols} : shape{256, cols / 2};
        const shape first = by_rows ? shape{128 * rank, 0} : shape{0, rank * cols / 2};
        const auto& bytes = image.at(name);
        const placed_source at = tested.memory().place(bytes.data(), static_cast<std::int64_t>(bytes.size()));
        must(open.load(name, {at.data, type, size, {}, at.memory}, {first, size}, load_form::runtime));
      }
      if (rank == 0) check_refused(open.load("a.weight_scale", tested.place(b.at("a.weight_scale"))), error_code::duplicate, "a.weight_scale");
    }
    tested.send(open, named(named(b, ".weight", false), ".weight_scale", false));
    must(open.finish());
    tested.demand_cold(b);
  }
}

TEST_CASE_TEMPLATE_DEFINE("kernel order: experts come one by one; a replica's slot is its own, the checkpoint's tensor fills both", Executor, runtime_parts_experts) {
  for (const nv::backend to : {nv::backend::cutlass, nv::backend::trtllm}) {
    nv::layer of = nvfp4_experts("x", 3, 64, 128, to);
    of.experts_local = {2, 0, 2};
    nvfp4_engine<Executor> tested({of});
    const auto a = nvfp4_checkpoint({of}, 1), b = nvfp4_checkpoint({of}, 2);
    tested.reload(a);
    const nv::image image = nv::cold_image({of}, b);
    const std::vector<ordered_tensor> tensors = ordered_tensors(tested);
    REQUIRE(tensors.size() == 4);
    const auto names = tested.names_of(b);
    update<Executor> open = tested.start();
    const auto load_slot = [&](const ordered_tensor& each, std::int64_t slot, int packing) {
      const parcel sent = pack_ordered({&each, {slot, 0, 0}, {1, each.rows, each.cols}}, image.at(each.name), packing);
      return open.load(each.name, place_parcel(tested, sent), sent.part, load_form::runtime);
    };
    for (const ordered_tensor& each : tensors) {
      must(load_slot(each, 0, 0));
      check_refused(load_slot(each, 0, 1), error_code::duplicate, "x.2.");
    }
    check_refused(open.load("x.2.down_proj.weight", tested.place(b.at("x.2.down_proj.weight"))), error_code::duplicate, "x.2.down_proj.weight");
    check_incomplete(tested, open, "x.");
    for (const ordered_tensor& each : tensors) must(load_slot(each, 2, 1));
    for (const auto& [name, value] : b)
      if (!name.starts_with("x.2.") || bytes_of(value.type) != 1) must(open.load(name, tested.place(value)));
    must(open.finish());
    tested.demand_cold(b);

    // Taken back by the checkpoint's name: one slot's landing and the other's.
    const std::vector<std::string_view> some = {"x.0.up_proj.weight", "x.2.up_proj.weight"};
    update<Executor> again = tested.start({.scope = update_scope::partial(some)});
    const ordered_tensor& w13 = *std::find_if(tensors.begin(), tensors.end(), [](const auto& each) { return each.name == "x.w13_weight"; });
    const parcel slot = pack_ordered({&w13, {1, 0, 0}, {1, w13.rows, w13.cols}}, image.at(w13.name), 0);
    check_refused(again.load(slot.name, place_parcel(tested, slot), slot.part, load_form::runtime), error_code::out_of_scope, "x.0.gate_proj.weight");
    if (to == nv::backend::cutlass) {  // up lies above gate
      const parcel up = pack_ordered({&w13, {1, 0, 0}, {1, w13.rows / 2, w13.cols}}, image.at(w13.name), 2);
      must(again.load(up.name, place_parcel(tested, up), up.part, load_form::runtime));
      must(again.retract("x.0.up_proj.weight"));
      must(again.load(up.name, place_parcel(tested, up), up.part, load_form::runtime));
    } else {
      must(again.load("x.0.up_proj.weight", tested.place(b.at("x.0.up_proj.weight"))));
    }
    must(again.load("x.2.up_proj.weight", tested.place(b.at("x.2.up_proj.weight"))));
    must(again.finish());
    tested.demand_cold(b);
  }
}

TEST_CASE_TEMPLATE_DEFINE("kernel order, law 5: what cannot be claimed exactly is refused by name, and a refused batch gives back what it claimed", Executor, runtime_parts_refused) {
  nvfp4_engine<Executor> tested({nvfp4_linear("l", {{"a", 256}}, 128)});
  const auto a = nvfp4_checkpoint(tested.layers(), 1), b = nvfp4_checkpoint(tested.layers(), 2);
  tested.reload(a);
  const nv::image image = nv::cold_image(tested.layers(), b);
  const char* name = "l.weight_scale_interleaved";
  const placed_source at = tested.memory().place(image.at(name).data(), 256 * 8);
  const auto part = [&](shape first, shape size, shape strides = {}) {
    return piece{.name = name, .tensor = {at.data, dtype::fp8_e4m3, size, strides, at.memory}, .part = {first, size}, .form = load_form::runtime};
  };
  update<Executor> open = tested.start();
  const auto before = tested.image();
  const auto refused = [&](const piece& one, error_code code, std::string_view text) {
    const piece batch[] = {part({0, 0}, {128, 8}), one};
    check_refused(open.load(batch), code, text);
    CHECK(before == tested.image());
  };
  refused(part({128, 0}, {64, 8}), error_code::unsupported, "l.weight_scale_interleaved: expected a part cut on 128 rows and 4 columns (Swizzle128x4), got [128, 0] + [64, 8]");
  refused(part({64, 0}, {128, 8}), error_code::unsupported, name);
  refused(part({128, 2}, {128, 4}), error_code::unsupported, name);
  refused(part({128, 0}, {128, 3}), error_code::unsupported, name);
  refused(part({128, 0}, {128, 8}, {1, 128}), error_code::unsupported, "l.weight_scale_interleaved: expected dense bytes in 128x4 order (Swizzle128x4), got a strided tensor");
  refused(part({128, 0}, {128, 4}, {8, 1}), error_code::unsupported, name);  // columns of a row-major matrix are none of a swizzled one
  refused(part({256, 0}, {128, 8}), error_code::wrong_shape, name);
  refused(part({0, 0}, {128, 4}), error_code::duplicate, "a.weight_scale");
  refused({.name = "l.weight", .tensor = {at.data, dtype::u8, {3, 256, 2}, {}, at.memory}, .form = load_form::runtime}, error_code::wrong_shape, "l.weight");
  const piece both[] = {part({128, 4}, {128, 4}), part({0, 0}, {128, 8}), part({128, 0}, {128, 4})};
  must(open.load(both));  // the bytes of the storage's beginning, three times
  tested.send(open, named(b, ".weight_scale", false));
  must(open.finish());
  std::vector<std::byte> scales = image.at(name);
  for (const std::ptrdiff_t tile : {2, 3}) std::copy_n(scales.begin(), 512, scales.begin() + 512 * tile);
  CHECK(tested.bytes(name) == scales);
}

/// A weight in kernel order under two names.
struct ShuffledTwin : ParamLayout<Param<tags::weight, StorageView<bf16>, Map<ShuffleRows<32>>, SameAs<tags::alternative>>> {};
struct Shuffled : ParamLayout<Param<tags::weight, StorageView<bf16>, Map<ShuffleRows<32>>>> {};

TEST_CASE_TEMPLATE_DEFINE("kernel order: rows of wider elements, single rows and columns; a twin's are refused", Executor, runtime_parts_wide) {
  layout_engine<Executor> tested;
  tested.template add<ShuffledTwin>("twin", extents::matrix("twin", 32, 3));
  tested.template add<Shuffled>("one", extents::matrix("one", 64, 3));
  must(tested.model().seal());
  noise random(1);
  const reference::tensor value = random_tensor(dtype::bf16, {64, 3}, false, random), twin = random_tensor(dtype::bf16, {32, 3}, false, random);
  reference::tensor ordered = value;  // new[i] = old[src(i)]
  for (std::int64_t i = 0; i < 64; ++i)
    std::memcpy(&ordered.bytes[static_cast<std::size_t>(6 * i)], &value.bytes[static_cast<std::size_t>(6 * (32 * (i / 32) + 4 * (i % 8) + i % 32 / 8))], 6);
  update<Executor> open = tested.start();
  check_refused(open.load("twin.weight", tested.place(twin), {}, load_form::runtime), error_code::unsupported, "twin.weight");
  must(open.load("twin.weight", tested.place(twin)));
  const auto load = [&](shape first, shape size, int packing) {
    const parcel sent = pack("one.weight", ordered, first, size, packing);
    return open.load(sent.name, place_parcel(tested, sent), sent.part, load_form::runtime);
  };
  must(load({1, 0}, {1, 3}, 0));  // row 4 of the checkpoint
  const parcel row4 = pack("one.weight", value, {4, 2}, {1, 1}, 0), row5 = pack("one.weight", value, {5, 0}, {1, 3}, 0);
  check_refused(open.load("one.weight", place_parcel(tested, row4), row4.part), error_code::duplicate, "one.weight");
  must(open.load("one.weight", place_parcel(tested, row5), row5.part));
  check_refused(load({8, 0}, {2, 3}, 0), error_code::duplicate, "one.weight");  // rows 1 and 5
  check_refused(load({9, 1}, {1, 1}, 0), error_code::duplicate, "one.weight");
  must(load({0, 0}, {1, 3}, 2));
  must(load({2, 0}, {7, 3}, 1));
  must(load({10, 2}, {54, 1}, 3));
  check_incomplete(tested, open, "one.weight");
  must(load({10, 0}, {54, 2}, 2));
  must(open.finish());
  CHECK(tested.bytes("one.weight") == ordered.bytes);
}

}  // namespace wreload::test
