#include <wreload/source/checkpoint.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace fs = std::filesystem;
using namespace wreload;

namespace {

/// A folder in which each test puts what it needs.
struct folder {
  fs::path path;
  folder() {
    std::string name = (fs::temp_directory_path() / "wreload-checkpoint-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~folder() { fs::remove_all(path); }
  std::string str() const { return path.string(); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }

  /// One-byte tensors; the value is the position.
  const folder& tensors(const std::string& file, const std::vector<std::string>& names) const {
    static const char bytes[] = {0, 1, 2, 3, 4, 5, 6, 7};
    std::vector<named_tensor> list;
    for (std::size_t i = 0; i < names.size(); ++i) list.push_back({names[i], {bytes + i, dtype::u8, {1}}});
    REQUIRE(write_safetensors((path / file).string(), list).ok());
    return *this;
  }
  const folder& text(const std::string& file, const std::string& content) const {
    std::ofstream(path / file, std::ios::binary) << content;
    return *this;
  }
  const folder& index(const std::string& map) const {
    return text("model.safetensors.index.json", R"({"metadata":{"total_size":3},"weight_map":)" + map + "}");
  }
  void refused(const std::string& message) const {
    checkpoint opened;
    const status result = opened.open(str());
    CHECK(result.code == error_code::bad_file);
    CHECK_MESSAGE(result.message().find(message) != std::string::npos, result.message());
    CHECK(result.param.starts_with(str()));
    CHECK(opened.tensors().empty());
    CHECK(opened.path().empty());
  }
};

const char* const two_files = R"({"a":"1.safetensors","b":"1.safetensors","c":"2.safetensors"})";

}  // namespace

TEST_CASE("checkpoint: a file, with the config beside it") {
  const folder here;
  here.tensors("model.safetensors", {"b", "a"});
  here.text("config.json", R"({"quantization_config":{"weight_block_size":[64,1]}})");
  checkpoint opened;
  REQUIRE(opened.open(here / "model.safetensors").ok());
  REQUIRE(opened.tensors().size() == 2);
  CHECK(opened.tensors()[0].name == "b");
  CHECK(opened.tensors()[1].name == "a");
  CHECK(opened.tensors()[1].offset_bytes == 1);
  CHECK(opened.find("a") == &opened.tensors()[1]);
  CHECK(opened.find("c") == nullptr);
  CHECK(opened.path() == here / "model.safetensors");
  CHECK(opened.weight_block_size() == std::pair(64, 1));
}

TEST_CASE("checkpoint: a folder without an index takes its files by name") {
  const folder here;
  here.tensors("b.safetensors", {"x"}).tensors("a.safetensors", {"z", "y"}).text("tokenizer.json", "{}");
  checkpoint first;
  REQUIRE(first.open(here.str() + "/").ok());
  const auto* const before = first.tensors().data();
  const checkpoint opened = std::move(first);
  REQUIRE(opened.tensors().size() == 3);
  CHECK(opened.tensors().data() == before);
  const std::vector<std::pair<std::string_view, int>> expected = {{"z", 0}, {"y", 0}, {"x", 1}};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(opened.tensors()[i].name == expected[i].first);
    CHECK(opened.tensors()[i].file == expected[i].second);
  }
  CHECK(*static_cast<const char*>(opened.tensors()[1].tensor.data) == 1);
  CHECK(opened.files()[1].path() == here / "b.safetensors");
  CHECK_FALSE(opened.weight_block_size().has_value());
}

TEST_CASE("checkpoint: a folder with an index") {
  const folder here;
  here.tensors("1.safetensors", {"a", "b"}).tensors("2.safetensors", {"c"}).index(two_files);
  checkpoint opened;
  const status result = opened.open(here.str());
  CHECK_MESSAGE(result.ok(), result.message());
  CHECK(opened.tensors().size() == 3);
  CHECK(opened.find("c")->file == 1);

  SUBCASE("a refused open leaves the object as it was") {
    const folder other;
    CHECK_FALSE(opened.open(other.str()).ok());
    CHECK(opened.path() == here.str());
    CHECK(opened.find("c")->name == "c");
  }
  SUBCASE("a file without tensors is fine") {
    const folder other;
    other.tensors("a.safetensors", {});
    CHECK(opened.open(other.str()).ok());
    CHECK(opened.tensors().empty());
  }
}

TEST_CASE("checkpoint: what a path may not be") {
  const folder here;
  checkpoint opened;
  CHECK(opened.open(here / "missing").message() ==
        (here / "missing") + ": expected a safetensors file or a folder, got No such file or directory");
  CHECK(opened.open("/dev/null").message() == "/dev/null: expected a regular file, got a pipe, socket or device");
  here.refused("expected *.safetensors files in the folder, got none");
  here.text("broken.safetensors", "short").refused("broken.safetensors: expected at least 8 bytes, got 5");
  fs::remove(here / "broken.safetensors");
  fs::create_directory(here / "x.safetensors");
  here.refused("x.safetensors: expected a regular file, got a folder");
  fs::remove(here / "x.safetensors");
  fs::create_symlink("nowhere", here / "x.safetensors");
  here.refused("x.safetensors: expected a readable file, got No such file or directory");
}

TEST_CASE("checkpoint: files and index must agree") {
  const folder here;
  here.tensors("1.safetensors", {"a", "b"}).tensors("2.safetensors", {"c"});
  const auto index = [&](const char* map) -> const folder& { return here.index(map); };
  const std::string path = here / "model.safetensors.index.json";

  SUBCASE("a name in two files") {
    here.tensors("3.safetensors", {"d", "b"});
    here.refused(here.str() + ": b: expected one file with this tensor, got " + (here / "1.safetensors") + " and " +
                 (here / "3.safetensors"));
  }
  SUBCASE("a tensor that is not there") {
    index(R"({"a":"1.safetensors","b":"1.safetensors","c":"2.safetensors","d":"2.safetensors"})")
        .refused(path + ": d: expected the tensor in 2.safetensors, got no such tensor");
  }
  SUBCASE("a tensor in another file") {
    index(R"({"a":"1.safetensors","b":"2.safetensors","c":"2.safetensors"})")
        .refused(path + ": b: expected the tensor in 2.safetensors, got 1.safetensors");
  }
  SUBCASE("a tensor twice") {
    index(R"({"a":"1.safetensors","b":"1.safetensors","c":"2.safetensors","a":"1.safetensors"})")
        .refused(path + ": a: expected the name once, got twice");
  }
  SUBCASE("a tensor left out") {
    index(R"({"a":"1.safetensors","c":"2.safetensors"})")
        .refused((here / "1.safetensors") + ": b: expected a tensor that model.safetensors.index.json names");
  }
  SUBCASE("a file that is not there") {
    index(R"({"a":"1.safetensors","b":"1.safetensors","c":"3.safetensors"})")
        .refused(path + ": c: expected a file that is there, got 3.safetensors");
  }
  SUBCASE("a file left out") {
    index(R"({"a":"1.safetensors","b":"1.safetensors"})")
        .refused((here / "2.safetensors") + ": expected a file that model.safetensors.index.json names");
  }
  SUBCASE("a path that leads out") {
    for (const std::string out : {"../1.safetensors", "/1.safetensors", "./1.safetensors", "x\\\\1.safetensors", "..",
                                  "", "1.bin", "1.safetensors\\u0000", "1.safetensors/"}) {
      CAPTURE(out);
      index((R"({"a":"1.safetensors","b":")" + out + R"(","c":"2.safetensors"})").c_str())
          .refused(path + ": b: expected a .safetensors file of this folder, got \"");
    }
  }
  SUBCASE("an empty map") {
    index("{}").refused("1.safetensors: expected a file that model.safetensors.index.json names");
  }
  SUBCASE("wrong types") {
    index("[]").refused(path + ": weight_map: expected an object, got a list");
    index("null").refused(path + ": weight_map: expected an object, got null");
    index(R"({"a":1})").refused(path + ": a: expected a file name, got a number");
    index(R"({"a":{}})").refused(path + ": a: expected a file name, got an object");
    index(R"({"a":["1.safetensors"]})").refused(path + ": a: expected a file name, got a list");
    index(R"({},"weight_map":{})").refused(path + ": weight_map: expected one, got two");
    here.text("model.safetensors.index.json", "[]").refused(path + ": expected a JSON object, got a list");
    here.text("model.safetensors.index.json", "7").refused(path + ": expected a JSON object, got a number");
    here.text("model.safetensors.index.json", "{}").refused(path + ": expected a weight_map, got none");
    here.text("model.safetensors.index.json", R"({"x":{"weight_map":{"a":"b"}}})").refused("expected a weight_map");
    here.text("model.safetensors.index.json", "").refused(path + ": expected valid JSON");
    here.text("model.safetensors.index.json", std::string("{}\0", 3)).refused("a zero byte");
    here.text("model.safetensors.index.json", R"({"x":)" + std::string(1'000'000, '['))
        .refused(path + ": expected JSON nested at most 64 deep, got more");
  }
  SUBCASE("an index that is a folder") {
    fs::create_directory(path);
    here.refused(path + ": expected a regular file, got a folder");
  }
  SUBCASE("other keys are skipped, whatever they hold") {
    here.text("model.safetensors.index.json",
              std::string(R"({"metadata":{"weight_map":1,"x":[{"y":[-1,2.5,null,true,"s"]}]},"weight_map":)") +
                  two_files + R"(,"z":[1]})");
    checkpoint opened;
    const status result = opened.open(here.str());
    CHECK_MESSAGE(result.ok(), result.message());
  }
}

TEST_CASE("checkpoint: the block size of config.json") {
  const folder here;
  here.tensors("model.safetensors", {"a"});
  checkpoint opened;
  const auto config = [&](const std::string& json) {
    here.text("config.json", json);
    const status result = opened.open(here.str());
    CHECK((result.ok() || result.param.starts_with(here / "config.json")));
    return result.message();
  };
  for (const char* none : {"{}", R"({"quantization_config":null})", R"({"quantization_config":{}})",
                           R"({"quantization_config":{"weight_block_size":null,"x":[[]],"y":{"weight_block_size":3}}})",
                           R"({"weight_block_size":[1,2],"text_config":{"weight_block_size":[1,2]}})"}) {
    CAPTURE(none);
    CHECK(config(none) == "ok");
    CHECK_FALSE(opened.weight_block_size().has_value());
  }
  CHECK(config(R"({"a":[1,{"b":2}],"quantization_config":{"fmt":"e4m3","weight_block_size":[128,64],"z":1.5},)"
               R"("b":-1})") == "ok");
  CHECK(opened.weight_block_size() == std::pair(128, 64));

  const std::string path = here / "config.json";
  for (const char* bad : {"128", "-1", "1.5", "true", "\"128\"", "{}", "[]", "[128]", "[128,128,128]", "[0,128]",
                          "[-1,128]", "[1.0,128]", "[128,2147483648]", "[[128,128]]", "[\"1\",1]", "[null,1]",
                          "[1,{}]"}) {
    CAPTURE(bad);
    CHECK(config(std::string(R"({"quantization_config":{"weight_block_size":)") + bad + "}}")
              .starts_with(path + ": weight_block_size: expected two numbers from 1 to 2^31 - 1, got "));
  }
  CHECK(config(R"({"quantization_config":{"weight_block_size":[1,1],"weight_block_size":[1,1]}})") ==
        path + ": weight_block_size: expected one, got two");
  CHECK(config(R"({"quantization_config":{},"quantization_config":{}})") ==
        path + ": quantization_config: expected one, got two");
  CHECK(config(R"({"quantization_config":"fp8"})") == path + ": quantization_config: expected an object, got a string");
  CHECK(config("[]") == path + ": expected a JSON object, got a list");
  CHECK(config("").starts_with(path + ": expected valid JSON"));
  CHECK(config("{").starts_with(path + ": expected valid JSON"));
  CHECK(config("{\"a\":\"\xFF\"}").starts_with(path + ": expected valid JSON"));
  CHECK(config(R"({"a":)" + std::string(100, '[')) == path + ": expected JSON nested at most 64 deep, got more");
  fs::remove(path);
  fs::create_directory(path);
  CHECK(opened.open(here.str()).message() == path + ": expected a regular file, got a folder");
  CHECK(opened.open(here / "model.safetensors").message() == path + ": expected a regular file, got a folder");
}
