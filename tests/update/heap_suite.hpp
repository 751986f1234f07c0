#pragma once
/// Every allocation from the heap that a call of an update makes fails once: no update succeeds with wrong bytes, none
/// hangs, and the model is as its mode promises. The file that instantiates this suite counts the heap: it includes
/// tests/heap_counter.hpp.

#include <cstdint>
#include <initializer_list>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../heap_counter.hpp"
#include "bucket_delivery.hpp"
#include "injected_run.hpp"

namespace wreload::test {

/// An update or a lane of which the calls see a heap that is short.
template <class Open>
class short_handle {
 public:
  short_handle(Open& to, heap_shortage& heap) : to_(to), heap_(heap) {}

  status load(std::string_view name, const tensor_ref& tensor, const box& part = whole_tensor) {
    return heap_.during([&] { return to_.load(name, tensor, part); });
  }
  status load(std::span<const piece> pieces, event_ref ready = {}) {
    return heap_.during([&] { return to_.load(pieces, ready); });
  }
  status load_bucket(const bucket& from) {
    return heap_.during([&] { return to_.load(from); });
  }
  status landing(std::string_view name, const box& part, dtype type, direct_landing* out) {
    return heap_.during([&] { return to_.landing(name, part, type, out); });
  }
  status adopt(std::span<const std::string_view> names, load_form form) {
    return heap_.during([&] { return to_.adopt(names, form); });
  }
  status retract(std::string_view name) {
    return heap_.during([&] { return to_.retract(name); });
  }
  auto lane(stream_ref stream) {
    using lane_type = typename Open::lane_type;
    struct owning : short_handle<lane_type> {
      owning(lane_type&& opened, heap_shortage& heap) : short_handle<lane_type>(opened_, heap), opened_(opened) {}
      lane_type opened_;
    };
    return owning(heap_.during([&] { return to_.lane(stream); }), heap_);
  }

 private:
  Open& to_;
  heap_shortage& heap_;
};

/// How a checkpoint comes.
enum class sent_as : std::uint8_t {
  pieces,   ///< each in its own way, some retracted and sent again; see `mixed_engine::deliver`
  buckets,  ///< to which no plan belongs
  replays,  ///< buckets of the plan
  strays,   ///< buckets of the plan, but for the last, which comes as pieces
};
inline std::string_view name_of(sent_as how) {
  constexpr std::string_view names[] = {"pieces", "buckets", "replays", "strays"};
  return names[static_cast<std::size_t>(how)];
}

/// A run whose updates come in one of these ways, on a heap that is short.
template <class Executor>
class short_run : public injected_run<Executor> {
 public:
  using base = injected_run<Executor>;

  short_run(const injected_case& how, sent_as way) : base(how), way_(way) {}

  /// Whether its updates follow a plan, which `make_plan` has to make.
  bool follows() const { return way_ == sent_as::replays || way_ == sent_as::strays; }

  /// A complete update in the run's mode that leaves its plan.
  void make_plan() {
    const sent_as later = std::exchange(way_, sent_as::buckets);
    base::prepare_next();
    heap_shortage plenty(-1);
    must(update_with(plenty));
    base::check_passed();
    way_ = later;
  }

  /// The update; stops at the first refusal.
  status update_with(heap_shortage& heap) {
    has_committed_ = false;
    status result = heap.during([&] { return base::start(); });
    if (result.ok()) result = deliver(heap);
    if (result.ok()) result = heap.during([&] { return base::open().prepare(); });
    if (!result.ok()) return result;
    has_committed_ = true;
    result = heap.during([&] { return base::open().commit(); });
    if (result.ok()) result = heap.during([&] { return base::open().publish(); });
    return result;
  }
  bool has_committed() const { return has_committed_; }

  /// The caller tries again: everything, whatever is refused.
  status finish_again() {
    heap_shortage plenty(-1);
    short_handle open(base::open(), plenty);
    for (const auto& [name, value] : base::sent()) (void)open.load(name, base::engine().place(value));
    return base::open().finish();
  }

 private:
  status deliver(heap_shortage& heap) {
    short_handle open(base::open(), heap);
    if (way_ != sent_as::pieces) return deliver_buckets(open);
    status result = base::engine().deliver(open, base::sent(), turn_++, &base::tried());
    return result.ok() ? resend(open, {"q.weight", "q.weight_scale_inv"}) : result;
  }

  /// Takes back what came under these names, and sends it again.
  template <class Open>
  status resend(Open& open, std::initializer_list<const char*> names) {
    status result;
    for (const char* name : names)
      if (result.ok() && base::sent().contains(name)) result = open.retract(name);
    for (const char* name : names)
      if (result.ok() && base::sent().contains(name))
        result = open.load(name, base::engine().place(base::sent().at(name)));
    return result;
  }

