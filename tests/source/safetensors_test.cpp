#include <wreload/source/safetensors.hpp>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "../property.hpp"

namespace fs = std::filesystem;
using namespace wreload;

namespace {

struct temp_folder {
  fs::path path;
  temp_folder() {
    std::string name = (fs::temp_directory_path() / "wreload-safetensors-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~temp_folder() { fs::remove_all(path); }
  std::string operator/(const char* name) const { return (path / name).string(); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
  }
};

std::string bytes_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

tensor_ref view(const std::string& bytes, dtype type, const shape& extents) {
  tensor_ref tensor;
  tensor.data = bytes.data();
  tensor.type = type;
  tensor.extents = extents;
  return tensor;
}

std::string bytes_of_tensor(const tensor_ref& tensor) {
  return {static_cast<const char*>(tensor.data), static_cast<std::size_t>(tensor.bytes())};
}

}  // namespace

TEST_CASE("safetensors: the bytes of a written file") {
  const temp_folder folder;
  const std::string path = folder / "a.safetensors";
  const std::string words = "abcdefgh";
  const std::vector<named_tensor> tensors = {{"b", view(words, dtype::u8, {3})},
                                             {"s", view(words, dtype::fp32, {})},
                                             {"p", view(words, dtype::fp4_e2m1x2, {1, 2})}};
  REQUIRE(write_safetensors(path, tensors, std::vector<std::pair<std::string, std::string>>{{"format", "pt"}}).ok());
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},"p":{"dtype":"U8","shape":[1, 2],"data_offsets":[7,9]}})";
  const std::size_t padded = (json.size() + 7) / 8 * 8;
  std::string expected(1, static_cast<char>(padded));
  expected += std::string(7, '\0') + json + std::string(padded - json.size(), ' ') + "abcd" + "abc" + "ab";
  CHECK(bytes_of_file(path) == expected);
  CHECK(folder.files() == 1);
}

TEST_CASE("safetensors: views lie in the mapping and survive a move") {
  const temp_folder folder;
  const std::string path = folder / "a.safetensors";
  const std::string words = "abcdefgh";
  REQUIRE(write_safetensors(path, std::vector<named_tensor>{{"x", view(words, dtype::bf16, {2, 2})},
                                                            {"none", view(words, dtype::fp64, {0, 3})}})
              .ok());
  safetensors_file file;
  REQUIRE(file.open(path).ok());
  REQUIRE(file.entries().size() == 2);
  CHECK(file.entries()[0].name == "none");
  CHECK(file.metadata().empty());
  const std::ptrdiff_t x = file.find("x");
  REQUIRE(x == 1);
  CHECK(file.find("y") == -1);
  const tensor_ref before = file.tensor(1);
  const safetensors_file moved = std::move(file);
  CHECK(moved.tensor(1).data == before.data);
  CHECK(moved.path() == path);
  CHECK(bytes_of_tensor(before) == words);
  CHECK(before.row_major());
  CHECK(moved.tensor(0).bytes() == 0);
}

TEST_CASE("safetensors: a refused open leaves the object as it was") {
  const temp_folder folder;
  const std::string good = folder / "good";
  const std::string words = "abcd";
  REQUIRE(write_safetensors(good, std::vector<named_tensor>{{"x", view(words, dtype::u8, {4})}}).ok());
  safetensors_file file;
  REQUIRE(file.open(good).ok());
  std::ofstream(folder / "bad") << "not safetensors";
  const status result = file.open(folder / "bad");
  CHECK(result.code == error_code::bad_file);
  CHECK(result.param == folder / "bad");
  CHECK(file.open(folder / "missing").message() ==
        (folder / "missing") + ": expected a readable file, got No such file or directory");
  CHECK(bytes_of_tensor(file.tensor(0)) == words);
}

