#pragma once
// What sends mapped files to an open update, per executor. One that is added brings its own specialisation.

#include <wreload/source/feed.hpp>

namespace reload {

namespace wr = wreload;

template <class Executor>
struct feed_for;

template <>
struct feed_for<wr::host_executor> {
  using type = wr::host_feed;
};

template <class Executor>
using feed = typename feed_for<Executor>::type;

}  // namespace reload
