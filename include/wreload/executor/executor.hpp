#pragma once
/// What an executor is: the verbs that put bytes into runtime storage. It knows jobs and keys, never layouts or names.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "../core/job.hpp"
#include "../core/status.hpp"
#include "../core/storage_map.hpp"
#include "../core/tensor_ref.hpp"
#include "arena.hpp"
#include "digest_grid.hpp"

namespace wreload {

/// What `seal()` tells an executor, so that nothing has to be allocated or loaded later.
struct executor_needs {
  std::span<const dequant_key> keys = {};  ///< conversions that an update may ask for
  std::int64_t dequant_jobs = 0;           ///< most conversion jobs of one `dequantise` call per key
  std::int64_t land_jobs = 0;              ///< landing jobs of one update where every tensor comes whole
  std::span<const storage_map> maps = {};  ///< what `map_index` of later jobs refers to
  std::int64_t flags = 0;                  ///< flags that `compare` sets, all zero after `begin`
};

/// Memory verbs run in the order of their lane. A lane belongs to one thread at a time; lanes run concurrently.
///
///   reserve(needs)            once, at `seal()`: loads kernels, sizes tables; nothing is allocated after it
///   open(stream), open_own()  a lane on the caller's stream (null: the legacy default stream of CUDA), or on a stream of
///                             the executor's that waits for no other
///   begin(readers)            before an update's lanes are opened: clears the flags, then as `hold`
///   hold(readers)             the next write of every lane waits, on the device, for what these streams were given so far
///   cancel()                  queued landings write nothing after it returned, and lanes opened before it refuse more;
///                             waits, bounded, for landings that already run, never for the caller's streams
///   check_idle(streams)       refuses while one of the streams is being captured
///   land, compare,            enqueue; they do not wait. `compare` sets flag flags[i] where job i, landed, would
///   dequantise, combine       change a byte, and writes nothing else
///   land_digested(jobs, into) as `land`, and adds the digests of the sources, job i's where into[i] says
///   converts_from(memory)     whether `dequantise` may read a source that lies there, and a kept table name it
///   stream_of(lane)           the stream a launcher of the engine's own may enqueue on; null on the host
///   flags()                   what `compare` has set since `begin`, once the lanes were waited for
///   keep(lane, table)         `land`, `compare`, `dequantise` and `combine` on the lane also append to the table what they
///                             enqueue, in memory from `reserve`; null: no longer. `table.whole` turns false where there is
///                             no room, or a source lies where `converts_from` is false
///   replay(lane, table,       enqueues that again; `shift` bytes are added to the sources of `land` and `dequantise`.
///          shift)             Requires: a whole table, a shift in multiples of 16 bytes. Uses no heap
///   keeps_tables()            whether there is any room for tables
///   kept_bytes(),             what tables have taken; gives back what was taken since then, at once or when nothing of them
///   drop_kept(mark)           is queued any more. Requires: those tables are not replayed
///   wait_for(lane, event)     the lane goes on after the event (a producer's)
///   join(lane, other)         the lane goes on after what `other` was given so far
///   record(lane)              an event behind everything enqueued on the lane, the executor's own; null where calls
///                             complete at once. Means at least that until the lane ends
///   wait(lane)                waits on the host and reports errors of what was enqueued; `aborted` after `cancel`
///   read, write, digest,      dense bytes to the host, and from it; sums per tile, one job's after the other's; the
///   first_difference          first differing byte, as row * row_bytes + offset, or -1; they wait
///   allocate(bytes, where)    memory for what an update keeps aside; usable on every lane at once
///   release(memory)           gives it back; never waits for the caller's streams. Requires: nothing that still lives
///                             (see `cancel`) uses it
///   allocated_bytes()         device and pinned memory that the executor holds
///   launches()                kernels launched (host: batched calls made) since construction
template <class Executor>
concept executor = requires(Executor& run, typename Executor::lane& lane, typename Executor::lane& other,
                            std::span<const stream_ref> streams, std::span<const land_job> lands,
                            std::span<const combine_job> combines, std::span<const fill_job> fills, std::span<const dequant_job> dequants,
                            std::span<const digest_job> digests, std::span<std::uint64_t> sums, std::span<const land_digest> into, std::span<const std::int32_t> flags,
                            const executor_needs& needs, dequant_key key, event_ref event, std::byte* host,
                            const std::byte* bytes, std::int64_t count, memory_kind where, std::byte** memory,
                            const difference_job& pair, std::int64_t* first, typename Executor::table& table,
                            const typename Executor::table& kept, std::ptrdiff_t shift) {
  { Executor::name } -> std::convertible_to<std::string_view>;
  requires arena<typename Executor::arena>;
  { run.reserve(needs) } -> std::same_as<status>;
  { run.open(stream_ref{}) } -> std::same_as<typename Executor::lane>;
  { run.open_own() } -> std::same_as<typename Executor::lane>;
  { run.begin(streams) } -> std::same_as<status>;
  { run.hold(streams) } -> std::same_as<status>;
  { run.cancel() } -> std::same_as<status>;
  { run.check_idle(streams) } -> std::same_as<status>;
  { run.land(lane, lands) } -> std::same_as<status>;
  { run.land_digested(lane, lands, into) } -> std::same_as<status>;
  { run.compare(lane, lands, flags) } -> std::same_as<status>;
  { run.fill(lane, fills) } -> std::same_as<status>;
  { run.combine(lane, combines) } -> std::same_as<status>;
  { Executor::converts_from(where) } -> std::same_as<bool>;
  { run.stream_of(lane) } -> std::same_as<stream_ref>;
  { run.dequantise(lane, key, dequants) } -> std::same_as<status>;
  { run.keep(lane, &table) } -> std::same_as<void>;
  { run.replay(lane, kept, shift) } -> std::same_as<status>;
  { run.keeps_tables() } -> std::same_as<bool>;
  { run.kept_bytes() } -> std::same_as<std::int64_t>;
  { run.drop_kept(count) } -> std::same_as<void>;
  { kept.whole } -> std::convertible_to<bool>;
  { kept.empty() } -> std::same_as<bool>;
  { run.wait_for(lane, event) } -> std::same_as<status>;
  { run.join(lane, other) } -> std::same_as<status>;
  { run.record(lane) } -> std::same_as<event_ref>;
  { run.wait(lane) } -> std::same_as<status>;
  { run.digest(lane, digests, sums) } -> std::same_as<status>;
  { run.read(lane, host, bytes, count) } -> std::same_as<status>;
  { run.write(lane, host, bytes, count) } -> std::same_as<status>;
  { run.allocate(count, where, memory) } -> std::same_as<status>;
  { run.release(host) } -> std::same_as<void>;
  { run.first_difference(lane, pair, first) } -> std::same_as<status>;
  { run.flags() } -> std::same_as<std::span<std::uint32_t>>;
  { run.allocated_bytes() } -> std::same_as<std::int64_t>;
  { run.launches() } -> std::same_as<std::int64_t>;
};

}  // namespace wreload
