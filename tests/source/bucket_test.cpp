#include <wreload/source/bucket.hpp>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <cstring>
#include <string>
#include <vector>

#include "../property.hpp"

using namespace wreload;

namespace {

std::string text(const bucket_piece& piece) {
  return std::to_string(piece.tensor) + ":" + to_string(piece.part);
}

/// Buckets as text, one line each.
std::vector<std::string> cut(const std::vector<tensor_ref>& tensors, std::int64_t bucket_bytes) {
  std::vector<std::string> lines;
  const status result = for_each_bucket(tensors, bucket_bytes, [&](std::span<const bucket_piece> bucket) {
    std::string line;
    for (const bucket_piece& piece : bucket) line += (line.empty() ? "" : "; ") + text(piece);
    lines.push_back(line);
  });
  CHECK(result.ok());
  return lines;
}

tensor_ref u8_tensor(const shape& extents) { return {nullptr, dtype::u8, extents}; }

using lines = std::vector<std::string>;

}  // namespace

TEST_CASE("bucket: tensors are packed in order, never cut when they fit") {
  const std::vector<tensor_ref> tensors = {u8_tensor({4}), u8_tensor({3}), u8_tensor({2, 2}), u8_tensor({0, 9}),
                                           u8_tensor({})};
  CHECK(cut(tensors, 8) == lines{"0:whole; 1:whole", "2:whole; 3:whole; 4:whole"});
  CHECK(cut(tensors, 7) == lines{"0:whole; 1:whole", "2:whole; 3:whole; 4:whole"});
  CHECK(cut(tensors, 6) == lines{"0:whole", "1:whole", "2:whole; 3:whole; 4:whole"});
  CHECK(cut(tensors, 100) == lines{"0:whole; 1:whole; 2:whole; 3:whole; 4:whole"});
  CHECK(cut(tensors, 0) == lines{"0:whole", "1:whole", "2:whole", "3:whole", "4:whole"});
  CHECK(cut({u8_tensor({0}), u8_tensor({0, 3}), u8_tensor({1})}, 0) == lines{"0:whole", "1:whole", "2:whole"});
  CHECK(cut({}, 5).empty());
}

TEST_CASE("bucket: larger tensors are cut between rows, then along the first inner dim that fits") {
  CHECK(cut({u8_tensor({5, 3})}, 7) == lines{"0:[0, 0] + [2, 3]", "0:[2, 0] + [2, 3]", "0:[4, 0] + [1, 3]"});
  CHECK(cut({u8_tensor({5, 3}), u8_tensor({4})}, 7) ==
        lines{"0:[0, 0] + [2, 3]", "0:[2, 0] + [2, 3]", "0:[4, 0] + [1, 3]; 1:whole"});
  CHECK(cut({u8_tensor({2, 3})}, 2) ==
        lines{"0:[0, 0] + [1, 2]", "0:[0, 2] + [1, 1]", "0:[1, 0] + [1, 2]", "0:[1, 2] + [1, 1]"});
  CHECK(cut({u8_tensor({1, 2, 3})}, 3) == lines{"0:[0, 0, 0] + [1, 1, 3]", "0:[0, 1, 0] + [1, 1, 3]"});
  CHECK(cut({u8_tensor({1, 1, 3})}, 2) == lines{"0:[0, 0, 0] + [1, 1, 2]", "0:[0, 0, 2] + [1, 1, 1]"});
}

TEST_CASE("bucket: an element larger than a bucket comes alone") {
  const tensor_ref wide = {nullptr, dtype::fp64, {2, 1}};
  const tensor_ref scalar = {nullptr, dtype::fp64, {}};
  CHECK(cut({wide, scalar, u8_tensor({0})}, 1) ==
        lines{"0:[0, 0] + [1, 1]", "0:[1, 0] + [1, 1]", "1:whole", "2:whole"});
}

TEST_CASE("bucket: refusals") {
  const std::vector<tensor_ref> tensors = {u8_tensor({2}), u8_tensor({2})};
  int calls = 0;
  const status negative = for_each_bucket(tensors, -1, [&](std::span<const bucket_piece>) { ++calls; });
  CHECK(negative.code == error_code::bad_argument);
  CHECK(calls == 0);
  const status stopped = for_each_bucket(tensors, 1, [&](std::span<const bucket_piece> bucket) {
    return ++calls == 2 ? refuse(error_code::wrong_shape, text(bucket[0]), {}, "enough") : status{};
  });
  CHECK(stopped.code == error_code::wrong_shape);
  CHECK(stopped.param == "0:[1] + [1]");
  CHECK(calls == 2);
}

