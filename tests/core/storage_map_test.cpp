// Storage maps: bijections over odd shapes, the worked tables of the formats, and slices.
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/core/storage_map.hpp>

#include "../property.hpp"

namespace wr = wreload;
using kind = wr::row_step_kind;
using wr::test::property;

namespace {

using list = std::vector<std::int64_t>;

constexpr std::int64_t up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// The swizzle of a matrix whose columns are padded to 4.
constexpr wr::storage_map swizzle(std::int64_t cols) {
  return {.swizzled = true, .tile_cols = up(cols, 4) / 4};
}

/// The transpose of elements of some bytes.
constexpr wr::storage_map mn_major(std::int64_t element) {
  return {.mn_major_bytes = element};
}

/// zero-pad -> view(mT, 4, 32, kT, 4) -> permute(0, 3, 2, 1, 4), as torch code writes it: where each row-major byte of
/// the padded matrix goes.
list reference_swizzle(std::int64_t rows, std::int64_t cols) {
  const std::int64_t row_tiles = up(rows, 128) / 128, col_tiles = up(cols, 4) / 4;
  list to(static_cast<std::size_t>(row_tiles * 128 * col_tiles * 4));
  std::int64_t next = 0;
  for (std::int64_t m = 0; m < row_tiles; ++m)
    for (std::int64_t k = 0; k < col_tiles; ++k)
      for (std::int64_t lane = 0; lane < 32; ++lane)
        for (std::int64_t group = 0; group < 4; ++group)
          for (std::int64_t c = 0; c < 4; ++c) {
            const std::int64_t from = ((((m * 4 + group) * 32 + lane) * col_tiles + k) * 4) + c;
            to[static_cast<std::size_t>(from)] = next++;
          }
  return to;
}

/// Index lists as TRT-LLM and FlashInfer make them: new[i] = old[list[i]].
list gather_shuffle(std::int64_t rows, std::int64_t block) {
  list old;
  for (std::int64_t first = 0; first < rows; first += block)
    for (std::int64_t start = 0; start < block / 8; ++start)
      for (std::int64_t i = 0; i < 8; ++i) old.push_back(first + start + i * (block / 8));
  return old;
}
list gather_interleave(std::int64_t rows) {
  list old;
  for (std::int64_t u = 0; u < rows / 2; ++u) {
    old.push_back(u);
    old.push_back(rows / 2 + u);
  }
  return old;
}
list gather_swap(std::int64_t rows) {
  list old(static_cast<std::size_t>(rows));
  std::iota(old.begin(), old.end(), 0);
  std::rotate(old.begin(), old.begin() + rows / 2, old.end());
  return old;
}
list gather(kind step, std::int64_t rows) {
  switch (step) {
    case kind::none: break;
    case kind::shuffle16: return gather_shuffle(rows, 16);
    case kind::shuffle32: return gather_shuffle(rows, 32);
    case kind::gated_interleave: return gather_interleave(rows);
    case kind::swap_halves: return gather_swap(rows);
  }
  list same(static_cast<std::size_t>(rows));
  std::iota(same.begin(), same.end(), 0);
  return same;
}
/// One gather after another: permute0[permute1].
list compose(const list& first, const list& second) {
  list both;
  for (const std::int64_t i : second) both.push_back(first[static_cast<std::size_t>(i)]);
  return both;
}

list sources(const wr::storage_map& map, std::int64_t rows) {
  list old;
  for (std::int64_t row = 0; row < rows; ++row) old.push_back(wr::unmap_row(map, row));
  return old;
}

/// How often a permutation, given by where index i goes, is applied until nothing moves; 0: not a dozen times.
int order(const list& to) {
  list now = to;
  for (int times = 1; times <= 12; ++times) {
    if (std::is_sorted(now.begin(), now.end())) return times;
    for (std::int64_t& place : now) place = to.at(static_cast<std::size_t>(place));
  }
  return 0;
}
list swizzled_places(std::int64_t rows, std::int64_t cols) {
  list to;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t col = 0; col < cols; ++col) to.push_back(wr::map_offset(swizzle(cols), row, col, 0));
  return to;
}
list row_places(const wr::storage_map& map, std::int64_t rows) {
  list to;
  for (std::int64_t row = 0; row < rows; ++row) to.push_back(wr::map_row(map, row));
  return to;
}

