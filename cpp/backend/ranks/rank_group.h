#pragma once

// Where the ranks of a model meet. N devices compute one model together (tensor parallelism). Each
// device is a rank, with its own backend and its own thread.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "headrace/status.h"
#include "tensor/tensor_view.h"

namespace headrace {

/// Rank `index` of the `count` ranks of a model.
struct RankPlace {
  int32_t index = 0;
  int32_t count = 1;
  /// True: each rank has some whole experts. False: each rank has some inner features of every
  /// expert.
  bool whole_experts = false;
};

/// A rank throws this because another rank has failed. The reason is the other rank's exception.
class OtherRankFailed final : public Error {
 public:
  OtherRankFailed();
};

/// A rendezvous of `count` threads, one for each rank. All ranks make the same calls in the same
/// order. If a rank's step ends with an exception, the rank calls fail(), so that no other rank
/// waits for it.
class RankGroup {
 public:
  /// What a rank shows the other ranks: memory that they may read and write until all ranks meet
  /// again.
  struct Shown {
    TensorView x, out;
    const void* more = nullptr;  ///< for a backend's own use
  };

  /// REQUIRES: count >= 1.
  explicit RankGroup(int32_t count);
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int32_t count() const noexcept { return count_; }

  /// A rank whose device waits for other devices by itself, without a thread that waits here.
  class Member {
   public:
    virtual ~Member() = default;
    /// Makes the device stop waiting. `first` is the rank that failed first. Any thread.
    virtual void failed(int32_t first) noexcept = 0;
    /// reset() calls these on its thread, whose current device doesn't change. It calls each
    /// function for all members before the next function. drop_records() drops recorded steps with
    /// other ranks, settle() waits until the device's work ends, and forget() forgets what other
    /// ranks have left there.
    virtual void drop_records() noexcept = 0;
    virtual void settle() noexcept = 0;
    virtual void forget() noexcept = 0;
  };
  /// The member is told of failures from now on, until leave().
  void enter(Member& member);
  void leave(Member& member) noexcept;

  /// Returns when every rank has called it. Each rank then sees what the other ranks wrote before.
  /// Throws OtherRankFailed if another rank fails or has failed.
  void meet();
  /// Like meet(), and returns what each rank has shown, by index. Valid until the caller's next
  /// call.
  std::span<const Shown> exchange(int32_t rank, const Shown& shown);

  /// A failed rank calls this. Waiting ranks wake up and throw, and so does every later call, until
  /// reset().
  void fail(int32_t rank) noexcept;
  /// Forgets a failure. REQUIRES: no rank is inside a call of this group, or makes one before
  /// reset() returns.
  void reset() noexcept;

 private:
  bool wait_for(uint32_t round) const noexcept;

  const int32_t count_;
  const int64_t spin_nanoseconds_;
  std::vector<Shown> shown_;  // [2][count], by turns: slow ranks may still read
  alignas(64) std::atomic<int32_t> arrived_{0};
  alignas(64) mutable std::atomic<uint32_t> round_{0};  // waiting ranks sleep on it
  mutable std::atomic<int32_t> sleepers_{0};
  std::atomic<bool> failed_{false};
  std::mutex members_mutex_;
  std::vector<Member*> members_;  // guarded by members_mutex_
  int32_t first_failed_ = -1;     // guarded by it, too; -1: none
};

}  // namespace headrace
