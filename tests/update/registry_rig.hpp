#pragma once
// A registry, memory for what is added to it, and what is asked of a refusal.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/layout/plan_layer.hpp>
#include <wreload/layouts/plain.hpp>
#include <wreload/update/registry.hpp>

namespace registry_tests {

namespace wr = wreload;

/// A registry and plenty of memory for what is added to it.
struct rig {
  wr::registry records = {};
  std::vector<std::unique_ptr<std::byte[]>> blocks = {};

  std::byte* block(std::int64_t bytes) {
    blocks.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes)));
    return blocks.back().get();
  }

  wr::layer_plan plan(std::span<const wr::param_spec> specs, const std::string& name, const wr::extents& sizes) {
    wr::layer_plan plan;
    const wr::status error = wr::plan_layer(specs, name, sizes, plan);
    REQUIRE_MESSAGE(error.ok(), error.message());
    return plan;
  }

  wr::status add(std::span<const wr::param_spec> specs, const std::string& name, const wr::extents& sizes) {
    wr::layer_plan planned = plan(specs, name, sizes);
    std::vector<wr::storage> memory;
    for (const wr::planned_param& param : planned.params) memory.emplace_back(block(param.bytes()));
    return records.add(std::move(planned), memory);
  }

  /// A bf16 matrix under `name` that reads the checkpoint tensor `tensor`.
  wr::status add_matrix(const std::string& name, const std::string& tensor, std::int64_t rows, std::int64_t cols,
                        wr::storage memory) {
    wr::layer_plan planned = plan(wr::Plain::specs, name, wr::extents::tensor(tensor, {rows, cols}, wr::dtype::bf16));
    return records.add(std::move(planned), std::span(&memory, 1));
  }
  wr::status add_matrix(const std::string& name, const std::string& tensor, std::int64_t rows, std::int64_t cols) {
    return add_matrix(name, tensor, rows, cols, block(rows * cols * 2));
  }
};

inline void check_refused(const wr::status& error, wr::error_code code, const std::string& message) {
  CHECK(error.code == code);
  CHECK(error.message() == message);
  CHECK_FALSE(error.wrote_anything);
}

}  // namespace registry_tests
