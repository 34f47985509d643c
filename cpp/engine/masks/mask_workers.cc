#include "engine/masks/mask_workers.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace headrace::internal {

MaskWorkers::MaskWorkers(int threads, const MaskPatience& patience)
    : patience_(patience), worked_on_(static_cast<size_t>(threads)) {
  threads_.reserve(worked_on_.size());
  try {
    for (size_t i = 0; i < worked_on_.size(); ++i) threads_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error& error) {
    if (threads_.empty()) {
      throw_error(ErrorCode::kIo, "no thread to work out a constraint: ", error.what());
    }
  } catch (...) {
    end_threads();
    throw;
  }
}

MaskWorkers::~MaskWorkers() { end_threads(); }

void MaskWorkers::end_threads() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (size_t i = 0; i < threads_.size(); ++i) {
    if (const auto guide = worked_on(i)) guide->abandon();
  }
  for (std::thread& thread : threads_) thread.join();
}

int MaskWorkers::default_threads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 4, 1, 4);
}

void MaskWorkers::post(const std::shared_ptr<Guide>& guide) {
  {
    const MutexLock lock(mutex_);
    queue_.push_back(guide);
  }
  work_.notify_one();
}

void MaskWorkers::ask(const std::shared_ptr<Guide>& guide, std::optional<int32_t> token) {
  guide->set_due(token);
  post(guide);
}

void MaskWorkers::wait(Guide& guide) {
  constexpr std::chrono::milliseconds kLookEvery{20};
  while (!wait_for(guide, kLookEvery)) {
  }
}

bool MaskWorkers::wait_for(Guide& guide, std::chrono::nanoseconds time) {
  if (guide.ready() || guide.wait_for(time)) return true;
  interrupt_late();
  return false;
}

void MaskWorkers::interrupt_late() {
  for (size_t i = 0; i < threads_.size(); ++i) {
    if (const auto guide = worked_on(i)) guide->interrupt_if_late(patience_);
  }
}

std::shared_ptr<Guide> MaskWorkers::worked_on(size_t worker) {
  const MutexLock lock(mutex_);
  return worked_on_[worker].lock();
}

void MaskWorkers::work(size_t worker) {
  for (;;) {
    std::shared_ptr<Guide> guide;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && queue_.empty()) work_.wait(lock);
      if (stopping_) return;
      guide = queue_.front().lock();
      queue_.pop_front();
      worked_on_[worker] = guide;
    }
    if (guide) guide->compute();
  }
}

}  // namespace headrace::internal