  template <class Open>
  status deliver_buckets(Open& open) {
    std::vector<test_bucket> buckets;
    std::size_t index = 0;
    for (const auto& [name, value] : base::sent()) {
      if (index++ % 4 == 0) buckets.emplace_back();
      buckets.back().add(whole_parcel(name, value), 16);
    }
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      const placed_bucket<Executor> placed(base::engine().memory(), buckets[i], base::sent(), 0);
      for (const parcel& each : buckets[i].parcels) base::tried().insert(each.name);
      const bool strays = way_ == sent_as::strays && i + 1 == buckets.size();
      const status result = strays ? open.load(placed.pieces()) : open.load_bucket(placed.get());
      if (!result.ok()) return result;
    }
    return {};
  }

  sent_as way_;
  std::size_t turn_ = 0;
  bool has_committed_ = false;
};

/// Updates and how they come.
struct short_case {
  injected_case how = {};
  std::vector<sent_as> ways = {sent_as::pieces};
};
inline std::vector<short_case> short_cases() {
  constexpr std::int64_t room = 16 << 10, small = 160;
  constexpr auto layerwise = update_mode::layerwise, staged = update_mode::staged, swap = update_mode::swap;
  constexpr auto undo = undo_mode::host;
  using enum sent_as;
  return {
      {{.name = "direct", .alike = true}, {pieces, buckets, replays, strays}},
      {{.name = "swap", .mode = swap, .alike = true}, {pieces, buckets, replays, strays}},
      {{.name = "direct, undo", .undo = undo}, {pieces, buckets}},
      {{.name = "direct, partial", .partial = true}},
      {{.name = "direct, watchful", .watchful = true}},
      {{.name = "layerwise", .mode = layerwise, .budget_bytes = room}, {pieces, buckets}},
      {{.name = "layerwise, undo", .mode = layerwise, .undo = undo, .budget_bytes = room}},
      {{.name = "layerwise, too little room", .mode = layerwise, .budget_bytes = small, .or_direct = true}},
      {{.name = "staged", .mode = staged, .budget_bytes = room, .watchful = true}, {pieces, buckets}},
      {{.name = "staged, no limit", .mode = staged, .budget_bytes = staging_memory::no_limit}},
      {{.name = "staged, undo", .mode = staged, .undo = undo, .budget_bytes = room}},
  };
}

/// After an exception: the caller may try again; then the update ends (`n` says how), and a complete one repairs the
/// model.
template <class Executor>
void check_thrown(short_run<Executor>& run, const injected_case& how, std::int64_t n, bool tries_again) {
  if (tries_again && run.open().is_open()) {
    const status result = run.finish_again();
    if (result.ok()) return run.check_passed();
    demand(result.code == error_code::out_of_memory && !result.message().empty(), "tried again: " + result.message());
  }
  heap_shortage none_left(0, true);  // `abort` takes nothing from the heap
  const bool by_destructor = n % 2 == 0;
  const status ended = none_left.during([&] {
    if (!by_destructor) return run.open().abort();
    run.open() = {};
    return status{};
  });
  must(ended);
  run.check_ended(how.is_atomic(!run.has_committed()));
  run.open() = {};
  if (n % 3 == 0)
    run.repair_without_kept();
  else
    run.repair_directly();
}

/// An update of which the n-th allocation fails; whether it makes that many. `thrown` counts exceptions.
template <class Executor>
bool fail_one(short_run<Executor>& run, const injected_case& how, std::int64_t n, bool tries_again,
              std::int64_t* thrown) {
  run.prepare_next();
  heap_shortage heap(n);
  try {
    must(run.update_with(heap));
  } catch (const std::bad_alloc&) {
    ++*thrown;
    check_thrown(run, how, n, tries_again);
    return true;
  }
  if (run.follows()) demand(run.open().report().replayed_buckets > 0, "no bucket was replayed");
  run.check_passed();
  return heap.has_hit();  // what can do with less memory does
}

TEST_CASE_TEMPLATE_DEFINE("laws 6, 7: every allocation fails once: no success with wrong bytes, no hang", Executor,
                          heap_update) {
  for (const short_case& each : short_cases())
    for (const sent_as way : each.ways)
      for (const bool tries_again : {false, true}) {
        short_run<Executor> run(each.how, way);
        if (run.follows()) run.make_plan();
        std::int64_t n = 0, thrown = 0;
        try {
          while (fail_one(run, each.how, n, tries_again, &thrown)) n += test_sparsity();
        } catch (const std::runtime_error& error) {
          const std::string where = each.how.name + ", " + std::string(name_of(way)) + ", allocation ";
          FAIL_CHECK(where << n << ": " << std::string(error.what()));
        }
        CHECK(thrown > 0);
      }
}

}  // namespace wreload::test