TEST_CASE("bucket: property: pieces are every element exactly once, in order, within the limit") {
  wreload::test::property("partition", [] {
    // Element values count up over all tensors; each tensor lies row-major or with its dims reversed.
    const int count = *rc::gen::inRange(0, 5);
    std::vector<std::vector<std::uint8_t>> storage;
    std::vector<tensor_ref> tensors;
    static const dtype types[] = {dtype::u8, dtype::bf16, dtype::fp32, dtype::i64};
    for (int i = 0; i < count; ++i) {
      tensor_ref tensor;
      tensor.type = types[*rc::gen::inRange(0, 4)];
      for (int rank = *rc::gen::inRange(0, 5); rank > 0; --rank) tensor.extents.push_back(*rc::gen::inRange(0, 8));
      if (*rc::gen::inRange(0, 2) == 0 && tensor.extents.rank() > 0) {
        std::int64_t stride = 1;
        tensor.strides = tensor.extents;
        for (int dim = 0; dim < tensor.extents.rank(); ++dim) {
          tensor.strides[dim] = stride;
          stride *= tensor.extents[dim] + 1;
        }
        storage.emplace_back(static_cast<std::size_t>(stride * bytes_of(tensor.type)));
      } else {
        storage.emplace_back(static_cast<std::size_t>(tensor.bytes()));
      }
      tensor.data = storage.back().data();
      tensors.push_back(tensor);
    }
    const std::int64_t limit = *rc::gen::element<std::int64_t>(0, 1, 2, 3, 7, 8, 31, 127, 1000, 1 << 20);

    std::vector<std::vector<std::uint8_t>> hits;
    for (const tensor_ref& tensor : tensors)
      hits.emplace_back(static_cast<std::size_t>(tensor.extents.elements()), std::uint8_t{0});
    std::vector<int> pieces_of(tensors.size(), 0);
    std::size_t last_tensor = 0;
    std::int64_t last_index = -1;
    const status result = for_each_bucket(tensors, limit, [&](std::span<const bucket_piece> bucket) {
      RC_ASSERT(!bucket.empty());
      std::int64_t bytes = 0;
      for (const bucket_piece& piece : bucket) {
        const tensor_ref& tensor = tensors[piece.tensor];
        RC_ASSERT(piece.tensor >= last_tensor);
        if (piece.tensor > last_tensor) last_index = -1;
        last_tensor = piece.tensor;
        ++pieces_of[piece.tensor];
        RC_ASSERT(fits(piece.part, tensor.extents));
        RC_ASSERT(piece.data.type == tensor.type);
        RC_ASSERT(piece.data.strides == tensor.strides);
        RC_ASSERT(piece.data.extents == (piece.part.whole ? tensor.extents : piece.part.extent));
        if (tensor.bytes() <= limit || limit == 0) RC_ASSERT(piece.part.whole);
        if (!piece.part.whole) RC_ASSERT(piece.data.bytes() > 0);
        bytes += piece.data.bytes();
        // Walk the piece's elements: linear index in the tensor, and the address that both views give.
        shape at = piece.data.extents;
        for (int dim = 0; dim < at.rank(); ++dim) at[dim] = 0;
        for (std::int64_t n = 0; n < piece.data.extents.elements(); ++n) {
          std::int64_t index = 0, in_tensor = 0, in_piece = 0, dense = 0;
          for (int dim = 0; dim < at.rank(); ++dim) {
            const std::int64_t global = at[dim] + (piece.part.whole ? 0 : piece.part.offset[dim]);
            index = index * tensor.extents[dim] + global;
            dense = dense * piece.data.extents[dim] + at[dim];
            if (!tensor.row_major()) {
              in_tensor += global * tensor.strides[dim];
              in_piece += at[dim] * piece.data.strides[dim];
            }
          }
          if (tensor.row_major()) {
            in_tensor = index;
            in_piece = dense;
          }
          const std::int64_t size = bytes_of(tensor.type);
          RC_ASSERT(static_cast<const std::uint8_t*>(tensor.data) + in_tensor * size ==
                    static_cast<const std::uint8_t*>(piece.data.data) + in_piece * size);
          RC_ASSERT(index == ++last_index);  // row-major order over all pieces: none missing, none twice
          ++hits[piece.tensor][static_cast<std::size_t>(index)];
          int dim = at.rank() - 1;
          while (dim >= 0 && ++at[dim] == piece.data.extents[dim]) at[dim--] = 0;
        }
      }
      RC_ASSERT(limit == 0 || bytes <= limit || (bucket.size() == 1 && bucket[0].data.extents.elements() == 1));
      RC_ASSERT(limit != 0 || bucket.size() == 1);
    });
    RC_ASSERT(result.ok());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      RC_ASSERT(pieces_of[i] > 0);
      for (const std::uint8_t hit : hits[i]) RC_ASSERT(hit == 1);
    }
  });
}

TEST_CASE("bucket: a large tensor makes few pieces, extents of 2^40 do not overflow") {
  int pieces = 0;
  const tensor_ref huge = {nullptr, dtype::fp32, {std::int64_t{1} << 20, std::int64_t{1} << 20}};
  const status result = for_each_bucket({&huge, 1}, std::int64_t{1} << 32, [&](std::span<const bucket_piece> bucket) {
    pieces += static_cast<int>(bucket.size());
    CHECK(bucket[0].data.bytes() == std::int64_t{1} << 32);
  });
  CHECK(result.ok());
  CHECK(pieces == 1024);
}
