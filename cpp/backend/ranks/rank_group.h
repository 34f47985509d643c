#pragma once

// Where the ranks of a model meet: N devices that compute one model together (tensor parallelism),
// each with its own backend and its own thread.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "headrace/status.h"
#include "tensor/tensor_view.h"

namespace headrace {

/// Device `index` of the `count` that compute a model together.
struct RankPlace {
  int32_t index = 0;
  int32_t count = 1;
  /// Each has some experts of a mixture, whole ones; false: some of the inner features of each.
  bool whole_experts = false;
};

/// What a rank throws because another one has failed. The reason is what that one has thrown.
class OtherRankFailed final : public Error {
 public:
  OtherRankFailed();
};

/// A rendezvous of `count` threads, one for each rank. All ranks make the same calls in the same
/// order. A rank whose step ends with an exception calls fail(), so that no other waits for it.
class RankGroup {
 public:
  /// What a rank shows the others: memory that they may read and write until all meet again.
  struct Shown {
    TensorView x, out;
    const void* more = nullptr;  ///< of a backend's own
  };

  /// REQUIRES: count >= 1.
  explicit RankGroup(int32_t count);
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int32_t count() const noexcept { return count_; }

  /// A rank whose device waits for other devices without a thread here.
  class Member {
   public:
    virtual ~Member() = default;
    /// The device stops waiting. `first`: the rank that failed first. Any thread.
    virtual void failed(int32_t first) noexcept = 0;
    /// On reset()'s thread, whose device stays what it is, each for all of them before the next:
    /// what was recorded of steps with others is dropped; what went on ends on the device; what the
    /// others have left there is forgotten.
    virtual void drop_records() noexcept = 0;
    virtual void settle() noexcept = 0;
    virtual void forget() noexcept = 0;
  };
  /// Tells the member from now on, until leave().
  void enter(Member& member);
  void leave(Member& member) noexcept;

  /// Returns when every rank has called it: each sees what the others wrote before. Throws
  /// OtherRankFailed if one of them has failed, now or before.
  void meet();
  /// meet(), and what each rank has shown, by index. Valid until the caller's next call.
  std::span<const Shown> exchange(int32_t rank, const Shown& shown);

  /// By a rank that has failed: wakes those that wait, who throw; so does every later call, until
  /// reset().
  void fail(int32_t rank) noexcept;
  /// Forgets a failure. REQUIRES: no rank is within a call here, or makes one before it returns.
  void reset() noexcept;

 private:
  bool wait_for(uint32_t round) const noexcept;

  const int32_t count_;
  const int64_t spin_nanoseconds_;
  std::vector<Shown> shown_;  // [2][count], in turns: the slow may still read when the fast show
  alignas(64) std::atomic<int32_t> arrived_{0};
  alignas(64) mutable std::atomic<uint32_t> round_{0};  // those that wait sleep on it
  mutable std::atomic<int32_t> sleepers_{0};
  std::atomic<bool> failed_{false};
  std::mutex members_mutex_;
  std::vector<Member*> members_;  // guarded by members_mutex_
  int32_t first_failed_ = -1;     // likewise; -1: none has
};

}  // namespace headrace
