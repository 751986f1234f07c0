#include <wreload/source/safetensors_header.hpp>

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <chrono>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "../property.hpp"

using namespace wreload;

namespace {

/// A file in memory: length, header, `data_bytes` zero bytes.
std::string file_of(std::string_view json, std::size_t data_bytes = 0) {
  std::string file;
  for (unsigned i = 0; i < 8; ++i) file += static_cast<char>(json.size() >> (8 * i));
  file += json;
  file.append(data_bytes, '\0');
  return file;
}

status read(const std::string& file, safetensors_header& header) {
  return read_safetensors_header(std::as_bytes(std::span(file)), "m.safetensors", header);
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// The rules of the format, checked again on the result in another way.
bool consistent(const safetensors_header& header, const std::string& file) {
  std::uint64_t covered = 0;
  std::set<std::string> names;
  for (const auto& entry : header.entries) {
    __extension__ unsigned __int128 bytes = static_cast<unsigned>(bytes_of(entry.type));
    bool empty = false;
    for (const std::int64_t dim : entry.extents.dims()) {
      if (dim < 0) return false;
      empty = empty || dim == 0;
      if (dim > 0 && bytes <= UINT64_MAX) bytes *= static_cast<std::uint64_t>(dim);
    }
    if (empty) bytes = 0;
    if (bytes > file.size()) return false;
    if (entry.begin != static_cast<std::int64_t>(covered) || (bytes == 0) != (entry.begin == entry.end)) return false;
    covered += static_cast<std::uint64_t>(bytes);
    if (entry.end != static_cast<std::int64_t>(covered) || !names.insert(entry.name).second) return false;
    if (header.find(entry.name) < 0 || &header.entries[static_cast<std::size_t>(header.find(entry.name))] != &entry)
      return false;
  }
  return static_cast<std::uint64_t>(header.data_begin) + covered == file.size() &&
         header.by_name.size() == header.entries.size();
}

}  // namespace

TEST_CASE("safetensors header: entries in data order, whatever the order of keys") {
  safetensors_header header;
  const std::string file = file_of(
      R"({"b":{"data_offsets":[24,26],"shape":[],"dtype":"BF16"},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"none":{"dtype":"F8_E4M3","shape":[0,7],)"
      R"("data_offsets":[24,24]}}    )",
      26);
  REQUIRE(read(file, header).ok());
  REQUIRE(header.entries.size() == 3);
  CHECK(header.entries[0].name == "a");
  CHECK(header.entries[0].type == dtype::fp32);
  CHECK(header.entries[0].extents == shape{2, 3});
  CHECK(header.entries[1].name == "none");
  CHECK(header.entries[1].extents == shape{0, 7});
  CHECK(header.entries[2].name == "b");
  CHECK(header.entries[2].extents == shape{});
  CHECK(header.entries[2].begin == 24);
  CHECK(header.data_begin + 26 == static_cast<std::int64_t>(file.size()));
  CHECK(header.metadata == std::vector<std::pair<std::string, std::string>>{{"format", "pt"}});
  CHECK(header.find("a") == 0);
  CHECK(header.find("c") == -1);
  CHECK(consistent(header, file));
}

TEST_CASE("safetensors header: no tensors, empty metadata, odd but legal texts") {
  safetensors_header header;
  for (const char* json : {"{}", "{}      ", R"({"__metadata__":{}})", R"({"__metadata__":{"a":"b"}})"}) {
    CAPTURE(json);
    CHECK(read(file_of(json), header).ok());  // safetensors#466, fastsafetensors#89
    CHECK(header.entries.empty());
  }
  CHECK(read(file_of(R"({"":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1), header).ok());
  CHECK(read(file_of(R"({"\u00e9\u0001":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), header).ok());
  CHECK(header.entries[0].name == "\xC3\xA9\x01");
}

TEST_CASE("safetensors header: every dtype of the format, and none beside") {
  safetensors_header header;
  for (const char* name : {"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "BF16", "F32", "F64",
                           "F8_E4M3", "F8_E5M2", "F8_E8M0"}) {
    CAPTURE(name);
    const auto bytes = static_cast<std::size_t>(bytes_of(detail::safetensors_dtype(name)));
    CHECK(read(file_of(std::string(R"({"a":{"dtype":")") + name + R"(","shape":[1],"data_offsets":[0,)" +
                           std::to_string(bytes) + "]}}",
                       bytes),
               header)
              .ok());
  }
  for (const char* name : {"F4", "F6_E2M3", "F6_E3M2", "F4_E2M1X2", "none", "f32", "", "C64", "F8_E4M3FNUZ"}) {
    CAPTURE(name);
    const status result =
        read(file_of(std::string(R"({"a":{"dtype":")") + name + R"(","shape":[1],"data_offsets":[0,1]}})", 1), header);
    CHECK(result.code == error_code::bad_file);
    CHECK(result.param == "m.safetensors: a");
    CHECK(result.expected == "a known dtype");
    CHECK(result.got == "\"" + std::string(name) + "\"");
  }
}

TEST_CASE("safetensors header: malformed files are refused, naming the fact") {
  struct row {
    std::string what;
    std::string file;
    std::string message;  // a part of it
  };
  const auto entry = [](const std::string& body, std::size_t data_bytes = 4) {
    return file_of(R"({"a":{)" + body + "}}", data_bytes);
  };
  const auto sized = [](std::uint64_t length, const std::string& rest) {
    std::string file = file_of("", 0);
    for (unsigned i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i));
    return file + rest;
  };
  const std::string f32 = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  const std::string deep(10'000'000, '[');
  const std::string wide(1000, 'n');
  const row rows[] = {
      {"empty file", "", "m.safetensors: expected at least 8 bytes, got 0"},
      {"seven bytes", std::string(7, '\0'), "expected at least 8 bytes, got 7"},
      {"no header", sized(0, ""), "expected a header that starts with {"},
      {"no header, data", sized(0, "abcd"), "expected a header that starts with {"},
      {"length past the end", sized(3, "{}"), "expected a header within the file's 10 bytes, got 3"},
      {"length 2^64 - 1", sized(~std::uint64_t{0}, "{}"), "got 18446744073709551615"},  // fastllm#713
      {"length 2^64 - 8", sized(~std::uint64_t{7}, "{}"), "got 18446744073709551608"},
      {"length 2^63", sized(std::uint64_t{1} << 63U, "{}"), "got 9223372036854775808"},
      {"over the cap", sized(100'000'001, std::string(100'000'001, ' ')), "at most 100000000 bytes, got 100000001"},
      {"leading space", file_of(" {}"), "starts with {"},
      {"a list", file_of("[]"), "starts with {"},
      {"byte order mark", file_of("\xEF\xBB\xBF{}"), "starts with {"},
      {"cut off", file_of(R"({"a":)"), "expected valid JSON, got at byte"},
      {"text behind", file_of("{}{}"), "expected valid JSON"},
      {"zero byte behind", file_of(std::string("{}\0", 3)), "at byte 2: a zero byte"},
      {"zero byte and text", file_of(std::string("{}\0}}", 5)), "a zero byte"},
      {"comment", file_of("{/**/}"), "expected valid JSON"},
      {"trailing comma", file_of("{" + std::string(R"("a":{)") + f32 + "},}", 4), "expected valid JSON"},
      {"broken UTF-8 name", file_of("{\"\xFF\":{" + f32 + "}}", 4), "ill-formed UTF-8"},
      {"surrogate name", file_of(R"({"\ud800":{)" + f32 + "}}", 4), "expected valid JSON"},
      {"overlong UTF-8", file_of("{\"\xC0\x80\":{" + f32 + "}}", 4), "ill-formed UTF-8"},
      {"deep list", file_of(R"({"a":)" + deep), "m.safetensors: a: expected an object, got a list"},
      {"deep shape", entry(R"("shape":)" + deep), "a: expected whole dims from 0 to 2^63 - 1, got a list"},
      {"deep metadata", file_of(R"({"__metadata__":{"x":)" + deep), "__metadata__: expected only strings, got a list"},
      {"tensor is a number", file_of(R"({"a":5})"), "a: expected an object, got 5"},
      {"tensor is null", file_of(R"({"a":null})"), "a: expected an object, got null"},
      {"tensor is a string", file_of(R"({"a":"F32"})"), "a: expected an object, got a string"},
      {"metadata is null", file_of(R"({"__metadata__":null})"), "__metadata__: expected an object, got null"},
      {"metadata number", file_of(R"({"__metadata__":{"x":1}})"), "__metadata__: expected only strings, got 1"},
      {"metadata object", file_of(R"({"__metadata__":{"x":{}}})"), "__metadata__: expected only strings, got an obj"},
      {"metadata twice", file_of(R"({"__metadata__":{},"__metadata__":{}})"), "expected one __metadata__, got two"},
      {"metadata key twice", file_of(R"({"__metadata__":{"x":"","x":""}})"), "expected one \"x\", got two"},
      {"no dtype", entry(R"("shape":[1],"data_offsets":[0,4])"), "a: expected dtype, got an entry without it"},
      {"no shape", entry(R"("dtype":"F32","data_offsets":[0,4])"), "a: expected shape, got an entry without it"},
      {"no offsets", entry(R"("dtype":"F32","shape":[1])"), "a: expected data_offsets, got an entry without it"},
      {"empty entry", file_of(R"({"a":{}})"), "a: expected dtype, got an entry without it"},
      {"dtype twice", entry(f32 + R"(,"dtype":"F32")"), "a: expected one dtype, got two"},
      {"shape twice", entry(f32 + R"(,"shape":[1])"), "a: expected one shape, got two"},
      {"offsets twice", entry(f32 + R"(,"data_offsets":[0,4])"), "a: expected one data_offsets, got two"},
      {"unknown key", entry(f32 + R"(,"strides":[1])"), "only dtype, shape and data_offsets, got \"strides\""},
      {"dtype is a number", entry(R"("dtype":1)"), "a: expected dtype as a string, got 1"},
      {"dtype is a list", entry(R"("dtype":["F32"])"), "a: expected dtype as a string, got a list"},
      {"shape is a number", entry(R"("shape":1)"), "a: expected shape as a list, got 1"},
      {"shape is null", entry(R"("shape":null)"), "a: expected shape as a list, got null"},
      {"shape is an object", entry(R"("shape":{})"), "a: expected shape as a list, got an object"},
      {"offsets are a string", entry(R"("data_offsets":"0")"), "a: expected data_offsets as a list, got a string"},
      {"negative dim", entry(R"("shape":[-1])"), "a: expected whole dims from 0 to 2^63 - 1, got -1"},
      {"minus zero", entry(R"("shape":[-0])"), "a: expected whole dims"},
      {"fraction", entry(R"("shape":[1.0])"), "got 1.0"},
      {"exponent", entry(R"("shape":[1e2])"), "got 1e2"},
      {"dim 2^63", entry(R"("shape":[9223372036854775808])"), "got 9223372036854775808"},
      {"dim 2^64", entry(R"("shape":[18446744073709551616])"), "got 18446744073709551616"},
      {"dim 1e999", entry(R"("shape":[1e999])"), "expected valid JSON"},
      {"dim is a string", entry(R"("shape":["1"])"), "whole dims from 0 to 2^63 - 1, got a string"},
      {"dim is true", entry(R"("shape":[true])"), "got true"},
      {"nine dims", entry(R"("shape":[1,1,1,1,1,1,1,1,1])"), "a: expected at most 8 dims, got more"},
      {"negative offset", entry(R"("data_offsets":[-4,0])"), "data_offsets within the data section, got -4"},
      {"offset fraction", entry(R"("data_offsets":[0.5,4])"), "got 0.5"},
      {"one offset", entry(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), "a: expected two data_offsets, got 1"},
      {"no offset", entry(R"("dtype":"F32","shape":[1],"data_offsets":[])"), "a: expected two data_offsets, got 0"},
      {"three offsets", entry(R"("data_offsets":[0,4,8])"), "a: expected two data_offsets, got more"},
      {"end before begin", entry(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), "begin <= end, got [4, 0]"},
      {"past the data", entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), "4 bytes of data, got [0, 8]"},
      {"far past the data",
       entry(R"("dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615])"),
       "within 4 bytes of data"},
      {"size below shape", entry(R"("dtype":"F32","shape":[1000,1000],"data_offsets":[0,4])"),  // mlx#3363
       "a: expected 4000000 bytes for F32 [1000, 1000], got 4 (data_offsets [0, 4])"},
      {"size above shape", entry(R"("dtype":"U8","shape":[3],"data_offsets":[0,4])"), "3 bytes for U8 [3], got 4"},
      // LiteRT#9255, llama.cpp#26978
      {"elements wrap to 0", entry(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
       "a: expected a size that 64 bits can hold, got U8 [4294967296, 4294967296]"},
      {"bytes wrap to 0", entry(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])"),
       "a size that 64 bits can hold"},
      {"bytes wrap to 4", entry(R"("dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4])"),
       "a size that 64 bits can hold"},
      {"zero dim, wrapping rest", entry(R"("dtype":"U8","shape":[0,9223372036854775807,4],"data_offsets":[0,0])"),
       "a size that 64 bits can hold"},
      {"zero dim with bytes", entry(R"("dtype":"U8","shape":[0],"data_offsets":[0,4])"), "expected 0 bytes for U8 [0]"},
      {"name twice", file_of("{\"a\":{" + f32 + R"(},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8),
       "m.safetensors: a: expected one tensor with this name, got two"},
      {"name twice, no data", file_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                                      R"("\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
       "a: expected one tensor with this name, got two"},
      {"overlap", file_of("{\"a\":{" + f32 + R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", 6),
       "b: expected data from byte 4, where the tensor before it ends, got from byte 2 (overlaps a)"},
      {"same bytes", file_of("{\"a\":{" + f32 + "},\"b\":{" + f32 + "}}", 4), "(overlaps a)"},
      {"hole", file_of("{\"a\":{" + f32 + R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":[5,9]}})", 9),
       "b: expected data from byte 4, where the tensor before it ends, got from byte 5 (a hole)"},
      {"hole at the start", entry(R"("dtype":"U8","shape":[3],"data_offsets":[1,4])"), "(a hole)"},
      {"empty tensor in a hole",
       file_of("{\"a\":{" + f32 + R"(},"b":{"dtype":"U8","shape":[0],"data_offsets":[6,6]}})", 8),
       "(a hole)"},
      {"empty tensor inside another",
       file_of("{\"a\":{" + f32 + R"(},"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})", 4),
       "(overlaps a)"},
      {"trailing bytes", entry(f32, 5), "m.safetensors: expected tensors that cover 5 bytes of data, got 4 (trailing"},
      {"data without tensors", file_of("{}", 1), "expected tensors that cover 1 bytes of data, got 0 (trailing"},
      {"name with control characters", file_of(R"({"x\ny":1})"), "m.safetensors: x\\x0ay: expected an object, got 1"},
      {"long name", file_of("{\"" + wide + "\":1}"), std::string(200, 'n') + "...: expected an object"},
  };
  for (const row& bad : rows) {
    CAPTURE(bad.what);
    safetensors_header header;
    header.entries.resize(1);
    const status result = read(bad.file, header);
    CHECK(result.code == error_code::bad_file);
    CHECK_FALSE(result.wrote_anything);
    CHECK_MESSAGE(has(result.message(), bad.message), result.message());
    CHECK(result.message().size() < 600);
    CHECK(result.message().find('\n') == std::string::npos);
    CHECK(header.entries.empty());
    CHECK(header.by_name.empty());
  }
}

TEST_CASE("safetensors header: property: valid headers round trip, mutated ones are refused or consistent") {
  static const char* const types[] = {"U8", "BF16", "F32", "F8_E4M3", "I64"};
  const auto make = [] {
    const int count = *rc::gen::inRange(0, 6);
    std::vector<std::string> entries;
    std::int64_t end = 0;
    for (int i = 0; i < count; ++i) {
      const char* type = types[*rc::gen::inRange(0, 5)];
      shape extents;
      for (int rank = *rc::gen::inRange(0, 4); rank > 0; --rank) extents.push_back(*rc::gen::inRange(0, 5));
      const std::int64_t begin = end;
      end += extents.elements() * bytes_of(detail::safetensors_dtype(type));
      entries.push_back("\"t" + std::to_string(i) + R"(":{"dtype":")" + type + R"(","shape":)" + to_string(extents) +
                        R"(,"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}");
    }
    for (std::size_t i = entries.size(); i > 1; --i)
      std::swap(entries[i - 1], entries[*rc::gen::inRange<std::size_t>(0, i)]);
    std::string json = "{";
    for (const std::string& entry : entries) json += (json.size() > 1 ? "," : "") + entry;
    json += "}" + std::string(*rc::gen::inRange<std::size_t>(0, 9), ' ');
    return std::pair(file_of(json, static_cast<std::size_t>(end)), static_cast<std::size_t>(count));
  };
  wreload::test::property("valid", [&] {
    const auto [file, count] = make();
    safetensors_header header;
    RC_ASSERT(read(file, header).ok());
    RC_ASSERT(header.entries.size() == count);
    RC_ASSERT(consistent(header, file));
  });
  int accepted = 0;
  wreload::test::property("mutated", [&] {
    auto file = make().first;
    static const std::string_view splices[] = {"-", "0", "9", "[", "]", "{", "}", ",", "\"", "\\", "e9", ".5", "null",
                                               "\xFF", "F4", ":", "99999999999999999999", "18446744073709551615", "t0"};
    for (int steps = *rc::gen::inRange(1, 4); steps > 0 && !file.empty(); --steps) {
      const auto at = *rc::gen::inRange<std::size_t>(0, file.size());
      switch (*rc::gen::inRange(0, 5)) {
        case 0: file[at] = static_cast<char>(*rc::gen::inRange(0, 256)); break;
        case 1: file.erase(at, *rc::gen::inRange<std::size_t>(1, 5)); break;
        case 2: file.insert(at, splices[*rc::gen::inRange<std::size_t>(0, std::size(splices))]); break;
        case 3: file.resize(at); break;
        case 4: file.insert(at, file.substr(*rc::gen::inRange<std::size_t>(0, file.size()), 20)); break;
      }
      // Most mutations should reach the parser: the length is repaired half of the time.
      const auto close = file.rfind('}');
      if (file.size() >= 8 && close != std::string::npos && close >= 8 && *rc::gen::inRange(0, 2) == 0)
        for (unsigned i = 0; i < 8; ++i) file[i] = static_cast<char>((close - 7) >> (8 * i));
    }
    safetensors_header header;
    const status result = read(file, header);
    if (result.ok()) {
      ++accepted;
      RC_ASSERT(consistent(header, file));
    } else {
      RC_ASSERT(result.code == error_code::bad_file);
      RC_ASSERT(result.param.starts_with("m.safetensors"));
      RC_ASSERT(header.entries.empty());
    }
  });
  MESSAGE("accepted mutations: ", accepted);
}

TEST_CASE("safetensors header: 280,000 entries") {
  std::string json = "{";
  const int count = 280'000;
  for (int i = count; i-- > 0;)
    json += (json.size() > 1 ? "," : "") + std::string("\"model.layers.") + std::to_string(i % 80) + ".mlp.experts." +
            std::to_string(i / 80) + R"(.down_proj.weight":{"dtype":"F8_E4M3","shape":[1,2],"data_offsets":[)" +
            std::to_string(2 * i) + "," + std::to_string(2 * i + 2) + "]}";
  json += "}";
  const std::string file = file_of(json, 2U * count);
  safetensors_header header;
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(read(file, header).ok());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  CHECK(header.entries.size() == count);
  CHECK(header.find("model.layers.79.mlp.experts.3499.down_proj.weight") == count - 1);
  MESSAGE("seconds: ", seconds.count(), " for ", json.size(), " bytes");
  CHECK(seconds.count() < 30);  // sanitised builds are slow
}