/// Every byte of a (rows, cols) slot has its own place below rows * pitch, and the inverse finds it.
bool is_bijection(const wr::storage_map& map, std::int64_t rows, std::int64_t cols, std::int64_t pitch) {
  std::vector<bool> taken(static_cast<std::size_t>(rows * pitch));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t col = 0; col < cols; ++col) {
      const std::int64_t offset = wr::map_offset(map, row, col, pitch);
      if (offset < 0 || offset >= rows * pitch || taken[static_cast<std::size_t>(offset)]) return false;
      taken[static_cast<std::size_t>(offset)] = true;
      if (wr::unmap_offset(map, offset, pitch) != wr::matrix_position{row, col}) return false;
    }
  return true;
}

constexpr std::array<std::int64_t, 7> odd_cols = {1, 4, 5, 8, 24, 37, 160};

}  // namespace

// Evaluated at compile time, and in 64 bits: row 2^31 of 2^20 columns, either way.
static_assert(wr::is_identity({}) && wr::keeps_rows({}));
static_assert(!wr::is_identity(swizzle(5)) && !wr::keeps_rows(swizzle(5)));
static_assert(!wr::is_identity({.steps = {{}, {kind::shuffle32, 0}}}));
static_assert(wr::keeps_rows({.steps = {{kind::shuffle32, 0}}}));
static_assert(wr::map_offset({}, std::int64_t{1} << 31, 3, std::int64_t{1} << 20) == (std::int64_t{1} << 51) + 3);
static_assert(wr::map_offset(swizzle(1 << 20), std::int64_t{1} << 31, 3, 0) == (std::int64_t{1} << 51) + 3);
static_assert(wr::unmap_offset(swizzle(1 << 20), (std::int64_t{1} << 51) + 16, 0) ==
              wr::matrix_position{(std::int64_t{1} << 31) + 1, 0});

TEST_CASE("128x4 swizzle: the worked table of a 200x5 matrix") {
  constexpr wr::storage_map map = swizzle(5);
  struct probe {
    std::int64_t row, col, offset;
  };
  constexpr probe probes[] = {{0, 0, 0},      {0, 4, 512},    {1, 0, 16},      {31, 3, 499},
                              {32, 0, 4},     {33, 1, 21},    {63, 4, 1012},   {64, 2, 10},
                              {96, 3, 15},    {127, 3, 511},  {127, 4, 1020},  {128, 0, 1024},
                              {129, 4, 1552}, {160, 3, 1031}, {199, 0, 1144},  {199, 4, 1656}};
  for (const auto& [row, col, offset] : probes) {
    CHECK(wr::map_offset(map, row, col, 8) == offset);
    CHECK(wr::unmap_offset(map, offset, 8) == wr::matrix_position{row, col});
  }
  constexpr probe inverse[] = {{0, 0, 0},     {0, 1, 1},   {32, 0, 4},    {1, 0, 16},
                               {127, 3, 511}, {0, 4, 512}, {127, 7, 1023}, {255, 7, 2047}};
  for (const auto& [row, col, offset] : inverse) {
    CHECK(wr::unmap_offset(map, offset, 8) == wr::matrix_position{row, col});
  }
  CHECK(wr::map_offset(map, 33, 1, 5) == 21);  // no row stride is read
}

TEST_CASE("128x4 swizzle: zero-pad, view, permute") {
  for (const std::int64_t cols : odd_cols)
    for (const std::int64_t rows : {1, 128, 200, 384}) {
      CAPTURE(rows);
      CAPTURE(cols);
      CHECK(swizzled_places(up(rows, 128), up(cols, 4)) == reference_swizzle(rows, cols));
      CHECK(is_bijection(swizzle(cols), up(rows, 128), up(cols, 4), up(cols, 4)));
    }
}

TEST_CASE("128x4 swizzle: applied again it restores nothing, save for 16 columns") {
  CHECK(order(swizzled_places(128, 4)) == 7);
  CHECK(order(swizzled_places(128, 8)) == 8);
  CHECK(order(swizzled_places(256, 8)) == 8);
  const list sixteen = swizzled_places(128, 16);
  CHECK(order(sixteen) == 2);
  std::int64_t fixed = 0;
  for (std::size_t i = 0; i < sixteen.size(); ++i) fixed += sixteen[i] == static_cast<std::int64_t>(i) ? 1 : 0;
  CHECK(fixed == 512);
}

