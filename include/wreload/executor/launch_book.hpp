#pragma once
/// `launch_book`: the epoch and the launches in flight, in words that the host and the device share.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace wreload::detail {

/// Names one launch for as long as anybody asks about it; records are used again, with another generation.
struct launch_id {
  std::int32_t record = -1;
  std::uint32_t generation = 0;
  friend constexpr bool operator==(launch_id, launch_id) = default;
};

/// Pinned words, one per launch in flight, and one for the epoch. See kernel/work.cuh for what the device does with
/// them: `cancel` needs no stream and no CUDA call. Not thread safe but for `epoch`, `cancel` and `is_running`.
class launch_book {
 public:
  static constexpr std::int32_t records = 1024;  ///< as many as CUDA lets a device queue
  static constexpr std::size_t words = 16 + records;

  void use(std::uint32_t* pinned) {
    words_ = pinned;
    for (std::size_t i = 0; i < words; ++i) words_[i] = 0;
  }
  std::uint32_t* epoch_word() const { return words_; }
  std::uint32_t* state_word(std::int32_t record) const { return words_ + 16 + record; }

  std::uint32_t epoch() const { return load(words_); }

  /// Everything that was enqueued with an older epoch writes nothing once no launch `is_running`.
  void cancel() {
    std::atomic_ref<std::uint32_t>(*words_).fetch_add(1);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }

  bool is_running(std::int32_t record) const { return load(state_word(record)) == running; }

  /// A record that no launch uses; -1 where all are in use.
  launch_id take() {
    for (std::int32_t tried = 0; tried < records; ++tried) {
      next_ = (next_ + 1) % records;
      if (load(state_word(next_)) != 0) continue;
      std::atomic_ref<std::uint32_t>(*state_word(next_)).store(queued);
      return {next_, ++generations_[static_cast<std::size_t>(next_)]};
    }
    return {};
  }

  /// Ends a launch that was never enqueued.
  void drop(launch_id id) const { std::atomic_ref<std::uint32_t>(*state_word(id.record)).store(0); }

  bool is_done(launch_id id) const {
    return generations_[static_cast<std::size_t>(id.record)] != id.generation || load(state_word(id.record)) == 0;
  }

  bool all_done() const {
    for (std::int32_t record = 0; record < records; ++record)
      if (load(state_word(record)) != 0) return false;
    return true;
  }

 private:
  static constexpr std::uint32_t queued = 1;  // as wreload::launch_state
  static constexpr std::uint32_t running = 2;
  static std::uint32_t load(std::uint32_t* word) { return std::atomic_ref<std::uint32_t>(*word).load(); }

  std::uint32_t* words_ = nullptr;
  std::array<std::uint32_t, records> generations_ = {};
  std::int32_t next_ = -1;
};

}  // namespace wreload::detail
