#pragma once
// One update: starts, sends tensors in buckets, finishes.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <wreload/source/bucket.hpp>
#include <wreload/source/checkpoint.hpp>

#include "engine.hpp"
#include "progress.hpp"

namespace reload {

// What an update sends.
struct sending {
  std::span<const wr::checkpoint_tensor> tensors = {};  // in order
  std::int64_t bucket_bytes = 0;
  bool partial = false;  // declares exactly these names
  wr::update_mode mode = wr::update_mode::direct;
  std::int64_t budget_bytes = wr::staging_memory::no_limit;  // layerwise and staged
  wr::undo_mode undo = wr::undo_mode::none;
};

// Runs one update. On a refusal it is aborted: the model is `undefined` if live bytes were written and not put back, else
// as before.
template <wr::executor Executor>
wr::status send(engine<Executor>& to, const sending& what, const std::string& label, progress& shown,
                wr::report* report) {
  std::vector<wr::tensor_ref> tensors;
  std::vector<std::string_view> names;
  std::int64_t bytes = 0;
  for (const wr::checkpoint_tensor& found : what.tensors) {
    tensors.push_back(found.tensor);
    names.push_back(found.name);
    bytes += found.tensor.bytes();
  }
  shown.begin(label, bytes);

  const wr::update_scope scope = what.partial ? wr::update_scope::partial(names) : wr::update_scope::complete();
  wr::status result;
  wr::update<Executor> update = to.model().start({.mode = what.mode,
                                                  .scope = scope,
                                                  .addresses = to.addresses(),
                                                  .staging = {.budget_bytes = what.budget_bytes},
                                                  .undo = what.undo},
                                                 &result);
  if (!result.ok()) return result;

  std::vector<wr::piece> pieces;
  result = wr::for_each_bucket(tensors, what.bucket_bytes, [&](std::span<const wr::bucket_piece> bucket) {
    pieces.clear();
    std::int64_t bucket_bytes = 0;
    for (const wr::bucket_piece& part : bucket) {
      pieces.push_back({.name = names[part.tensor], .tensor = part.data, .part = part.part});
      bucket_bytes += part.data.bytes();
    }
    wr::status refused = update.load(pieces);  // the sources stay mapped: nothing to wait for between buckets
    if (refused.ok()) shown.advance(bucket_bytes);
    return refused;
  });
  if (result.ok()) result = update.finish();
  if (!result.ok()) (void)update.abort();
  *report = update.report();
  return result;
}

}  // namespace reload
