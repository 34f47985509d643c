#include "backend/ranks/rank_group.h"

#include <emmintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>

#include "backend/host/cpu_info.h"
#include "base/check.h"

namespace headrace {

namespace {

constexpr int64_t kSpinNanoseconds = 50'000;

}  // namespace

OtherRankFailed::OtherRankFailed()
    : Error(ErrorCode::kDevice, "another device of the model has failed.") {}

RankGroup::RankGroup(int32_t count)
    : count_(count),
      // With more ranks than cores one that spins only keeps another one waiting.
      spin_nanoseconds_(count <= usable_cores() ? kSpinNanoseconds : 0),
      shown_(2 * static_cast<size_t>(count)) {
  HEADRACE_CHECK(count >= 1, count);
}

void RankGroup::meet() {
  // In this order: a failure that is not seen here changes the round later.
  const uint32_t round = round_.load();
  if (failed_.load()) throw OtherRankFailed();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.fetch_add(1);
    if (sleepers_.load() > 0) {
      ::syscall(SYS_futex, &round_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
    }
  } else {
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::nanoseconds(spin_nanoseconds_);
    while (!wait_for(round)) {
      if (std::chrono::steady_clock::now() < deadline) continue;
      ++sleepers_;
      ::syscall(SYS_futex, &round_, FUTEX_WAIT_PRIVATE, round, nullptr, nullptr, 0);
      --sleepers_;
    }
  }
  if (failed_.load()) throw OtherRankFailed();
}

bool RankGroup::wait_for(uint32_t round) const noexcept {
  for (int i = 0; i < 64; ++i) {
    if (round_.load(std::memory_order_acquire) != round) return true;
    _mm_pause();
  }
  return false;
}

std::span<const RankGroup::Shown> RankGroup::exchange(int32_t rank, const Shown& shown) {
  const auto count = static_cast<size_t>(count_);
  // No rank is more than one call ahead of another.
  const size_t first = round_.load(std::memory_order_acquire) % 2 * count;
  shown_[first + static_cast<size_t>(rank)] = shown;
  meet();
  return std::span(shown_).subspan(first, count);
}

void RankGroup::enter(Member& member) {
  const MutexLock lock(members_mutex_);
  members_.push_back(&member);
}

void RankGroup::leave(Member& member) noexcept {
  const MutexLock lock(members_mutex_);
  std::erase(members_, &member);
}

void RankGroup::fail(int32_t rank) noexcept {
  failed_.store(true);
  {
    const MutexLock lock(members_mutex_);
    if (first_failed_ < 0) first_failed_ = rank;
    for (Member* const member : members_) member->failed(first_failed_);
  }
  round_.fetch_add(1);
  ::syscall(SYS_futex, &round_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void RankGroup::reset() noexcept {
  {
    const MutexLock lock(members_mutex_);
    for (Member* const member : members_) member->drop_records();
    for (Member* const member : members_) member->settle();
    for (Member* const member : members_) member->forget();
    first_failed_ = -1;
  }
  arrived_.store(0, std::memory_order_relaxed);
  failed_.store(false);
}

}  // namespace headrace