TEST_CASE("safetensors: what cannot be written is refused and an existing file is left alone") {
  const temp_folder folder;
  const std::string path = folder / "a.safetensors";
  std::ofstream(path) << "before";
  const std::string words = "abcdefgh";
  const tensor_ref good = view(words, dtype::u8, {4});
  tensor_ref strided = good;
  strided.strides = {1};
  tensor_ref device = good;
  device.memory = memory_kind::device;
  tensor_ref null = good;
  null.data = nullptr;
  const std::vector<std::pair<std::vector<named_tensor>, std::string>> rows = {
      {{{"x", good}, {"y", good}, {"x", good}}, "x: expected one tensor with this name, got two"},
      {{{"x", strided}}, "x: expected a row-major tensor, got strides [1]"},
      {{{"x", device}}, "x: expected host memory, got device memory"},
      {{{"x", null}}, "x: expected data, got a null pointer"},
      {{{"x", view(words, dtype::none, {1})}}, "x: expected a dtype, got none"},
      {{{"x", view(words, dtype::u8, {-1})}}, "x: expected a size that 64 bits can hold, got U8 [-1]"},
      {{{"__metadata__", good}}, "__metadata__: expected a tensor name, got the key of the metadata"},
      {{{"x\xFF", good}}, "expected a name in UTF-8"},
      {{{"\xC0\x80", good}}, "expected a name in UTF-8"},
      {{{"\xED\xA0\x80", good}}, "expected a name in UTF-8"},
      {{{"\xF4\x90\x80\x80", good}}, "expected a name in UTF-8"},
      {{{"\xE2\x82", good}}, "expected a name in UTF-8"},
  };
  for (const auto& row : rows) {
    const auto& tensors = row.first;
    const std::string& message = row.second;
    CAPTURE(message);
    const status result = write_safetensors(path, tensors);
    CHECK(result.code == error_code::bad_argument);
    CHECK_MESSAGE(result.message().find(message) != std::string::npos, result.message());
    CHECK(result.param.starts_with(path));
  }
  CHECK(write_safetensors(path, {}, std::vector<std::pair<std::string, std::string>>{{"a", "b"}, {"a", "c"}}).code ==
        error_code::bad_argument);
  CHECK(write_safetensors(path, {}, std::vector<std::pair<std::string, std::string>>{{"a", "\xFF"}}).code ==
        error_code::bad_argument);
  CHECK(bytes_of_file(path) == "before");
  for (const std::string& where : {folder / "no/such/folder", folder.path.string(), std::string("/dev/null")}) {
    const status result = write_safetensors(where, std::vector<named_tensor>{{"x", good}});
    CHECK(result.code == error_code::bad_file);
    CHECK(result.param == where);
  }
  CHECK(folder.files() == 1);
  REQUIRE(write_safetensors(path, std::vector<named_tensor>{{"x", good}}).ok());
  CHECK(folder.files() == 1);
}

TEST_CASE("safetensors: a write that fails half way leaves the old file, and no temporary one") {
  const temp_folder folder;
  const std::string path = folder / "a.safetensors";
  std::ofstream(path) << "before";
  const std::string words(100'000, 'w');
  const std::vector<named_tensor> tensors = {{"x", view(words, dtype::u8, {100'000})}};
  // As on a full disk: the kernel refuses to write past 50,000 bytes.
  struct ::rlimit limit = {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct ::rlimit small = {50'000, limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const status result = write_safetensors(path, tensors);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(result.message() == path + ": expected a file that can be written, got File too large");
  CHECK(bytes_of_file(path) == "before");
  CHECK(folder.files() == 1);
}

TEST_CASE("safetensors: two writers of one path do not disturb each other") {
  const temp_folder folder;
  detail::replacing_file first;
  REQUIRE(first.create(folder / "a").ok());
  {
    detail::replacing_file second;
    REQUIRE(second.create(folder / "a").ok());
    CHECK(folder.files() == 2);
  }
  CHECK(folder.files() == 1);
  REQUIRE(first.commit().ok());
  CHECK(fs::exists(folder / "a"));
}

TEST_CASE("safetensors: property: what is written is read back, aligned") {
  const temp_folder folder;
  const std::string path = folder / "p.safetensors";
  wreload::test::property("round trip", [&] {
    const int count = *rc::gen::inRange(0, 8);
    std::vector<std::string> names;
    std::vector<std::string> data;
    std::vector<tensor_ref> tensors;
    for (int i = 0; i < count; ++i) {
      names.push_back(*rc::gen::element<std::string>("w", "layers.0.\"q\"\\", "\x01\t", "\xC3\xA9", "\xF0\x9F\x98\x80") +
                      std::to_string(i));
      shape extents;
      for (int rank = *rc::gen::inRange(0, max_rank + 1); rank > 0; --rank)
        extents.push_back(*rc::gen::inRange(0, 4));
      const auto type = static_cast<dtype>(*rc::gen::inRange(1, dtype_count - 1));
      tensors.push_back({nullptr, type, extents});
      data.push_back(*rc::gen::container<std::string>(static_cast<std::size_t>(tensors.back().bytes()),
                                                      rc::gen::arbitrary<char>()));
    }
    std::vector<named_tensor> list;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!data[i].empty()) tensors[i].data = data[i].data();
      list.push_back({names[i], tensors[i]});
    }
    const status wrote = write_safetensors(path, list);
    if (!wrote.ok()) RC_FAIL(wrote.message());
    safetensors_file file;
    const status opened = file.open(path);
    if (!opened.ok()) RC_FAIL(opened.message());
    RC_ASSERT(file.entries().size() == names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::ptrdiff_t at = file.find(names[i]);
      RC_ASSERT(at >= 0);
      const tensor_ref read = file.tensor(static_cast<std::size_t>(at));
      RC_ASSERT(read.type == tensors[i].type);
      RC_ASSERT(read.extents == tensors[i].extents);
      RC_ASSERT(bytes_of_tensor(read) == data[i]);
      RC_ASSERT(reinterpret_cast<std::uintptr_t>(read.data) % static_cast<std::size_t>(bytes_of(read.type)) == 0);
    }
  });
}
