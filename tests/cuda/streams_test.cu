// Order, cancellation and isolation on real streams.
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>

#include "fp8_model.cuh"

namespace wreload::test {
namespace {

cudaStream_t as_cuda(stream_ref stream) { return static_cast<cudaStream_t>(stream.handle); }

struct scoped_event {
  scoped_event() { WRELOAD_TEST_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)); }
  scoped_event(const scoped_event&) = delete;
  scoped_event& operator=(const scoped_event&) = delete;
  ~scoped_event() { (void)cudaEventDestroy(event); }
  cudaEvent_t event = nullptr;
};

std::vector<std::byte> bytes_of_weight(fp8_model& tested) {
  std::vector<std::byte> copy(static_cast<std::size_t>(tested.weight_bytes()));
  const cudaStream_t stream = as_cuda(tested.memory().stream(7));  // waits for no other
  WRELOAD_TEST_CUDA(cudaMemcpyAsync(copy.data(), tested.weight(), copy.size(), cudaMemcpyDeviceToHost, stream));
  WRELOAD_TEST_CUDA(cudaStreamSynchronize(stream));
  return copy;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("cuda: a producer that is late on another stream is waited for, on the device") {
  fp8_model tested(512, 1024);
  tested.reload(0);
  const cudaStream_t producer = as_cuda(tested.memory().stream(1));
  scoped_event ready;
  WRELOAD_TEST_CUDA(cudaMemset(tested.codes(1), 0, static_cast<std::size_t>(tested.source_bytes())));
  WRELOAD_TEST_CUDA(cudaDeviceSynchronize());
  delay<<<1, 1, 0, producer>>>(200'000'000);
  tested.write_sources(1, producer);
  WRELOAD_TEST_CUDA(cudaEventRecord(ready.event, producer));
  const auto begin = std::chrono::steady_clock::now();
  update<cuda_executor> open = tested.start({.stream = tested.memory().stream(2)});
  const auto pieces = tested.pieces(1);
  demand_ok(open.load(pieces, {ready.event}));
  CHECK(seconds_since(begin) < 0.15);  // load did not wait
  demand_ok(open.finish());
  CHECK(seconds_since(begin) > 0.1);
  CHECK(tested.wrong(1) == 0);
}

TEST_CASE("cuda: abort while landings run: what was written stays, nothing is written later") {
  fp8_model tested(8192, 8192);
  tested.reload(0);
  for (int round = 0; round < 20; ++round) {
    {
      update<cuda_executor> open = tested.start({.stream = tested.memory().stream(2)});
      const auto pieces = tested.pieces(1);
      demand_ok(open.load(pieces));
      std::this_thread::sleep_for(std::chrono::microseconds(5 * round));
      demand_ok(open.abort());
    }
    const auto before = bytes_of_weight(tested);
    WRELOAD_TEST_CUDA(cudaDeviceSynchronize());
    CHECK(bytes_of_weight(tested) == before);
    tested.reload(0);
    CHECK(tested.wrong(0) == 0);
  }
}

TEST_CASE("cuda: lanes on several threads, pieces of rows") {
  fp8_model tested(1024, 2048);
  for (std::uint64_t round = 0; round < 10; ++round) {
    const std::uint64_t seed = round % 2;
    update<cuda_executor> open = tested.start({.stream = tested.memory().stream(0)});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        auto lane = open.lane(tested.memory().stream(1 + t));
        const shape whole{1024, 2048};
        for (std::int64_t row = t * 16; row < 1024; row += 64) {
          tensor_ref rows = tested.codes_ref(seed);
          rows.data = tested.codes(seed) + row * 2048;
          rows.extents = {16, 2048};
          const status loaded = lane.load("w.weight", rows, box::rows(whole, row, row + 16));
          CHECK_MESSAGE(loaded.ok(), loaded.message());
        }
      });
    for (std::thread& each : threads) each.join();
    demand_ok(open.load("w.weight_scale_inv", tested.scales_ref(seed)));
    demand_ok(open.finish());
    CHECK(tested.wrong(seed) == 0);
  }
}

