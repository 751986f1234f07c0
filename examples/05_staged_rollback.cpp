// A target and its draft model are updated together while the engine serves the old weights: kept aside, checked against
// the trainer's digests, voted on, committed in one pause. Then mode swap, and back again with `rollback`.
// 05_staged_rollback_cuda.cu compiles this file for a GPU. Prints what happens; exits 1 where that is not as said.

#include <wreload/wreload.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace wr = wreload;

#ifndef WRELOAD_EXAMPLE_ON_CUDA
using executor = wr::host_executor;
template <class T>
T read(const T* data) {  // what a kernel of the engine would see
  return *data;
}
void find_device() {}
#endif

void expect(bool good, const std::string& what) {
  std::printf("%s%s\n", good ? "" : "WRONG: ", what.c_str());
  if (!good) std::exit(1);
}
void expect(const wr::status& result, const std::string& what) {
  expect(result.ok(), result.ok() ? what : what + ": " + result.message());
}
void expect_refused(const wr::status& result, wr::error_code code, const std::string& what) {
  expect(result.code == code, what + ": " + result.message());
}

// What the trainer sends: block FP8, one multiplier per 128 x 128 block. Every weight is 1.0 * `multiplier`.
class checkpoint {
 public:
  checkpoint(std::string module, std::int64_t rows, std::int64_t cols, float multiplier)
      : weight_(module + ".weight"),
        scale_(module + ".weight_scale_inv"),
        codes_(static_cast<std::size_t>(rows * cols), 0x38),
        multipliers_(static_cast<std::size_t>(rows / 128 * (cols / 128)), multiplier) {
    pieces_ = {{.name = scale_, .tensor = {multipliers_.data(), wr::dtype::fp32, {rows / 128, cols / 128}}},
               {.name = weight_, .tensor = {codes_.data(), wr::dtype::fp8_e4m3, {rows, cols}}}};
  }
  checkpoint(const checkpoint&) = delete;  // the pieces point into it
  checkpoint& operator=(const checkpoint&) = delete;

  const std::string& weight() const { return weight_; }
  const std::vector<wr::piece>& pieces() const { return pieces_; }
  void flip_a_bit() { codes_.back() ^= 1U; }

  // Made by the sender, and sent along.
  wr::digest_list digests() const {
    wr::digest_list list;
    for (const wr::piece& each : pieces_) wr::append_digests(each.name, each.tensor, list);
    return list;
  }

 private:
  std::string weight_, scale_;
  std::vector<std::uint8_t> codes_;
  std::vector<float> multipliers_;
  std::vector<wr::piece> pieces_ = {};
};

// One model of the engine, one BF16 linear. Its memory is an arena with spare pages, so that it can swap.
class served_model {
 public:
  served_model(std::string module, std::int64_t rows, std::int64_t cols)
      : module_(std::move(module)), rows_(rows), cols_(cols) {
    const std::int64_t weight_bytes = 2 * rows * cols, scale_bytes = 4 * (rows / 128) * (cols / 128);
    wr::status error = pages_.open({.bytes = weight_bytes + scale_bytes, .spare = true});
    if (error.ok()) error = weights_.use(pages_);
    weight_ = reinterpret_cast<std::uint16_t*>(pages_.take(weight_bytes));
    std::byte* scale = pages_.take(scale_bytes);
    if (error.ok())
      error = weights_.add<wr::Fp8DequantLinear>(module_, wr::extents::matrix(module_, rows, cols), weight_, scale);
    if (error.ok()) error = weights_.seal();
    expect(error, module_ + " is there, in an arena with spare pages");
  }

  wr::model<executor>& weights() { return weights_; }
  checkpoint trained(float multiplier) const { return {module_, rows_, cols_, multiplier}; }

  // Whether requests are answered with this version, whose weights are all this BF16 number.
  bool serves(std::int64_t version, std::uint16_t bits) const {
    return weights_.state() == wr::model_state::live && weights_.version() == version && read(weight_) == bits &&
           read(weight_ + rows_ * cols_ - 1) == bits;
  }

  // An open staged update that knows the trainer's digests.
  wr::update_ref stage(const wr::digest_list& digests) {
    wr::status error;
    wr::update<executor> opened = weights_.start(
        {.mode = wr::update_mode::staged, .staging = {.budget_bytes = std::int64_t{1} << 20}, .digests = digests},
        &error);
    expect(error, "a staged update of " + module_);
    return wr::update_ref(std::move(opened));
  }

