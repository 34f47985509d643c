#include "backend/cpu/threads/thread_seats.h"

#include <emmintrin.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "backend/host/cpu_affinity.h"
#include "backend/host/cpu_info.h"
#include "base/thread_time.h"

namespace headrace {

namespace {

constexpr int64_t kLongWait = 1'000'000;
constexpr int64_t kLongestRest = 250'000'000;

int64_t now_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

ThreadSeats::ThreadSeats(int32_t num_threads, std::optional<bool> use)
    : num_threads_(num_threads),
      enabled_(num_threads > 1 && num_threads <= usable_cores() &&
               use.value_or(is_known_to_win(num_threads, usable_cores()))),
      seats_(std::make_unique<Seat[]>(static_cast<size_t>(num_threads))) {}

void ThreadSeats::adopt_caller() { driver_.store(this_thread_id(), std::memory_order_relaxed); }

bool ThreadSeats::is_own(int32_t thread, int32_t thread_id) const {
  return thread > 0 || thread_id == driver_.load(std::memory_order_relaxed);
}

void ThreadSeats::begin_work(int32_t thread) {
  if (!enabled_) return;
  Seat& seat = seats_[static_cast<size_t>(thread)];
  const int32_t id = this_thread_id();
  if (!is_own(thread, id)) return;
  seat.thread_id.store(id, std::memory_order_relaxed);
  settle(thread);
  seat.works.store(true);
}

void ThreadSeats::end_work(int32_t thread) {
  if (!enabled_) return;
  Seat& seat = seats_[static_cast<size_t>(thread)];
  if (seat.works.exchange(false)) settle(thread);
}

// Who moves it has set `move` and then found that it works, or it finds `move` here.
void ThreadSeats::leave_loop() const {
  if (!enabled_) return;
  while (seats_[0].move.load() == Move::kMoving) std::this_thread::yield();
}

void ThreadSeats::settle(int32_t thread) {
  Seat& seat = seats_[static_cast<size_t>(thread)];
  const int32_t cpu = current_cpu();
  Move move = seat.move.load(std::memory_order_relaxed);
  const bool in_seat = cpu == seat.cpu.load(std::memory_order_relaxed) || cpu < 0;
  if (in_seat && move == Move::kNone) return;
  if (move == Move::kMoving ||
      !seat.move.compare_exchange_strong(move, Move::kMoving, std::memory_order_acquire)) {
    return;
  }
  if (!in_seat) choose_seat(thread, cpu);
  seat.move.store(Move::kNone, std::memory_order_release);
}

void ThreadSeats::choose_seat(int32_t thread, int32_t cpu) {
  std::atomic<int32_t>& seat = seats_[static_cast<size_t>(thread)].cpu;
  const int32_t home = seat.load(std::memory_order_relaxed);
  const int32_t owner = owner_of(cpu, thread);
  if (owner < 0) {
    seat.store(cpu, std::memory_order_relaxed);
  } else if (home >= 0 && thread == 0) {
    // The loops come from thread 0: it must not go back to where it would wait.
    seats_[static_cast<size_t>(owner)].cpu.store(home, std::memory_order_relaxed);
    seat.store(cpu, std::memory_order_relaxed);
  } else {
    const int32_t target = home >= 0 ? home : free_cpu();
    if (target >= 0 && move_thread(0, target)) seat.store(target, std::memory_order_relaxed);
  }
}

int32_t ThreadSeats::owner_of(int32_t cpu, int32_t but) const {
  for (int32_t i = 0; i < num_threads_; ++i) {
    if (i != but && seats_[static_cast<size_t>(i)].cpu.load(std::memory_order_relaxed) == cpu) {
      return i;
    }
  }
  return -1;
}

int32_t ThreadSeats::free_cpu() const {
  const auto allowed = thread_affinity(0);
  if (!allowed) return -1;
  for (int32_t cpu = 0; cpu < CpuMask::kMaxCpus; ++cpu) {
    if (allowed->contains(cpu) && owner_of(cpu, -1) < 0) return cpu;
  }
  return -1;
}

bool ThreadSeats::stands_still(const Seat& seat) const {
  if (!seat.works.load(std::memory_order_acquire)) return false;
  const int32_t id = seat.thread_id.load(std::memory_order_relaxed);
  const int64_t before = thread_cpu_nanoseconds(id);
  for (int i = 0; i < 100; ++i) _mm_pause();
  return before >= 0 && thread_cpu_nanoseconds(id) == before &&
         seat.works.load(std::memory_order_acquire);
}

void ThreadSeats::help_stalled(int32_t waiting_thread) {
  if (!enabled_) return;
  const int32_t here = current_cpu();
  for (int32_t i = 0; i < num_threads_; ++i) {
    Seat& seat = seats_[static_cast<size_t>(i)];
    if (i == waiting_thread || seat.cpu.load(std::memory_order_relaxed) == here) continue;
    if (!stands_still(seat)) continue;
    Move none = Move::kNone;
    if (!seat.move.compare_exchange_strong(none, Move::kMoving)) continue;
    if (!seat.works.load()) {
      seat.move.store(Move::kNone);
      continue;
    }
    move_thread(seat.thread_id.load(std::memory_order_relaxed), here);
    seat.was_helped.store(true, std::memory_order_relaxed);
    seat.move.store(Move::kMoved, std::memory_order_release);
  }
}

void ThreadSeats::end_wait(int64_t waited_nanoseconds) {
  if (!enabled_) return;
  const int64_t until = now_nanoseconds() + std::min(4 * waited_nanoseconds, kLongestRest);
  for (int32_t i = 1; i < num_threads_; ++i) {
    Seat& seat = seats_[static_cast<size_t>(i)];
    const bool was_helped = seat.was_helped.exchange(false, std::memory_order_relaxed);
    if (was_helped && waited_nanoseconds > kLongWait) {
      seat.rests_until.store(until, std::memory_order_relaxed);
    }
  }
}

bool ThreadSeats::is_resting(int32_t thread) const {
  const int64_t until =
      seats_[static_cast<size_t>(thread)].rests_until.load(std::memory_order_relaxed);
  return until != 0 && now_nanoseconds() < until;
}

}  // namespace headrace