static_assert(!wr::is_identity(mn_major(4)) && !wr::keeps_rows(mn_major(4)));
static_assert(wr::map_offset(mn_major(4), 3, (std::int64_t{1} << 33) + 1, std::int64_t{1} << 20) == (std::int64_t{1} << 51) + 13);

TEST_CASE("MN-major: element (row, col) is the row-th of storage row col") {
  // fp32 [3, 2], rows padded to 4: pitch 16 bytes.
  for (const auto& [row, col, element] : {std::array<std::int64_t, 3>{0, 0, 0}, {1, 0, 1}, {2, 0, 2}, {0, 1, 4}, {2, 1, 6}})
    for (std::int64_t byte = 0; byte < 4; ++byte) {
      CHECK(wr::map_offset(mn_major(4), row, 4 * col + byte, 16) == 4 * element + byte);
      CHECK(wr::unmap_offset(mn_major(4), 4 * element + byte, 16) == wr::matrix_position{row, 4 * col + byte});
    }
  CHECK(wr::unmap_offset(mn_major(4), 4 * 7, 16) == wr::matrix_position{3, 4});  // a pad
}

TEST_CASE("MN-major: a bijection with its inverse, whatever steps come before") {
  property("odd shapes, rows padded", [] {
    const auto step = *rc::gen::element(kind::none, kind::shuffle16, kind::shuffle32, kind::gated_interleave, kind::swap_halves);
    const std::int64_t element = *rc::gen::element<std::int64_t>(1, 2, 4, 8);
    const std::int64_t rows = step == kind::none ? *rc::gen::inRange<std::int64_t>(1, 70) : 32 * *rc::gen::inRange<std::int64_t>(1, 4);
    const std::int64_t cols = *rc::gen::oneOf(rc::gen::elementOf(odd_cols), rc::gen::inRange<std::int64_t>(1, 40));
    const std::int64_t pitch = up(rows, 4) + 4 * *rc::gen::inRange<std::int64_t>(0, 3);
    wr::storage_map map = mn_major(element);
    map.steps[1] = {step, rows / 2};
    std::vector<bool> taken(static_cast<std::size_t>(cols * pitch * element));
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t col = 0; col < cols * element; ++col) {
        const std::int64_t offset = wr::map_offset(map, row, col, pitch * element);
        RC_ASSERT(offset == (col / element * pitch + wr::map_row(map, row)) * element + col % element);
        RC_ASSERT(!taken[static_cast<std::size_t>(offset)]);
        taken[static_cast<std::size_t>(offset)] = true;
        RC_ASSERT((wr::unmap_offset(map, offset, pitch * element) == wr::matrix_position{row, col}));
      }
    const std::int64_t begin = *rc::gen::inRange<std::int64_t>(0, cols * element);
    RC_ASSERT(wr::contiguous_bytes(map, begin, cols * element) == element - begin % element);
    RC_ASSERT(wr::contiguous_bytes(map, begin, begin) == 0);
  });
}

TEST_CASE("row shuffles: the source lists of blocks 32 and 16, and their orders") {
  constexpr wr::storage_map by32 = {.steps = {{kind::shuffle32, 0}}};
  constexpr wr::storage_map by16 = {.steps = {{kind::shuffle16, 0}}};
  CHECK(sources(by32, 32) == list{0, 4, 8,  12, 16, 20, 24, 28, 1, 5, 9,  13, 17, 21, 25, 29,
                                  2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31});
  CHECK(sources(by16, 16) == list{0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15});
  CHECK(sources(by32, 160) == gather_shuffle(160, 32));
  CHECK(sources(by16, 80) == gather_shuffle(80, 16));
  CHECK(order(row_places(by32, 64)) == 5);
  CHECK(order(row_places(by16, 64)) == 4);
}

