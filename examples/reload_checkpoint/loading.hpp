#pragma once
// One update: starts, sends tensors, finishes.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <wreload/source/bucket.hpp>
#include <wreload/source/checkpoint.hpp>

#include "engine.hpp"
#include "feed.hpp"
#include "progress.hpp"

namespace reload {

// What an update sends.
struct sending {
  std::span<const wr::checkpoint_tensor> tensors = {};  // in order
  std::int64_t bucket_bytes = 0;                        // 0: every tensor comes whole
  bool partial = false;                                 // declares exactly these names
  wr::update_mode mode = wr::update_mode::direct;
  std::int64_t budget_bytes = wr::staging_memory::no_limit;  // layerwise and staged
  wr::undo_mode undo = wr::undo_mode::none;

  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const wr::checkpoint_tensor& found : tensors) sum += found.tensor.bytes();
    return sum;
  }
};

// Sends tensors in their order, in buckets.
template <wr::executor Executor>
wr::status send_in_order(wr::update<Executor>& update, const sending& what, progress& shown) {
  std::vector<wr::tensor_ref> tensors;
  for (const wr::checkpoint_tensor& found : what.tensors) tensors.push_back(found.tensor);
  const std::int64_t bytes = what.bytes();
  std::int64_t sent = 0;
  std::vector<wr::piece> pieces;
  return wr::for_each_bucket(tensors, what.bucket_bytes, [&](std::span<const wr::bucket_piece> bucket) {
    pieces.clear();
    for (const wr::bucket_piece& part : bucket) {
      pieces.push_back({.name = what.tensors[part.tensor].name, .tensor = part.data, .part = part.part});
      sent += part.data.bytes();
    }
    wr::status refused = update.load(pieces);  // the sources stay mapped: nothing to wait for between buckets
    if (refused.ok()) shown.show(sent, bytes);
    return refused;
  });
}

// Runs one update. On a refusal it is aborted: the model is `undefined` if live bytes were written and not put back,
// else as before. `by`: sends tensors of one checkpoint in its own order and pieces; null: they go in theirs.
template <wr::executor Executor>
wr::status send(engine<Executor>& to, const sending& what, feed<Executor>* by, const std::string& label,
                progress& shown, wr::report* report) {
  shown.begin(label);
  std::vector<std::string_view> names;
  for (const wr::checkpoint_tensor& found : what.tensors) names.push_back(found.name);
  const wr::update_scope scope = what.partial ? wr::update_scope::partial(names) : wr::update_scope::complete();
  wr::status result;
  wr::update<Executor> update = to.model().start({.mode = what.mode,
                                                  .scope = scope,
                                                  .addresses = to.addresses(),
                                                  .staging = {.budget_bytes = what.budget_bytes},
                                                  .undo = what.undo},
                                                 &result);
  if (!result.ok()) return result;
  if (by == nullptr)
    result = send_in_order(update, what, shown);
  else
    result = by->send(to.model(), update, what.tensors,
                      [&](const wr::feed_progress& at) { shown.show(at.bytes, at.total_bytes); });
  if (result.ok()) result = update.finish();
  if (!result.ok()) (void)update.abort();
  *report = update.report();
  report->loaded.bytes = what.bytes();  // a feed leaves out what this rank does not need
  return result;
}

}  // namespace reload