TEST_CASE("cuda: a pageable source larger than the window, and pinned and pageable pieces") {
  fp8_model tested(1024, 1024, {.window_bytes = 16 << 10});
  std::vector<std::byte> codes(static_cast<std::size_t>(tested.source_bytes()));
  tested.memory().read(codes.data(), tested.codes(1), tested.source_bytes());
  const auto grown = [&] { return tested->executor().allocated_bytes(); };
  const std::int64_t sealed = grown();
  for (int round = 0; round < 3; ++round) {
    tensor_ref source = tested.codes_ref(1);
    source.data = codes.data();
    source.memory = memory_kind::pageable;
    update<cuda_executor> open = tested.start({.stream = tested.memory().stream(1)});
    demand_ok(open.load("w.weight", source));
    std::vector<std::byte> kept = std::move(codes);
    codes = kept;
    std::memset(kept.data(), 0, kept.size());  // a pageable source may be reused at once
    demand_ok(open.load("w.weight_scale_inv", tested.scales_ref(1)));
    demand_ok(open.finish());
    CHECK(open.report().peak_extra_device_bytes == 0);
    CHECK(tested.wrong(1) == 0);
    tested.reload(0);
  }
  CHECK(grown() == sealed);
}

TEST_CASE("cuda: 200 alternating updates leave free memory flat and addresses as they are") {
  fp8_model tested(1024, 1024);
  tested.reload(0, tested.memory().stream(1));  // a stream takes memory when it is made
  tested.reload(1, tested.memory().stream(1));
  std::size_t free_before = 0, free_after = 0, total = 0;
  WRELOAD_TEST_CUDA(cudaMemGetInfo(&free_before, &total));
  for (std::uint64_t i = 0; i < 200; ++i) tested.reload(i % 2, tested.memory().stream(1));
  WRELOAD_TEST_CUDA(cudaMemGetInfo(&free_after, &total));
  CHECK(free_before == free_after);
  CHECK(tested.wrong(1) == 0);
  CHECK(tested->version() == 202);
}

TEST_CASE("cuda: the calling thread's device comes back") {
  int devices = 0;
  WRELOAD_TEST_CUDA(cudaGetDeviceCount(&devices));
  if (devices < 2) MESSAGE("skipped in part: one GPU, so another current device cannot be tried");
  fp8_model tested(128, 128, {.device = 0});
  const int other = devices - 1;
  WRELOAD_TEST_CUDA(cudaSetDevice(other));
  update<cuda_executor> open = tested.start({});
  demand_ok(open.load(tested.pieces(1)));
  demand_ok(open.finish());
  int now = -1;
  WRELOAD_TEST_CUDA(cudaGetDevice(&now));
  CHECK(now == other);
  WRELOAD_TEST_CUDA(cudaSetDevice(0));
  CHECK(tested.wrong(1) == 0);
}

TEST_CASE("cuda: a stream that is being captured is refused; another thread's capture is not disturbed") {
  fp8_model tested(256, 256);
  tested.reload(0);
  const stream_ref captured = tested.memory().stream(1);
  (void)tested.memory().stream(2);  // made before the capture, which forbids it
  WRELOAD_TEST_CUDA(cudaStreamBeginCapture(as_cuda(captured), cudaStreamCaptureModeGlobal));
  status refused;
  CHECK(!tested->start({.readers = {&captured, 1}}, &refused).is_open());
  CHECK(refused.code == error_code::wrong_state);
  CHECK(!tested->start({.stream = captured}, &refused).is_open());
  CHECK(refused.code == error_code::wrong_state);
  std::thread other([&] { tested.reload(1, tested.memory().stream(2)); });  // while the capture is open
  other.join();
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(as_cuda(captured), &graph) == cudaSuccess);
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  CHECK(tested.wrong(1) == 0);
}