TEST_CASE("gated interleave, then shuffle: the worked table of I = 64, C = 8") {
  constexpr wr::storage_map map = {
      .steps = {{kind::gated_interleave, 64}, {kind::shuffle32, 0}}, .swizzled = true, .tile_cols = 2};
  struct probe {
    std::int64_t half, row, col, to, offset;
  };
  constexpr probe probes[] = {{0, 0, 0, 0, 0},    {0, 1, 0, 16, 256},  {1, 0, 0, 8, 128},
                              {0, 17, 5, 48, 773}, {1, 16, 2, 40, 134}, {1, 63, 7, 127, 1023}};
  for (const auto& [half, row, col, to, offset] : probes) {
    CHECK(wr::map_row(map, 64 * half + row) == to);
    CHECK(wr::map_offset(map, 64 * half + row, col, 0) == offset);
    CHECK(wr::unmap_offset(map, offset, 0) == wr::matrix_position{64 * half + row, col});
  }
  list first = sources(map, 128);
  first.resize(32);
  CHECK(first == list{0, 2, 4, 6, 8, 10, 12, 14, 64, 66, 68, 70, 72, 74, 76, 78,
                      1, 3, 5, 7, 9, 11, 13, 15, 65, 67, 69, 71, 73, 75, 77, 79});
}

TEST_CASE("gated interleave, then shuffle: composed index lists and closed forms") {
  for (const std::int64_t half : {16, 32, 48, 64, 128}) {
    CAPTURE(half);
    const wr::storage_map map = {.steps = {{kind::gated_interleave, half}, {kind::shuffle32, 0}}};
    const list composed = compose(gather_interleave(2 * half), gather_shuffle(2 * half, 32));
    CHECK(sources(map, 2 * half) == composed);
    for (std::int64_t i = 0; i < 2 * half; ++i)
      CHECK(composed[static_cast<std::size_t>(i)] == half * (i / 8 % 2) + 16 * (i / 32) + 2 * (i % 8) + i % 32 / 16);
    for (const std::int64_t h : {0, 1})
      for (std::int64_t u = 0; u < half; ++u)
        CHECK(wr::map_row(map, h * half + u) == 32 * (u / 16) + 16 * (u % 2) + 8 * h + u % 16 / 2);
  }
}

TEST_CASE("swapped halves: [w1; w3] lies as [w3; w1], rows behind them stay") {
  constexpr wr::storage_map map = {.steps = {{kind::swap_halves, 3}}};
  CHECK(row_places(map, 8) == list{3, 4, 5, 0, 1, 2, 6, 7});
  CHECK(order(row_places(map, 8)) == 2);
  CHECK(row_places({.steps = {{kind::gated_interleave, 3}}}, 8) == list{0, 2, 4, 1, 3, 5, 6, 7});
}

TEST_CASE("the rows of one half stay in one half where halves are swapped, and lie close where they are interleaved") {
  constexpr wr::storage_map swapped = {.steps = {{kind::swap_halves, 256}}};
  CHECK(wr::map_rows(swapped, {0, 256}) == wr::row_range{256, 512});
  CHECK(wr::map_rows(swapped, {300, 310}) == wr::row_range{44, 54});
  CHECK(wr::map_rows(swapped, {255, 257}) == wr::row_range{0, 512});
  CHECK(wr::map_rows(swapped, {520, 530}) == wr::row_range{520, 530});
  constexpr wr::storage_map gated = {.steps = {{kind::gated_interleave, 256}, {kind::shuffle32, 0}}};
  CHECK(wr::map_rows(gated, {256, 512}) == wr::row_range{0, 512});
  CHECK(wr::map_rows(gated, {64, 66}) == wr::row_range{128, 160});
}

