// Status: an error is a value with the parameter, the expectation and the fact.
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include <wreload/core/status.hpp>

namespace wr = wreload;

TEST_CASE("the default is success") {
  const wr::status fine;
  CHECK(fine.ok());
  CHECK_FALSE(fine.is_final());
  CHECK_FALSE(fine.wrote_anything);
  CHECK(fine.message() == "ok");
}

TEST_CASE("a message carries param, expected and got") {
  const wr::status error = wr::refuse(wr::error_code::wrong_shape, "layers.3.mlp.down_proj.weight_scale_inv",
                                      "F32 [32, 112]", "F32 [32, 56]");
  CHECK_FALSE(error.ok());
  CHECK_FALSE(error.wrote_anything);
  CHECK(error.message() == "layers.3.mlp.down_proj.weight_scale_inv: expected F32 [32, 112], got F32 [32, 56]");
}

TEST_CASE("a message leaves out what is not there") {
  using wr::error_code::bad_argument;
  CHECK(wr::refuse(bad_argument, "a", "b", "").message() == "a: expected b");
  CHECK(wr::refuse(bad_argument, "a", "", "c").message() == "a: c");
  CHECK(wr::refuse(bad_argument, "", "b", "c").message() == "expected b, got c");
  CHECK(wr::refuse(bad_argument, "", "", "c").message() == "c");
  CHECK(wr::refuse(bad_argument, "a", "", "").message() == "a");
}

TEST_CASE("validation errors are not final, execution errors are") {
  using enum wr::error_code;
  for (const auto code : {bad_argument, bad_layout, bad_environment, bad_file, unknown_name, wrong_dtype, wrong_shape,
                          duplicate, mixed_formats, out_of_scope, incomplete, conflict, wrong_state, wrong_base, moved,
                          unsupported})
    CHECK_FALSE(wr::refuse(code, "a", "b", "c").is_final());
  for (const auto code : {execution_failed, out_of_memory, aborted}) CHECK(wr::refuse(code, "a", "b", "c").is_final());
  static_assert(last_validation == unsupported);
}

TEST_CASE("texts read as strings, and own what they hold") {
  static_assert(sizeof(wr::status) <= 4 * sizeof(void*));  // made several times a load
  wr::status error = wr::refuse(wr::error_code::bad_file, "a", "", "c");
  wr::status copy = error;
  copy.got += " and more";
  CHECK(error.got == "c");
  CHECK(copy.got == std::string("c and more"));
  CHECK(copy.got != error.got);
  CHECK("a" + copy.param + "b" == "aab");
  CHECK(copy.got.starts_with("c and"));
  CHECK(std::string(copy.got).size() == copy.got.size());
  CHECK(error.expected.empty());
  CHECK(error.expected == "");
  const std::string& text = error.param;
  CHECK(text == "a");
  const wr::status moved = std::move(copy);
  CHECK(moved.got == "c and more");
  error = moved;
  CHECK(error.message() == moved.message());
  error.got = std::string();
  CHECK(error.got.empty());
  const wr::status& same = error;
  error = same;
  CHECK(error.param == "a");
  error = {};
  CHECK(error.message() == "ok");
}