TEST_CASE("cuda: a graph captured once sees the new values of every update") {
  fp8_model tested(512, 512);
  tested.reload(0);
  std::byte* sum = tested.memory().allocate(8, std::byte{0});
  const cudaStream_t stream = as_cuda(tested.memory().stream(1));
  const auto words = static_cast<std::uint64_t>(tested.weight_bytes() / 4);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  WRELOAD_TEST_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  WRELOAD_TEST_CUDA(cudaMemsetAsync(sum, 0, 8, stream));
  sum_words<<<32, 256, 0, stream>>>(reinterpret_cast<const std::uint32_t*>(tested.weight()), words,
                                    reinterpret_cast<unsigned long long*>(sum));
  WRELOAD_TEST_CUDA(cudaStreamEndCapture(stream, &graph));
  WRELOAD_TEST_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  const auto replayed = [&] {
    WRELOAD_TEST_CUDA(cudaGraphLaunch(exec, stream));
    WRELOAD_TEST_CUDA(cudaStreamSynchronize(stream));
    std::uint64_t found = 0;
    tested.memory().read(&found, sum, 8);
    return found;
  };
  const auto expected = [&] {
    std::uint64_t found = 0;
    const auto bytes = bytes_of_weight(tested);
    for (std::size_t i = 0; i < bytes.size(); i += 4) {
      std::uint32_t word = 0;
      std::memcpy(&word, bytes.data() + i, 4);
      found += word;
    }
    return found;
  };
  const std::uint64_t first = replayed();
  CHECK(first == expected());
  const stream_ref reader{stream};
  for (std::uint64_t seed : {1, 0, 1}) {
    update<cuda_executor> open = tested.start({.stream = tested.memory().stream(2), .readers = {&reader, 1}});
    const auto pieces = tested.pieces(seed);
    demand_ok(open.load(pieces));
    demand_ok(open.finish());
    CHECK(tested.wrong(seed) == 0);
    const std::uint64_t now = replayed();
    CHECK(now == expected());
    CHECK((now == first) == (seed == 0));
  }
  (void)cudaGraphExecDestroy(exec);
  (void)cudaGraphDestroy(graph);
}

TEST_CASE("cuda: one launch converts all matrices of a key, however many") {
  constexpr int matrices = 300;
  test_memory<cuda_executor> memory;
  model<cuda_executor> many;
  for (int i = 0; i < matrices; ++i) {
    const std::string name = "w" + std::to_string(i);
    demand_ok(many.add<Fp8DequantLinear>(name, extents::matrix(name, 130, 256), memory.allocate(130 * 512, std::byte{1}),
                                         memory.allocate(2 * 2 * 4, std::byte{1})));
  }
  demand_ok(many.seal());
  std::byte* codes = memory.allocate(130 * 256, std::byte{0x38});
  std::byte* scales = memory.allocate(16, std::byte{0x3F});
  std::vector<std::string> names;
  std::vector<piece> pieces;
  for (int i = 0; i < matrices; ++i) {
    names.push_back("w" + std::to_string(i) + ".weight");
    names.push_back("w" + std::to_string(i) + ".weight_scale_inv");
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool weight = i % 2 == 0;
    pieces.push_back({.name = names[i],
                      .tensor = {.data = weight ? codes : scales, .type = weight ? dtype::fp8_e4m3 : dtype::fp32,
                                 .extents = weight ? shape{130, 256} : shape{2, 2}, .memory = memory_kind::device}});
  }
  status refused;
  update<cuda_executor> open = many.start({}, &refused);
  demand_ok(refused);
  demand_ok(open.load(pieces));
  demand_ok(open.finish());
  CHECK(open.report().launches == 2);  // one landing of the bucket, one conversion
  CHECK(open.report().peak_extra_device_bytes == 0);
}

/// Tests that block a stream until they release it: apart, for tools that run one kernel at a time.
TEST_SUITE_BEGIN("held");