TEST_CASE("any steps, any swizzle: a bijection with its inverse, equal to the composed gathers") {
  property("bijection", [] {
    const auto kinds = *rc::gen::container<std::vector<kind>>(
        *rc::gen::inRange<std::size_t>(0, wr::max_row_steps + 1),
        rc::gen::element(kind::shuffle16, kind::shuffle32, kind::gated_interleave, kind::swap_halves));
    const bool swizzled = *rc::gen::arbitrary<bool>();
    const std::int64_t rows = *rc::gen::inRange<std::int64_t>(1, 5) * (swizzled ? 128 : 32);
    const std::int64_t cols = *rc::gen::oneOf(rc::gen::elementOf(odd_cols), rc::gen::inRange<std::int64_t>(1, 40));
    const std::int64_t pitch = swizzled ? up(cols, 4) : cols + *rc::gen::inRange<std::int64_t>(0, 9);
    wr::storage_map map = swizzled ? swizzle(cols) : wr::storage_map{};
    list composed = gather(kind::none, rows);
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      map.steps[i] = {kinds[i], rows / 2};
      composed = compose(composed, gather(kinds[i], rows));
    }
    RC_ASSERT(is_bijection(map, rows, swizzled ? pitch : cols, pitch));
    RC_ASSERT(sources(map, rows) == composed);
    for (std::int64_t row = 0; row < rows; ++row) RC_ASSERT(wr::unmap_row(map, wr::map_row(map, row)) == row);
    const std::int64_t first = *rc::gen::inRange<std::int64_t>(0, rows);
    const std::int64_t last = *rc::gen::inRange<std::int64_t>(first, rows);
    const wr::row_range range = wr::map_rows(map, {first, last + 1});
    RC_ASSERT(range.begin >= 0 && range.end <= rows);
    for (std::int64_t row = first; row <= last; ++row)
      RC_ASSERT(range.begin <= wr::map_row(map, row) && wr::map_row(map, row) < range.end);
    RC_ASSERT(wr::is_identity(map) == (kinds.empty() && !swizzled));
  });
}

TEST_CASE("contiguous_bytes: a walk in runs is the walk byte by byte") {
  property("runs", [] {
    const bool swizzled = *rc::gen::arbitrary<bool>();
    const std::int64_t cols = *rc::gen::elementOf(odd_cols);
    const std::int64_t begin = *rc::gen::inRange<std::int64_t>(0, cols + 1);
    const std::int64_t end = *rc::gen::inRange<std::int64_t>(begin, cols + 1);
    const std::int64_t row = *rc::gen::inRange<std::int64_t>(0, 256);
    wr::storage_map map = swizzled ? swizzle(cols) : wr::storage_map{};
    map.steps[0] = {kind::shuffle32, 0};
    std::int64_t runs = 0;
    for (std::int64_t col = begin; col < end; ++runs) {
      const std::int64_t run = wr::contiguous_bytes(map, col, end);
      RC_ASSERT(run > 0 && col + run <= end);
      const std::int64_t first = wr::map_offset(map, row, col, cols);
      for (std::int64_t i = 0; i < run; ++i) RC_ASSERT(wr::map_offset(map, row, col + i, cols) == first + i);
      col += run;
    }
    const std::int64_t tiles = begin == end ? 0 : (end - 1) / 4 - begin / 4 + 1;
    RC_ASSERT(runs == (swizzled ? tiles : begin == end ? 0 : 1));
    RC_ASSERT(wr::contiguous_bytes(map, begin, begin) == 0);
  });
}

TEST_CASE("row slices at multiples of 128 are the same byte ranges, swizzled or not") {
  for (const std::int64_t cols : odd_cols) {
    const wr::storage_map map = swizzle(cols);
    const std::int64_t pitch = up(cols, 4);
    for (std::int64_t row = 128; row < 384; ++row)
      for (std::int64_t col = 0; col < pitch; ++col)
        CHECK(wr::map_offset(map, row, col, 0) == 128 * pitch + wr::map_offset(map, row - 128, col, 0));
  }
}

TEST_CASE("column slices at multiples of 4 are column slices of the tile view, in the slice's own order") {
  struct slice {
    std::int64_t cols, begin, count;
  };
  for (const auto& [cols, begin, count] : {slice{8, 4, 4}, slice{24, 4, 12}, slice{160, 40, 80}, slice{37, 36, 4}}) {
    const std::int64_t pitch = up(cols, 4);
    for (std::int64_t row = 0; row < 256; ++row)
      for (std::int64_t col = begin; col < begin + count; ++col) {
        const std::int64_t offset = wr::map_offset(swizzle(cols), row, col, 0);
        const std::int64_t band = offset / (128 * pitch);  // the tile view is [rows / 128, pitch * 128]
        const std::int64_t within = offset % (128 * pitch) - 128 * begin;
        REQUIRE((within >= 0 && within < 128 * count));
        REQUIRE(band * 128 * count + within == wr::map_offset(swizzle(count), row, col - begin, 0));
      }
  }
}
