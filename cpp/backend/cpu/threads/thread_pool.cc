#include "backend/cpu/threads/thread_pool.h"

#include <emmintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <exception>
#include <system_error>
#include <utility>

#include "backend/host/cpu_info.h"
#include "base/check.h"
#include "base/checked_math.h"
#include "base/env.h"

namespace headrace {

namespace {

constexpr int64_t kSpinNanoseconds = 50'000;
// Between two looks at what is waited for. More, and the core drops fetches that memory cannot keep
// up with.
constexpr int64_t kFetchBytes = 8 * 64;

uint64_t tagged(uint32_t number, int64_t value) {
  return static_cast<uint64_t>(number) << 32 | static_cast<uint32_t>(value);
}
uint32_t tag(uint64_t word) { return static_cast<uint32_t>(word >> 32); }

using Clock = std::chrono::steady_clock;

/// Sleeps unless `word` has changed from `value`, until woken, or for no reason.
void sleep_on(std::atomic<uint32_t>& word, uint32_t value) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void wake_all(std::atomic<uint32_t>& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

std::vector<ThreadPool::Group> ThreadPool::line_up(const std::vector<ThreadGroup>& groups) {
  HEADRACE_CHECK(!groups.empty());
  std::vector<Group> out;
  int32_t first = 0;
  for (const ThreadGroup& group : groups) {
    HEADRACE_CHECK(group.threads >= 1, group.threads);
    out.push_back({first, first + group.threads, group.cpus});
    first += group.threads;
  }
  return out;
}

ThreadPool::ThreadPool(int32_t num_threads)
    : ThreadPool(std::vector<ThreadGroup>{{num_threads, {}}}) {}

ThreadPool::ThreadPool(const std::vector<ThreadGroup>& groups)
    : groups_(line_up(groups)),
      confined_(groups_.front().cpus.count() > 0),
      num_threads_(groups_.back().end_thread),
      // With more threads than cores a spinning thread only keeps a working one waiting.
      spin_nanoseconds_(num_threads_ <= usable_cores() ? kSpinNanoseconds : 0) {
  shares_ = std::make_unique<Share[]>(static_cast<size_t>(num_threads_));
  aheads_ = std::make_unique<Ahead[]>(static_cast<size_t>(num_threads_));
  fetchings_.resize(static_cast<size_t>(num_threads_));
  threads_.reserve(static_cast<size_t>(num_threads_ - 1));
  try {
    start_workers();
  } catch (...) {
    end_workers();
    throw;
  }
}

ThreadPool::~ThreadPool() { end_workers(); }

void ThreadPool::start_workers() {
  try {
    for (int32_t i = 1; i < num_threads_; ++i) threads_.emplace_back([this, i] { worker(i); });
  } catch (const std::system_error& error) {
    throw_error(ErrorCode::kIo, "the system gave ", threads_.size() + 1, " of ", num_threads_,
                " threads: ", error.what(),
                ". Lower num_threads (HEADRACE_NUM_THREADS), or raise the limit on threads.");
  }
}

void ThreadPool::end_workers() {
  stop_.store(true);
  number_.fetch_add(1);
  wake_all(number_);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run(const Loop& loop) {
  const int64_t chunks = ceil_div(loop.count, loop.grain);
  HEADRACE_CHECK(loop.grain > 0 && chunks < (int64_t{1} << 31), loop.grain, " ", chunks);
  const uint32_t number = number_.load(std::memory_order_relaxed) + 1;
  loop_ = loop;
  chunks_left_.store(static_cast<uint32_t>(chunks), std::memory_order_relaxed);
  share_out(number, chunks, loop.rounds);
  number_.store(number);
  if (sleeping_workers_.load() > 0) wake_all(number_);
  work(number, 0);
  wait_for_chunks();
  if (failed_.load(std::memory_order_relaxed)) {
    failed_.store(false, std::memory_order_relaxed);
    std::rethrow_exception(failure_.take());
  }
}

void ThreadPool::share_out(uint32_t number, int64_t chunks, int64_t rounds) {
  for (int32_t g = 0; g < num_groups(); ++g) {
    const Group& group = groups_[static_cast<size_t>(g)];
    const Range part = part_of(g, chunks / rounds);
    const int64_t first = rounds * part.begin, width = rounds * (part.end - part.begin);
    const int64_t threads = group.end_thread - group.first_thread;
    for (int64_t i = 0; i < threads; ++i) {
      Share& share = shares_[static_cast<size_t>(group.first_thread + i)];
      // A late thread may still hold the old words: `end` first, so that it never pairs the new
      // `next` with an old `end`.
      share.end.store(tagged(number, first + width * (i + 1) / threads), std::memory_order_release);
      share.next.store(tagged(number, first + width * i / threads), std::memory_order_release);
    }
  }
}

ThreadPool::Range ThreadPool::part_of(int32_t group, int64_t count) const noexcept {
  const Group& threads = groups_[static_cast<size_t>(group)];
  return {count * threads.first_thread / num_threads_, count * threads.end_thread / num_threads_};
}

int64_t ThreadPool::first_of(int32_t thread, int64_t count) const noexcept {
  const int32_t number = group_of(thread);
  const Group& group = groups_[static_cast<size_t>(number)];
  const Range part = part_of(number, count);
  return part.begin + (part.end - part.begin) * (thread - group.first_thread) /
                          (group.end_thread - group.first_thread);
}

void ThreadPool::read_ahead(int32_t thread, const void* data, size_t bytes) noexcept {
  Ahead& ahead = aheads_[static_cast<size_t>(thread)];
  ahead.data.store(static_cast<const char*>(data), std::memory_order_relaxed);
  ahead.bytes.store(bytes, std::memory_order_relaxed);
  ahead.number.store(ahead.number.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void ThreadPool::fetch_some(int32_t thread) noexcept {
  const Ahead& ahead = aheads_[static_cast<size_t>(thread)];
  Fetching& fetching = fetchings_[static_cast<size_t>(thread)];
  const uint32_t number = ahead.number.load(std::memory_order_acquire);
  if (number != fetching.number) {
    const char* const data = ahead.data.load(std::memory_order_relaxed);
    fetching = {number, data, data + ahead.bytes.load(std::memory_order_relaxed)};
  }
  if (fetching.next == fetching.end) return;
  const char* const stop = std::min(fetching.next + kFetchBytes, fetching.end);
  for (const char* line = fetching.next; line < stop; line += 64) _mm_prefetch(line, _MM_HINT_T0);
  fetching.next = stop;
}

/// Spins until `done()` or the time is over; returns the last done().
template <class Done>
bool ThreadPool::spin(int32_t thread, const Done& done) {
  const auto deadline = Clock::now() + std::chrono::nanoseconds(spin_nanoseconds_);
  do {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      fetch_some(thread);
      _mm_pause();
    }
  } while (Clock::now() < deadline);
  return done();
}

int32_t ThreadPool::group_of(int32_t thread) const noexcept {
  int32_t group = 0;
  while (thread >= groups_[static_cast<size_t>(group)].end_thread) ++group;
  return group;
}

void ThreadPool::adopt_caller() noexcept {
  if (confined_) set_thread_affinity(0, groups_.front().cpus);
}

void ThreadPool::work(uint32_t number, int32_t thread) {
  const Group& group = groups_[static_cast<size_t>(group_of(thread))];
  const int32_t threads = group.end_thread - group.first_thread;
  for (int32_t i = 0; i < threads; ++i) {
    const int32_t owner = group.first_thread + (thread - group.first_thread + i) % threads;
    Share& share = shares_[static_cast<size_t>(owner)];
    while (run_chunk(share, number, thread)) {
    }
  }
}

bool ThreadPool::run_chunk(Share& share, uint32_t number, int32_t thread) {
  const uint64_t end = share.end.load(std::memory_order_acquire);
  uint64_t next = share.next.load(std::memory_order_relaxed);
  do {
    if (tag(next) != number || tag(end) != number || next >= end) return false;
  } while (!share.next.compare_exchange_weak(next, next + 1, std::memory_order_acquire,
                                             std::memory_order_relaxed));
  // The chunk taken is not done yet, so its loop cannot end: loop_ stays as it is.
  const int64_t begin = static_cast<int64_t>(static_cast<uint32_t>(next)) * loop_.grain;
  const int64_t stop = begin + loop_.grain < loop_.count ? begin + loop_.grain : loop_.count;
  try {
    loop_.call(loop_.context, begin, stop, thread);
  } catch (...) {
    failure_.keep();
    failed_.store(true, std::memory_order_relaxed);
  }
  if (chunks_left_.fetch_sub(1) == 1 && caller_sleeps_.load()) wake_all(chunks_left_);
  return true;
}

void ThreadPool::worker(int32_t thread) {
  if (confined_) {
    set_thread_affinity(0, groups_[static_cast<size_t>(group_of(thread))].cpus);
  }
  uint32_t number = 0;
  while (wait_for_loop(number, thread)) {
    number = number_.load(std::memory_order_acquire);
    work(number, thread);
  }
}

bool ThreadPool::wait_for_loop(uint32_t last_number, int32_t thread) {
  // The number alone won't do: a worker that was late for a loop may already have seen the last.
  const auto changed = [&] { return number_.load() != last_number || stop_.load(); };
  if (!spin(thread, changed)) {
    sleeping_workers_.fetch_add(1);
    while (!changed()) sleep_on(number_, last_number);
    sleeping_workers_.fetch_sub(1);
  }
  return !stop_.load();
}

void ThreadPool::wait_for_chunks() {
  if (spin(0, [&] { return chunks_left_.load() == 0; })) return;
  caller_sleeps_.store(true);
  for (uint32_t left = chunks_left_.load(); left > 0; left = chunks_left_.load()) {
    sleep_on(chunks_left_, left);
  }
  caller_sleeps_.store(false);
}

}  // namespace headrace
