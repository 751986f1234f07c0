// Beyond 2^31 elements and 2^32 bytes. Tagged large: run with -ts=large, leave out with -tse=large.
#include "fp8_model.cuh"

namespace wreload::test {
namespace {

__global__ void count_different(const std::uint64_t* a, const std::uint64_t* b, std::uint64_t count,
                                unsigned long long* different) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    if (a[i] != b[i]) atomicAdd(different, 1ULL);
}

bool has_room(std::size_t bytes) {
  std::size_t free = 0, total = 0;
  WRELOAD_TEST_CUDA(cudaMemGetInfo(&free, &total));
  if (free < bytes) MESSAGE("skipped: needs " << bytes << " bytes of device memory, " << free << " are free");
  return free >= bytes;
}

}  // namespace

TEST_SUITE("large") {
  TEST_CASE("cuda: an FP8 matrix of more than 2^31 elements over BF16 of more than 2^32 bytes") {
    if (!has_room(std::size_t{12} << 30)) return;
    fp8_model tested(33024, 65600);
    static_assert(std::int64_t{33024} * 65600 > std::int64_t{1} << 31);
    tested.reload(0);
    CHECK(tested.wrong(0) == 0);
    tested.reload(1);
    CHECK(tested.wrong(1) == 0);
    // A partial update of the last rows, whose offsets are all beyond 2^32.
    const std::string_view names[] = {"w.weight", "w.weight_scale_inv"};
    update<cuda_executor> open = tested.start({.scope = update_scope::partial(names)});
    demand_ok(open.load(tested.pieces(0)));
    demand_ok(open.finish());
    CHECK(tested.wrong(0) == 0);
  }

  TEST_CASE("cuda: one tensor of more than 2^32 bytes lands and compares") {
    const std::int64_t count = (std::int64_t{1} << 31) + 4096 + 8;  // bf16 elements
    if (!has_room(static_cast<std::size_t>(count) * 6)) return;
    test_memory<cuda_executor> memory;
    std::byte* live = memory.allocate(count * 2, std::byte{0});
    std::byte* source = memory.allocate(count * 2, std::byte{0});
    std::byte* different = memory.allocate(8, std::byte{0});
    fill_codes<<<1024, 256>>>(reinterpret_cast<std::uint8_t*>(source), static_cast<std::uint64_t>(count * 2), 7);
    WRELOAD_TEST_CUDA(cudaDeviceSynchronize());
    model<cuda_executor> tested;
    demand_ok(tested.add<Plain>("big", extents::tensor("big", {count}, dtype::bf16), live));
    demand_ok(tested.seal());
    status refused;
    update<cuda_executor> open = tested.start({}, &refused);
    demand_ok(refused);
    demand_ok(open.load("big", {.data = source, .type = dtype::bf16, .extents = {count}, .memory = memory_kind::device}));
    demand_ok(open.finish());
    count_different<<<1024, 256>>>(reinterpret_cast<const std::uint64_t*>(live),
                                   reinterpret_cast<const std::uint64_t*>(source),
                                   static_cast<std::uint64_t>(count / 4),
                                   reinterpret_cast<unsigned long long*>(different));
    std::int64_t found = -1;
    memory.read(&found, different, 8);
    CHECK(found == 0);
    const std::byte changed{0x11};
    std::byte was{};
    const std::int64_t at = count * 2 - 3;
    memory.read(&was, source + at, 1);
    memory.write(source + at, &changed, 1);
    auto lane = tested.executor().open_own();
    std::int64_t first = -1;
    demand_ok(tested.executor().first_difference(lane, {live, source, 1, count * 2, count * 2, count * 2}, &first));
    CHECK(first == (was == changed ? -1 : at));
  }
}

}  // namespace wreload::test
