#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "engine/masks/guide.h"

namespace headrace::internal {

/// A few threads that compute guides' masks while the model computes. They sleep when idle.
class MaskWorkers {
 public:
  /// Throws Error(kIo) if no thread can be had; fewer than `threads` will do.
  explicit MaskWorkers(int threads, const MaskPatience& patience = {});
  /// Interrupts the masks being computed and waits for them; those not begun are dropped.
  ~MaskWorkers();
  MaskWorkers(const MaskWorkers&) = delete;
  MaskWorkers& operator=(const MaskWorkers&) = delete;

  /// As many as help without being in the model's way.
  static int default_threads();

  /// guide->compute() runs soon, unless its last owner has let go of it by then.
  void post(const std::shared_ptr<Guide>& guide);
  /// Returns when a posted guide is ready. Interrupts the one that holds it up, itself or one that
  /// a thread works on before, if that takes longer than our patience. By the loop thread.
  void wait(Guide& guide);
  /// wait() no longer than told: whether it is ready.
  bool wait_for(Guide& guide, std::chrono::nanoseconds time);
  /// Interrupts the guides that have taken longer than our patience.
  void interrupt_late();
  /// Guide::set_due, then post.
  void ask(const std::shared_ptr<Guide>& guide, std::optional<int32_t> token);

 private:
  void end_threads();
  void work(size_t worker);
  std::shared_ptr<Guide> worked_on(size_t worker);

  const MaskPatience patience_;
  Mutex mutex_;
  CondVar work_;
  std::deque<std::weak_ptr<Guide>> queue_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<Guide>> worked_on_ HEADRACE_GUARDED_BY(mutex_);  // by each thread
  bool stopping_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // the owner's
};

}  // namespace headrace::internal
