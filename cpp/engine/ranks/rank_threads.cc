#include "engine/ranks/rank_threads.h"

#include <system_error>
#include <utility>

#include "base/check.h"

namespace headrace::internal {

namespace {

constexpr uint32_t kStop = 1;

}  // namespace

RankThreads::RankThreads(int32_t count)
    : group_(std::make_shared<RankGroup>(count)), failures_(static_cast<size_t>(count)) {
  threads_.reserve(static_cast<size_t>(count - 1));  // or a thread may have no place
  try {
    for (int32_t rank = 1; rank < count; ++rank) {
      threads_.emplace_back([this, rank] { wait_for_work(rank); });
    }
  } catch (const std::system_error& error) {
    stop();
    throw_error(ErrorCode::kIo, "the system refuses a thread for one of ", count,
                " devices: ", error.what(), ".");
  } catch (...) {
    stop();
    throw;
  }
}

RankThreads::~RankThreads() { stop(); }

void RankThreads::stop() noexcept {
  round_.fetch_or(kStop);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::wait_for_work(int32_t rank) {
  for (uint32_t seen = 0;;) {
    round_.wait(seen);
    const uint32_t round = round_.load();
    if ((round & kStop) != 0) return;
    if (round == seen) continue;
    seen = round;
    do_part(rank);
    if (left_.fetch_sub(1) == 1) left_.notify_one();
  }
}

void RankThreads::do_part(int32_t rank) noexcept {
  try {
    task_.call(task_.context, rank);
  } catch (...) {
    failures_[static_cast<size_t>(rank)] = std::current_exception();
    group_->fail(rank);
  }
}

void RankThreads::run_all(const Task& task) {
  task_ = task;
  left_ = static_cast<int32_t>(threads_.size());
  round_.fetch_add(2);
  round_.notify_all();
  do_part(0);
  for (int32_t left = left_.load(); left > 0; left = left_.load()) left_.wait(left);
  std::exception_ptr first, other;
  for (std::exception_ptr& failure : failures_) {
    const std::exception_ptr own = std::exchange(failure, nullptr);
    if (own == nullptr) continue;
    try {
      std::rethrow_exception(own);
    } catch (const OtherRankFailed&) {  // some other's is the reason
      other = own;
    } catch (...) {
      if (first == nullptr) first = own;
    }
  }
  if (first == nullptr) first = other;
  if (first == nullptr) return;
  ++num_failures_;
  last_failure_ = first;
  group_->reset();
  std::rethrow_exception(first);
}

}  // namespace headrace::internal