  // A whole update in one call.
  wr::status load(const checkpoint& next, wr::update_mode mode) {
    wr::status error;
    wr::update<executor> update = weights_.start({.mode = mode}, &error);
    if (error.ok()) error = update.load(next.pieces());
    return error.ok() ? update.finish() : error;
  }

 private:
  std::string module_;
  std::int64_t rows_, cols_;
  executor::arena pages_ = {};  // outlives the model
  wr::model<executor> weights_;
  std::uint16_t* weight_ = nullptr;
};

constexpr std::uint16_t one = 0x3F80, two = 0x4000, four = 0x4080;  // BF16

// A bit that flipped on the way does not get into the live weights. The tensor may come again.
void repair_a_bucket(wr::update_ref& update, const checkpoint& good) {
  expect_refused(update.prepare(), wr::error_code::corrupt, "a flipped bit is refused");
  expect(update.retract(good.weight()), "  the corrupted tensor is retracted");
  expect(update.load({&good.pieces()[1], 1}), "  and comes again");
}

// Both models on every rank, or on none. `other_rank` is what the network brought.
void vote(served_model& target, served_model& draft, wr::vote other_rank) {
  const checkpoint target_next = target.trained(2), draft_next = draft.trained(2);
  checkpoint damaged = target.trained(2);
  damaged.flip_a_bit();

  wr::update_set both;
  wr::update_ref& target_update = both.add(target.stage(target_next.digests()));
  wr::update_ref& draft_update = both.add(draft.stage(draft_next.digests()));
  expect(draft_update.load(draft_next.pieces()), "the draft's tensors are aside");
  expect(target_update.load(damaged.pieces()), "the target's tensors are aside");
  expect(target.serves(1, one) && draft.serves(1, one), "  meanwhile version 1 serves");
  repair_a_bucket(target_update, target_next);
  const wr::status prepared = both.prepare();
  expect(prepared, "both are prepared");
  expect(target.serves(1, one) && draft.serves(1, one), "  version 1 still serves");

  const wr::vote votes[] = {wr::update_set::vote_of(prepared), other_rank};
  const wr::status committed = both.commit(wr::unanimous(votes));
  if (other_rank != wr::vote::yes) {
    expect_refused(committed, wr::error_code::not_unanimous, "another rank says no: the commit is refused");
    expect(both.abort(), "both are aborted");
    expect(target.serves(1, one) && draft.serves(1, one), "  nothing was written: version 1 serves on");
    return;
  }
  expect(committed, "every rank says yes: both are committed");
  expect(both.publish(wr::vote::yes), "  and published");
  expect(target.serves(2, two) && draft.serves(2, two), "  version 2 serves");
  std::printf("  pause: %.3f ms the target, %.3f ms the draft\n", 1e3 * target_update.report().pause_seconds,
              1e3 * draft_update.report().pause_seconds);
}

// The next generation is built on spare pages; the old one stays behind them.
void swap_and_roll_back(served_model& target) {
  expect(!target.weights().can_roll_back(), "before a swap there is nothing to roll back to");
  expect(target.load(target.trained(4), wr::update_mode::swap), "an update in mode swap");
  expect(target.serves(3, four), "  version 3 serves, at the same addresses");
  expect(target.weights().rollback(), "rolled back");
  expect(target.serves(2, two), "  version 2 serves");
  expect(target.weights().rollback(), "and forward");
  expect(target.serves(3, four), "  version 3 serves");
  expect(target.weights().rollback(), "back, and on from there");
  expect(target.load(target.trained(1), wr::update_mode::swap), "an update in mode swap");
  expect(target.serves(4, one), "  version 4 serves: no number is given twice");
}

int main() {
  find_device();
  served_model target("target.mlp.down_proj", 256, 384), draft("draft.mlp.down_proj", 128, 128);
  expect(target.load(target.trained(1), wr::update_mode::direct), "the target is loaded cold");
  expect(draft.load(draft.trained(1), wr::update_mode::direct), "the draft is loaded cold");
  vote(target, draft, wr::vote::no);
  vote(target, draft, wr::vote::yes);
  swap_and_roll_back(target);
}
