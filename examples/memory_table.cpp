// Bytes per rank of Kimi-K2.5 NVFP4 at tensor parallel 4, under three ways of keeping the scales that kernels read in
// 128x4 order. Nothing is allocated: every number is a layer's plan.
//
//   keep everything   the checkpoint's scales stay, kernels read a swizzled copy
//   AliasOrBind       the copy takes over the source's bytes where the order adds no pad, else it is bound beside it
//   landed maps       the source lands in kernel order: one copy, pads included, even where it is bound

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <wreload/wreload.hpp>

namespace wr = wreload;

namespace {

// What a layer, or a part of the model, takes under each way.
struct bytes_per_way {
  std::int64_t keep_everything = 0, alias_or_bind = 0, landed = 0;

  bytes_per_way& operator+=(const bytes_per_way& other) {
    keep_everything += other.keep_everything;
    alias_or_bind += other.alias_or_bind;
    landed += other.landed;
    return *this;
  }
  friend bytes_per_way operator*(const bytes_per_way& one, std::int64_t count) {
    return {one.keep_everything * count, one.alias_or_bind * count, one.landed * count};
  }
};

// Fails the run where a layout refuses the sizes.
void must(const wr::status& result) {
  if (result.ok()) return;
  std::fprintf(stderr, "memory_table: %s\n", result.message().c_str());
  std::exit(2);
}

// A param derived by a map is landed: it holds its source. The other ways would keep the source as well.
template <class Layout>
bytes_per_way bytes_of_layer(const wr::extents& sizes) {
  wr::layer_plan plan;
  must(wr::plan_layer(Layout::specs, "layer", sizes, plan));
  bytes_per_way sum;
  for (const wr::planned_param& param : plan.params) {
    if (!param.has_storage()) continue;
    sum += {param.bytes(), param.bytes(), param.bytes()};
    if (param.spec.kind != wr::param_kind::mapped) continue;
    const std::int64_t source = param.bytes() - param.pad_bytes();
    sum.keep_everything += source;
    if (param.pad_bytes() > 0) sum.alias_or_bind += source;
  }
  return sum;
}

bytes_per_way same(std::int64_t bytes) { return {bytes, bytes, bytes}; }

constexpr std::int64_t hidden = 7168, dense_width = 18432, width = 2048, experts = 384, layers = 61;
constexpr wr::tensor_parallel rank = {4, 0};

bytes_per_way gate_up(std::int64_t rows) {
  return bytes_of_layer<wr::Nvfp4Linear>(wr::extents{
      .shards = {{.module = "gate_proj", .rows = rows}, {.module = "up_proj", .rows = rows}}, .inner = {hidden / 2}}
                                             .cut(wr::parallel::column, rank));
}
bytes_per_way down(std::int64_t cols) {
  return bytes_of_layer<wr::Nvfp4Linear>(wr::extents::matrix("down_proj", hidden, cols / 2).cut(wr::parallel::row, rank));
}

wr::extents routed_experts() {
  wr::extents sizes{.shards = {{.module = "gate_proj", .rows = width, .cols = hidden / 2},
                               {.module = "up_proj", .rows = width, .cols = hidden / 2},
                               {.module = "down_proj", .rows = hidden, .cols = width / 2, .split = wr::parallel::row}},
                    .experts = wr::expert_slots::all(experts)};
  return sizes.cut(wr::parallel::column, rank);
}

bytes_per_way bf16(std::int64_t rows, std::int64_t cols, wr::parallel how = wr::parallel::replicated) {
  return bytes_of_layer<wr::Plain>(wr::extents::tensor("t", {rows, cols}, wr::dtype::bf16).cut(how, rank));
}

// models.md, section 3: attention in BF16, with the absorbed W_UK and W_UV beside kv_b_proj.
bytes_per_way attention() {
  bytes_per_way sum = bf16(1536 + 576, hidden);
  sum += bf16(12288, 1536, wr::parallel::column);
  sum += bf16(16384, 512, wr::parallel::column) * 2;
  sum += bf16(hidden, 8192, wr::parallel::row);
  sum += bf16(1, 2 * hidden + 1536 + 512);
  return sum;
}

void print_row(std::string_view part, std::int64_t count, const bytes_per_way& all) {
  constexpr double gib = 1024.0 * 1024.0 * 1024.0;
  std::printf("%-34.*s %5lld %12.3f %12.3f %12.3f %12.3f\n", static_cast<int>(part.size()), part.data(),
              static_cast<long long>(count), static_cast<double>(all.keep_everything) / gib,
              static_cast<double>(all.alias_or_bind) / gib, static_cast<double>(all.landed) / gib,
              static_cast<double>(all.keep_everything - all.landed) / gib);
}

}  // namespace

int main() {
  struct part {
    const char* name;
    std::int64_t count;
    bytes_per_way each;
  };
  bytes_per_way router = bf16(experts, hidden);
  router += same(experts * 4);
  const std::vector<part> parts = {
      {"routed experts, CUTLASS order", layers - 1, bytes_of_layer<wr::Nvfp4Moe>(routed_experts())},
      {"shared expert gate_up_proj", layers - 1, gate_up(width)},
      {"shared expert down_proj", layers - 1, down(width)},
      {"dense gate_up_proj", 1, gate_up(dense_width)},
      {"dense down_proj", 1, down(dense_width)},
      {"attention, absorbed weights", layers, attention()},
      {"router", layers - 1, router},
      {"embedding and head", 2, bf16(163840, hidden, wr::parallel::column)},
      {"vision tower and projector", 1, same(942'287'840)},
  };
  std::printf("Kimi-K2.5 NVFP4, tensor parallel 4, GiB a rank\n%-34s %5s %12s %12s %12s %12s\n", "", "count", "keep all",
              "AliasOrBind", "landed", "saved");
  bytes_per_way total;
  for (const part& each : parts) {
    print_row(each.name, each.count, each.each * each.count);
    total += each.each * each.count;
  }
  print_row("total", 1, total);

  const bytes_per_way moe = parts[0].each * parts[0].count;
  std::printf("\nMoE block scales: %lld bytes a rank saved by landing them in kernel order\n",
              static_cast<long long>(moe.keep_everything - moe.landed));
  std::printf("\nOne layer's routed experts, as storage_plan has them:\n");
  wr::status error;
  for (const wr::storage_need& need : wr::storage_plan<wr::Nvfp4Moe>("mlp.experts", routed_experts(), &error))
    std::printf("  %-36s %-10s %-18s %13lld bytes%s\n", need.name.c_str(), std::string(wr::name_of(need.type)).c_str(),
                to_string(need.extents).c_str(), static_cast<long long>(need.bytes), need.retired ? "  retired" : "");
  must(error);
  return 0;
}
