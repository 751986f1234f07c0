#include <wreload/source/mapped_file.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;
using namespace wreload;

namespace {

struct temp_folder {
  fs::path path;
  temp_folder() {
    std::string name = (fs::temp_directory_path() / "wreload-mapped-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~temp_folder() { fs::remove_all(path); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
    return (path / name).string();
  }
};

std::string text_of(const mapped_file& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

TEST_CASE("mapped_file: bytes of a file, and of an empty one") {
  const temp_folder folder;
  mapped_file file;
  CHECK(file.bytes().empty());
  REQUIRE(file.open(folder.write("a", "some bytes")).ok());
  CHECK(text_of(file) == "some bytes");
  CHECK(file.path() == (folder.path / "a").string());
  REQUIRE(file.open(folder.write("empty", "")).ok());
  CHECK(file.bytes().empty());
  CHECK(file.path() == (folder.path / "empty").string());
  file.close();
  CHECK(file.path().empty());
}

TEST_CASE("mapped_file: refusals name the path as given and leave the object alone") {
  const temp_folder folder;
  mapped_file file;
  REQUIRE(file.open(folder.write("a", "kept")).ok());
  const auto refused = [&](const std::string& path, const std::string& got) {
    const status result = file.open(path);
    CHECK(result.code == error_code::bad_file);
    CHECK(result.param == path);
    CHECK(result.got == got);
    CHECK(text_of(file) == "kept");
  };
  refused((folder.path / "missing").string(), "No such file or directory");
  refused(folder.path.string(), "a folder");
  refused("/dev/zero", "a pipe, socket or device");
  const std::string pipe = (folder.path / "pipe").string();
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  refused(pipe, "a pipe, socket or device");  // and does not wait for a writer
  refused("", "No such file or directory");
  CHECK(file.open(std::string("a\0b", 3)).code == error_code::bad_file);
  if (::geteuid() != 0) {
    const std::string secret = folder.write("secret", "x");
    fs::permissions(secret, fs::perms::none);
    refused(secret, "Permission denied");
  }
}

TEST_CASE("mapped_file: moving keeps the address, renaming over keeps the bytes") {
  const temp_folder folder;
  mapped_file first;
  REQUIRE(first.open(folder.write("a", "old")).ok());
  const auto* const address = first.bytes().data();
  mapped_file second = std::move(first);
  CHECK(second.bytes().data() == address);
  mapped_file third;
  REQUIRE(third.open(folder.write("b", "other")).ok());
  third = std::move(second);
  CHECK(third.bytes().data() == address);
  folder.write("c", "new");
  fs::rename(folder.path / "c", folder.path / "a");
  CHECK(text_of(third) == "old");
  REQUIRE(third.open(third.path()).ok());
  CHECK(text_of(third) == "new");
}

TEST_CASE("mapped_file: a writable mapping has the file's own pages, and needs leave to write") {
  const temp_folder folder;
  const std::string path = folder.write("a", "some bytes");
  {
    mapped_file file;
    REQUIRE(file.open(path, file_mapping::writable).ok());
    CHECK(text_of(file) == "some bytes");
    // Its pages can be written, which is what a GPU asks for that pins them so; the library never does.
    auto* first = const_cast<std::byte*>(file.bytes().data());
    *first = std::byte{'S'};
  }
  mapped_file file;
  REQUIRE(file.open(path).ok());
  CHECK(text_of(file) == "Some bytes");

  // A program that runs may not be written, not even by root.
  const std::string busy = fs::read_symlink("/proc/self/exe").string();
  REQUIRE(file.open(busy).ok());
  const status refused = file.open(busy, file_mapping::writable);
  CHECK(refused.code == error_code::bad_file);
  CHECK(refused.message() == busy + ": expected a readable and writable file, got Text file busy");
  CHECK(file.path() == busy);
}
