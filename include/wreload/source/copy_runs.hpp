#pragma once
/// `copy_run`: what brings the pieces of a batch into one slot of memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "feed_plan.hpp"

namespace wreload {

/// A run of bytes to copy into a batch's slot: rows from the mapping, dense there.
struct copy_run {
  const std::byte* from = nullptr;
  std::int64_t slot_offset = 0;
  std::int64_t rows = 1;
  std::int64_t row_bytes = 0;
  std::int64_t row_stride_bytes = 0;
};

/// Calls `visit(copy_run)` for what brings a batch into a slot; neighbours in the file are one run.
template <class Visit>
void for_each_copy(std::span<const feed_piece> pieces, Visit&& visit) {
  for (std::size_t i = 0; i < pieces.size();) {
    const feed_piece& first = pieces[i];
    copy_run run{first.begin(), first.slot_offset, first.rows, first.row_bytes, first.row_stride_bytes};
    for (++i; i < pieces.size() && run.rows == 1 && pieces[i].rows == 1; ++i) {
      const std::int64_t gap = pieces[i].begin() - (run.from + run.row_bytes);
      if (gap < 0 || pieces[i].slot_offset - run.slot_offset != pieces[i].begin() - run.from) break;
      run.row_bytes = pieces[i].end() - run.from;
    }
    visit(run);
  }
}

namespace detail {

/// Copies bytes that this core does not read again: past its cache, which saves reading the target first.
inline void copy_past_cache(std::byte* to, const std::byte* from, std::int64_t bytes) {
#if defined(__SSE2__)
  constexpr std::int64_t line = 64;
  const auto head = static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(to) % line);
  if (bytes >= head + line) {
    std::memcpy(to, from, static_cast<std::size_t>(head));
    std::int64_t at = head;
    for (; at + line <= bytes; at += line) {
      __m128i part[4];
      for (int i = 0; i < 4; ++i) part[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at) + i);
      for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to + at) + i, part[i]);
    }
    _mm_sfence();
    to += at;
    from += at;
    bytes -= at;
  }
#endif
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

inline void copy_rows(const copy_run& run, std::byte* to) {
  for (std::int64_t row = 0; row < run.rows; ++row)
    std::memcpy(to + row * run.row_bytes, run.from + row * run.row_stride_bytes,
                static_cast<std::size_t>(run.row_bytes));
}
inline void copy_rows_past_cache(const copy_run& run, std::byte* to) {
  for (std::int64_t row = 0; row < run.rows; ++row)
    copy_past_cache(to + row * run.row_bytes, run.from + row * run.row_stride_bytes, run.row_bytes);
}

/// Appends a run, cut where one page range of the batch ends and the next begins: ranges are pinned apart, and a copy
/// lies in one.
inline void append_within_ranges(const feed_plan& plan, const feed_batch& batch, copy_run run,
                                 std::vector<copy_run>& to) {
  const auto end_of_range = [&](const std::byte* from) {
    for (const page_range& each : plan.ranges_of(batch))
      if (each.begin <= from && from < each.end) return each.end;
    return from + 1;  // not of this plan's
  };
  while (run.rows > 0) {
    const std::int64_t room = end_of_range(run.from) - run.from;
    const std::int64_t whole = room < run.row_bytes ? 0 : (room - run.row_bytes) / run.row_stride_bytes + 1;
    copy_run part = run;
    part.rows = std::min(run.rows, std::max<std::int64_t>(whole, 1));
    if (whole > 0) {
      to.push_back(part);
    } else {  // a row that lies in several
      for (std::int64_t at = 0; at < run.row_bytes; at += part.row_bytes) {
        part.from = run.from + at;
        part.slot_offset = run.slot_offset + at;
        part.row_bytes = std::min<std::int64_t>(run.row_bytes - at, end_of_range(part.from) - part.from);
        to.push_back(part);
      }
    }
    run.from += part.rows * run.row_stride_bytes;
    run.slot_offset += part.rows * run.row_bytes;
    run.rows -= part.rows;
  }
}

/// Appends a run in parts of about a chunk.
inline void append_in_chunks(copy_run run, std::int64_t chunk_bytes, std::vector<copy_run>& to) {
  for (; run.rows > 0 && run.row_bytes > chunk_bytes; --run.rows) {
    for (std::int64_t at = 0; at < run.row_bytes; at += chunk_bytes) {
      const std::int64_t bytes = std::min(chunk_bytes, run.row_bytes - at);
      to.push_back({run.from + at, run.slot_offset + at, 1, bytes, bytes});
    }
    run.from += run.row_stride_bytes;
    run.slot_offset += run.row_bytes;
  }
  while (run.rows > 0) {
    copy_run part = run;
    part.rows = std::min(run.rows, chunk_bytes / run.row_bytes);
    to.push_back(part);
    run.from += part.rows * run.row_stride_bytes;
    run.slot_offset += part.rows * run.row_bytes;
    run.rows -= part.rows;
  }
}

}  // namespace detail
}  // namespace wreload