TEST_CASE("cuda: a landing behind an event that never comes is dead after abort") {
  fp8_model tested(512, 1024);
  tested.reload(0);
  held_stream dead_peer(tested.memory().stream(1));
  const auto before = bytes_of_weight(tested);
  {
    update<cuda_executor> open = tested.start({.stream = tested.memory().stream(2)});
    auto lane = open.lane(tested.memory().stream(3));
    const auto pieces = tested.pieces(1);
    demand_ok(lane.load(std::span(pieces).first(1), dead_peer.event()));
    demand_ok(open.load(std::span(pieces).last(1)));
    const auto begin = std::chrono::steady_clock::now();
    demand_ok(open.abort());
    CHECK(seconds_since(begin) < 2.0);
  }
  CHECK(tested->state() == model_state::undefined);
  CHECK(bytes_of_weight(tested) == before);
  // The repair runs beside the landing that is still queued.
  {
    update<cuda_executor> repair = tested.start({.stream = tested.memory().stream(4)});
    const auto pieces = tested.pieces(0);
    demand_ok(repair.load(pieces));
    demand_ok(repair.finish());
  }
  CHECK(bytes_of_weight(tested) == before);
  dead_peer.release_and_drain();  // the queued landing has had its turn
  CHECK(bytes_of_weight(tested) == before);
  CHECK(tested.wrong(0) == 0);
  tested.reload(1);
  CHECK(tested.wrong(1) == 0);
}

