// Pieces: a tensor that fills a box, any strides, against reading it element by element.
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/update/piece.hpp>

#include "../property.hpp"

namespace wr = wreload;
using wr::test::property;

namespace {

wr::shape shape_of(const std::vector<std::int64_t>& dims) {
  return wr::shape(std::span<const std::int64_t>(dims.data(), dims.size()));
}

/// A number of [begin, end), all of them as likely in the first cases as in the last.
std::int64_t pick(std::int64_t begin, std::int64_t end) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(begin, end));
}

/// A piece of a tensor of rank 0 to 5, with strides of any kind.
struct any_piece {
  wr::shape target = {};
  wr::box part = {};
  std::vector<std::int64_t> size = {};
  std::vector<std::int64_t> strides = {};  ///< empty: row-major
};

any_piece make_piece() {
  any_piece piece;
  const auto rank = pick(0, 6);
  std::vector<std::int64_t> dims, first;
  const bool all_whole = pick(0, 4) == 0;
  for (int dim = 0; dim < rank; ++dim) {
    dims.push_back(pick(1, 5));
    const bool whole = all_whole || pick(0, 2) == 0;
    first.push_back(whole ? 0 : pick(0, dims.back()));
    piece.size.push_back(whole ? dims.back() : pick(1, dims.back() - first.back() + 1));
  }
  piece.target = shape_of(dims);
  if (!all_whole) piece.part = wr::box(shape_of(first), shape_of(piece.size));
  switch (pick(0, 4)) {
    case 0: break;  // row-major, unsaid
    case 1: {       // a permutation of the dims, with gaps: dense, transposed, padded rows
      std::vector<std::int64_t> order;
      for (int dim = 0; dim < rank; ++dim) order.push_back(dim);
      for (std::int64_t i = rank - 1; i > 0; --i)
        std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(pick(0, i + 1))]);
      piece.strides.resize(static_cast<std::size_t>(rank));
      std::int64_t step = 1;
      for (const std::int64_t dim : order) {
        piece.strides[static_cast<std::size_t>(dim)] = step * (pick(0, 4) == 0 ? -1 : 1);
        step *= piece.size[static_cast<std::size_t>(dim)] + pick(0, 2);
      }
      break;
    }
    case 2:  // row-major, said
      piece.strides.resize(static_cast<std::size_t>(rank));
      for (std::int64_t dim = rank - 1, step = 1; dim >= 0; step *= piece.size[static_cast<std::size_t>(dim)], --dim)
        piece.strides[static_cast<std::size_t>(dim)] = step;
      break;
    default:  // anything: overlaps, zero strides, negative ones
      for (int dim = 0; dim < rank; ++dim) piece.strides.push_back(pick(-9, 10));
  }
  return piece;
}

/// Row-major index in `target` of each element of the box, and the address that its strides give.
std::map<std::int64_t, std::int64_t> plainly(const any_piece& piece, std::int64_t element_bytes) {
  std::map<std::int64_t, std::int64_t> addresses;
  const std::size_t rank = piece.size.size();
  std::vector<std::int64_t> at(rank, 0);
  for (;;) {
    std::int64_t linear = 0, offset = 0, dense = 0;
    for (std::size_t dim = 0; dim < rank; ++dim) {
      const int d = static_cast<int>(dim);
      linear = linear * piece.target[d] + (piece.part.whole ? 0 : piece.part.offset[d]) + at[dim];
      dense = dense * piece.size[dim] + at[dim];
      if (!piece.strides.empty()) offset += at[dim] * piece.strides[dim];
    }
    addresses[linear] = (piece.strides.empty() ? dense : offset) * element_bytes;
    std::size_t dim = rank;
    while (dim > 0 && ++at[dim - 1] == piece.size[dim - 1]) at[--dim] = 0;
    if (dim == 0) return addresses;
  }
}

}  // namespace

TEST_CASE("every element of the box is read from the address that its strides give") {
  property("runs against element by element", [] {
    const any_piece piece = make_piece();
    const auto type = *rc::gen::element(wr::dtype::fp8_e4m3, wr::dtype::bf16, wr::dtype::fp32, wr::dtype::i64);
    alignas(8) static const std::byte base[1] = {};
    const wr::tensor_ref tensor{base, type, shape_of(piece.size), shape_of(piece.strides)};
    std::map<std::int64_t, std::int64_t> found;
    wr::for_each_run(tensor, piece.part, piece.target, [&](const wr::piece_run& run) {
      RC_ASSERT(run.at(run.part.row_begin, run.part.col_begin) == run.source);
      for (std::int64_t r = run.part.row_begin; r < run.part.row_end; ++r)
        for (std::int64_t c = run.part.col_begin; c < run.part.col_end; ++c) {
          const auto address = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(run.at(r, c)) -
                                                         reinterpret_cast<std::intptr_t>(base));
          RC_ASSERT(found.emplace(r * piece.target.cols() + c, address).second);
        }
    });
    RC_ASSERT(found == plainly(piece, wr::bytes_of(type)));
  });
}

TEST_CASE("a dense piece is as few runs as its box allows") {
  const auto runs = [](const wr::tensor_ref& tensor, const wr::box& part, const wr::shape& target) {
    int count = 0;
    wr::for_each_run(tensor, part, target, [&](const wr::piece_run&) { ++count; });
    return count;
  };
  const std::byte* data = nullptr;
  CHECK(runs({data, wr::dtype::bf16, {1024, 3, 2, 14, 14}}, {}, {1024, 3, 2, 14, 14}) == 1);
  CHECK(runs({data, wr::dtype::bf16, {2, 3, 4}, {12, 4, 1}}, {}, {2, 3, 4}) == 1);
  CHECK(runs({data, wr::dtype::bf16, {4, 6}, {1, 4}}, {}, {4, 6}) == 1);         // a transposed matrix
  CHECK(runs({data, wr::dtype::bf16, {2, 3, 4}, {12, 1, 3}}, {}, {2, 3, 4}) == 3);  // inner dims transposed
  CHECK(runs({data, wr::dtype::bf16, {2, 1, 4}}, wr::box::along(1, {2, 3, 4}, 1, 2), {2, 3, 4}) == 1);
  CHECK(runs({data, wr::dtype::bf16, {2, 3, 2}}, wr::box::along(2, {2, 3, 4}, 0, 2), {2, 3, 4}) == 3);
}

TEST_CASE("a tensor of one element fills a box of one element, whatever the ranks") {
  const float value = 0.5F;
  for (const wr::shape& target : {wr::shape{}, wr::shape{1}, wr::shape{1, 1}})
    for (const wr::shape& sent : {wr::shape{}, wr::shape{1}, wr::shape{1, 1, 1}}) {
      int count = 0;
      wr::for_each_run({&value, wr::dtype::fp32, sent}, {}, target, [&](const wr::piece_run& run) {
        ++count;
        CHECK(run.part == wr::rect{0, 1, 0, 1});
        CHECK(run.source == reinterpret_cast<const std::byte*>(&value));
      });
      CHECK(count == 1);
    }
}

TEST_CASE("a tensor of nothing has no run, and its null pointer is not looked at") {
  wr::for_each_run({nullptr, wr::dtype::fp32, {0, 4}}, {}, {0, 4}, [](const wr::piece_run&) { FAIL("a run of nothing"); });
}
