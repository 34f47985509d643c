#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "backend/ranks/rank_group.h"

namespace headrace::internal {

/// The threads of a model's ranks: work for all of them at once. Rank 0's is done by the caller,
/// the others' by threads of their own, the same one for each rank every time. With one rank there
/// are no threads. Used by one thread at a time.
class RankThreads {
 public:
  /// Starts count - 1 threads. Throws Error(kIo) if the system refuses one of them.
  explicit RankThreads(int32_t count);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  int32_t count() const noexcept { return group_->count(); }
  /// Where the ranks meet.
  const std::shared_ptr<RankGroup>& group() const noexcept { return group_; }

  /// Calls of run() that threw. What the devices had under way then is of no use.
  uint64_t num_failures() const noexcept { return num_failures_; }
  /// What the last one of them threw. REQUIRES: num_failures() > 0.
  const std::exception_ptr& last_failure() const noexcept { return last_failure_; }

  /// Calls work(rank) for every rank and returns when all have ended. If some throw, the others are
  /// woken from the group; then the first rank's exception is thrown that is a reason of its own
  /// (not OtherRankFailed), and the group is as before. Takes no memory.
  template <class Work>
  void run(const Work& work) {
    if (threads_.empty()) return work(0);
    run_all({[](const void* context, int32_t rank) { (*static_cast<const Work*>(context))(rank); },
             &work});
  }

 private:
  struct Task {
    void (*call)(const void* context, int32_t rank) = nullptr;
    const void* context = nullptr;
  };

  void run_all(const Task& task);
  void do_part(int32_t rank) noexcept;
  void wait_for_work(int32_t rank);
  void stop() noexcept;

  const std::shared_ptr<RankGroup> group_;
  Task task_;
  std::vector<std::exception_ptr> failures_;  // by rank
  uint64_t num_failures_ = 0;
  std::exception_ptr last_failure_;
  std::atomic<uint32_t> round_{0};  // of the work; an odd one ends the threads
  std::atomic<int32_t> left_{0};    // ranks but the caller's that still work
  std::vector<std::thread> threads_;
};

}  // namespace headrace::internal