TEST_CASE("cuda: abort ends a prepare that reads digests behind an event that never comes") {
  fp8_model tested(256, 512);
  tested.reload(0);
  held_stream dead_peer(tested.memory().stream(1));
  {
    update<cuda_executor> open = tested.start({.stream = tested.memory().stream(2), .digest_landed = true});
    demand_ok(open.load(tested.pieces(1), dead_peer.event()));
    status prepared;
    std::thread other([&] { prepared = open.prepare(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto begin = std::chrono::steady_clock::now();
    demand_ok(open.abort());
    CHECK(seconds_since(begin) < 2.0);
    other.join();
    CHECK(prepared.code == error_code::aborted);
  }
  dead_peer.release_and_drain();
  tested.reload(1);
  CHECK(tested.wrong(1) == 0);
}

TEST_CASE("cuda: law 7: what an aborted digest left queued does not reach into the next update") {
  fp8_model tested(256, 512, {.table_bytes = 64 << 10});
  tested.reload(0);
  std::vector<std::byte> codes(256 * 512);
  tested.memory().read(codes.data(), tested.codes(1), 256 * 512);
  digest_list sent;
  append_digests("w.weight", {.data = codes.data(), .type = dtype::fp8_e4m3, .extents = {256, 512}}, sent);
  held_stream dead_peer(tested.memory().stream(1));
  {
    update<cuda_executor> open = tested.start({.mode = update_mode::staged, .stream = tested.memory().stream(2),
                                               .staging = {.budget_bytes = staging_memory::no_limit}, .digests = sent});
    demand_ok(open.load(tested.pieces(1), dead_peer.event()));
    status prepared;
    std::thread other([&] { prepared = open.prepare(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    demand_ok(open.abort());
    other.join();
    CHECK(prepared.code == error_code::aborted);
  }
  CHECK(tested.wrong(0) == 0);
  // The tables of the next update are written while fills and copies of the digest are still queued.
  const stream_ref reader = tested.memory().stream(5);
  held_stream reading(reader);
  update<cuda_executor> next = tested.start({.stream = tested.memory().stream(4), .readers = {&reader, 1}});
  std::vector<piece> rows;
  for (std::int64_t row = 0; row < 256; row += 4) {
    piece some{.name = "w.weight", .tensor = tested.codes_ref(1), .part = box::rows({256, 512}, row, row + 4)};
    some.tensor.data = tested.codes(1) + row * 512;
    some.tensor.extents = {4, 512};
    rows.push_back(some);
  }
  demand_ok(next.load(rows));
  demand_ok(next.load("w.weight_scale_inv", tested.scales_ref(1)));
  dead_peer.release();
  WRELOAD_TEST_CUDA(cudaStreamSynchronize(as_cuda(tested.memory().stream(2))));
  reading.release_and_drain();
  demand_ok(next.finish());
  CHECK(tested.wrong(1) == 0);
}

TEST_CASE("cuda: a conversion behind an event that never comes is dead after abort, and publish gives up") {
  fp8_model tested(256, 512);
  tested.reload(0);
  held_stream dead_peer(tested.memory().stream(1));
  update<cuda_executor> open = tested.start({.stream = tested.memory().stream(2)});
  const auto pieces = tested.pieces(1);
  demand_ok(open.load(pieces, dead_peer.event()));
  demand_ok(open.prepare());
  demand_ok(open.commit());
  std::thread waits([&] { CHECK(open.publish().code == error_code::aborted); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto before = bytes_of_weight(tested);
  demand_ok(open.abort());
  waits.join();
  dead_peer.release_and_drain();
  CHECK(bytes_of_weight(tested) == before);
  CHECK(tested.wrong(0) == 0);
}

TEST_CASE("cuda: law 7: a publish that a cancel overtakes does not say that all is written") {
  fp8_model tested(256, 512);
  for (int round = 0; round < 40; ++round) {
    CAPTURE(round);
    tested.reload(0);
    held_stream late_peer(tested.memory().stream(1));
    update<cuda_executor> open = tested.start({.stream = tested.memory().stream(2)});
    const auto pieces = tested.pieces(1);
    demand_ok(open.load(pieces, late_peer.event()));
    demand_ok(open.prepare());
    demand_ok(open.commit());
    status published, aborted;
    std::thread waits([&] { published = open.publish(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(15));  // so that it sleeps between looks
    std::thread aborts([&] { aborted = open.abort(); });
    const auto begin = std::chrono::steady_clock::now();
    while (seconds_since(begin) < round * 5e-6) {  // before, while and after the other thread cancels
    }
    late_peer.release();  // what was queued goes on: dead, if the cancel came first
    waits.join();
    aborts.join();
    WRELOAD_TEST_CUDA(cudaDeviceSynchronize());
    demand_ok(aborted);
    CHECK((published.ok() || published.code == error_code::aborted));
    CHECK((tested->state() == model_state::live) == published.ok());
    if (published.ok()) CHECK(tested.wrong(1) == 0);
  }
}

TEST_CASE("cuda: the first write of each lane waits for the readers, on the device") {
  fp8_model tested(512, 512);
  tested.reload(0);
  const stream_ref reader = tested.memory().stream(1);
  held_stream reading(reader);
  const auto before = bytes_of_weight(tested);
  update<cuda_executor> open = tested.start({.stream = tested.memory().stream(2), .readers = {&reader, 1}});
  auto lane = open.lane(tested.memory().stream(3));
  const auto pieces = tested.pieces(1);
  demand_ok(lane.load(std::span(pieces).first(1)));
  demand_ok(open.load(std::span(pieces).last(1)));
  demand_ok(open.prepare());
  event_ref done;
  demand_ok(open.commit(&done));
  delay<<<1, 1, 0, as_cuda(tested.memory().stream(5))>>>(20'000'000);
  WRELOAD_TEST_CUDA(cudaStreamSynchronize(as_cuda(tested.memory().stream(5))));
  CHECK(bytes_of_weight(tested) == before);
  CHECK(cudaEventQuery(static_cast<cudaEvent_t>(done.handle)) == cudaErrorNotReady);
  (void)cudaGetLastError();
  reading.release();
  demand_ok(open.publish());
  CHECK(tested.wrong(1) == 0);
}

TEST_CASE("cuda: abort ends a load that waits for the window") {
  fp8_model tested(1024, 1024, {.window_bytes = 16 << 10});
  tested.reload(0);
  held_stream dead_peer(tested.memory().stream(1));
  std::vector<std::byte> codes(static_cast<std::size_t>(tested.source_bytes()));
  const auto before = bytes_of_weight(tested);
  update<cuda_executor> open = tested.start({.stream = tested.memory().stream(2)});
  piece one{.name = "w.weight", .tensor = tested.codes_ref(1)};
  one.tensor.data = codes.data();
  one.tensor.memory = memory_kind::pageable;
  CHECK(open.load({&one, 1}, dead_peer.event()).code == error_code::bad_argument);  // the host would read it at once
  const piece scales{.name = "w.weight_scale_inv", .tensor = tested.scales_ref(1)};
  demand_ok(open.load({&scales, 1}, dead_peer.event()));
  std::thread loads([&] { CHECK(open.load({&one, 1}).code == error_code::aborted); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  demand_ok(open.abort());
  loads.join();
  dead_peer.release_and_drain();
  CHECK(bytes_of_weight(tested) == before);
}

TEST_SUITE_END();

}  // namespace wreload::test
