#include "backend/cpu/threads/thread_seats.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/threads/thread_pool.h"
#include "backend/host/cpu_affinity.h"
#include "backend/host/cpu_info.h"
#include "base/thread_time.h"

namespace headrace {
namespace {

void wait_until(const std::atomic<bool>& flag) {
  while (!flag.load()) std::this_thread::yield();
}

TEST(CpuMask, HoldsCpusByNumber) {
  CpuMask mask = CpuMask::of(70);
  mask.add(0);
  mask.add(CpuMask::kMaxCpus);  // ignored
  mask.add(-1);
  EXPECT_EQ(mask.count(), 2);
  EXPECT_TRUE(mask.contains(70));
  EXPECT_TRUE(mask.contains(0));
  EXPECT_FALSE(mask.contains(1));
  EXPECT_FALSE(mask.contains(CpuMask::kMaxCpus));
  EXPECT_EQ(mask & CpuMask::of(70), CpuMask::of(70));
}

TEST(CpuAffinity, MovesAThreadAndLeavesItFree) {
  const auto before = thread_affinity(0);
  ASSERT_TRUE(before.has_value());
  for (int32_t cpu = 0; cpu < CpuMask::kMaxCpus; ++cpu) {
    if (before->contains(cpu)) {
      EXPECT_TRUE(move_thread(0, cpu));
    } else if (cpu < 256) {
      EXPECT_FALSE(move_thread(0, cpu));
    }
  }
  EXPECT_EQ(thread_affinity(0), before);
}

TEST(CpuAffinity, CpuTimeStandsStillWhileAThreadSleeps) {
  std::atomic<bool> started{false}, stop{false};
  std::atomic<int32_t> id{0};
  std::thread sleeper([&] {
    id = this_thread_id();
    started = true;
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  });
  wait_until(started);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const int64_t before = thread_cpu_nanoseconds(id);
  EXPECT_GE(before, 0);
  EXPECT_EQ(thread_cpu_nanoseconds(id), before);
  const int64_t own = thread_cpu_nanoseconds(this_thread_id());
  EXPECT_GT(thread_cpu_nanoseconds(this_thread_id()), own);
  stop = true;
  sleeper.join();
  // join() returns when the system clears the thread's id, a little before it forgets its clock.
  for (int i = 0; i < 1000 && thread_cpu_nanoseconds(id) >= 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(thread_cpu_nanoseconds(id), -1);
}

/// Keeps this thread on one CPU while it lives.
class Pinned {
 public:
  explicit Pinned(int32_t cpu) : before_(*thread_affinity(0)) {
    EXPECT_TRUE(set_thread_affinity(0, CpuMask::of(cpu)));
  }
  ~Pinned() { EXPECT_TRUE(set_thread_affinity(0, before_)); }

 private:
  const CpuMask before_;
};

/// Two CPUs that this thread may run on: who shares one with a stalled thread can't help it.
std::pair<int32_t, int32_t> two_cpus() {
  const CpuMask allowed = *thread_affinity(0);
  std::vector<int32_t> cpus;
  for (int32_t cpu = 0; cpus.size() < 2; ++cpu) {
    if (allowed.contains(cpu)) cpus.push_back(cpu);
  }
  return {cpus[0], cpus[1]};
}

// What a thread that the system took off its core looks like: it holds a range and doesn't run.
class StalledWorker {
 public:
  /// Takes its range on `cpu`, and may run where this thread may.
  StalledWorker(ThreadSeats& seats, int32_t cpu)
      : thread_([this, &seats, cpu, allowed = *thread_affinity(0)] {
          EXPECT_TRUE(set_thread_affinity(0, CpuMask::of(cpu)));
          seats.begin_work(1);
          EXPECT_TRUE(set_thread_affinity(0, allowed));
          id_ = this_thread_id();
          working_ = true;
          while (!resume_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          seats.end_work(1);
          done_ = true;
          while (!leave_) std::this_thread::yield();
        }) {
    wait_until(working_);
  }
  ~StalledWorker() {
    finish();
    leave_ = true;
    thread_.join();
  }
  void finish() {
    resume_ = true;
    wait_until(done_);
  }
  std::optional<CpuMask> affinity() const { return thread_affinity(id_); }

 private:
  std::atomic<int32_t> id_{0};
  std::atomic<bool> working_{false}, resume_{false}, done_{false}, leave_{false};
  std::thread thread_;
};

TEST(ThreadSeats, AStalledThreadIsHelpedAndRestsAfterALongWait) {
  if (usable_cores() < 2) GTEST_SKIP() << "needs two cores";
  const auto before = thread_affinity(0);
  const auto [here, there] = two_cpus();
  ThreadSeats seats(2, true);
  StalledWorker worker(seats, there);
  const Pinned pinned(here);
  seats.adopt_caller();
  seats.begin_work(0);
  seats.end_work(0);
  seats.end_wait(50'000'000);
  EXPECT_FALSE(seats.is_resting(1)) << "nobody helped it";
  for (int i = 0; i < 100; ++i) seats.help_stalled(0);  // it wakes at times: then it is not stalled
  worker.finish();
  EXPECT_EQ(worker.affinity(), before);
  seats.end_wait(50'000'000);
  EXPECT_TRUE(seats.is_resting(1));
  EXPECT_FALSE(seats.is_resting(0));
}

TEST(ThreadSeats, AShortWaitCostsNobodyARest) {
  if (usable_cores() < 2) GTEST_SKIP() << "needs two cores";
  const auto [here, there] = two_cpus();
  ThreadSeats seats(2, true);
  StalledWorker worker(seats, there);
  const Pinned pinned(here);
  seats.adopt_caller();
  seats.begin_work(0);
  seats.end_work(0);
  for (int i = 0; i < 100; ++i) seats.help_stalled(0);
  worker.finish();
  seats.end_wait(100'000);
  seats.end_wait(50'000'000);
  EXPECT_FALSE(seats.is_resting(1));
}

TEST(ThreadSeats, MoreThreadsThanCoresAreLeftAlone) {
  ThreadSeats seats(usable_cores() + 1, true);
  StalledWorker worker(seats, current_cpu());
  for (int i = 0; i < 100; ++i) seats.help_stalled(0);
  seats.end_wait(50'000'000);
  EXPECT_FALSE(seats.is_resting(1));
}

TEST(ThreadSeats, UsedByItselfWhereItIsKnownToWin) {
  EXPECT_TRUE(ThreadSeats::is_known_to_win(2, 2));
  EXPECT_FALSE(ThreadSeats::is_known_to_win(1, 2));
  EXPECT_FALSE(ThreadSeats::is_known_to_win(2, 4));
  EXPECT_FALSE(ThreadSeats::is_known_to_win(4, 4));
  EXPECT_FALSE(ThreadSeats::is_known_to_win(4, 2));
}

/// Threads that take the cores all the time.
class Neighbours {
 public:
  Neighbours() {
    for (int32_t i = 0; i < 3 * usable_cores(); ++i) {
      threads_.emplace_back([this] {
        while (!stop_) {
        }
      });
    }
  }
  ~Neighbours() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

/// HEADRACE_THREAD_SEATS while it lives.
class Switch {
 public:
  explicit Switch(const char* value) { ::setenv("HEADRACE_THREAD_SEATS", value, 1); }
  ~Switch() { ::unsetenv("HEADRACE_THREAD_SEATS"); }
};

/// Looks at threads' affinities all the time.
class Observer {
 public:
  Observer(const std::vector<std::atomic<int32_t>>& ids, const CpuMask& expected)
      : thread_([this, &ids, expected] {
          while (!stop_) {
            for (const auto& id : ids) {
              if (id == 0) continue;
              const auto seen = thread_affinity(id);
              if (seen && !(*seen == expected)) ++changes_;
            }
            ++looks_;
          }
        }) {}
  /// How often one was another.
  int finish() {
    stop_ = true;
    thread_.join();
    EXPECT_GT(looks_, 0);
    return changes_;
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> changes_{0}, looks_{0};
  std::thread thread_;
};

/// Short loops for a while; every range must run once. `ids`: of the threads that took ranges.
template <class AfterLoop>
void run_loops(ThreadPool& pool, std::vector<std::atomic<int32_t>>& ids, const AfterLoop& after) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
  while (std::chrono::steady_clock::now() < end) {
    std::atomic<int64_t> sum{0};
    pool.parallel_for(64, 1, [&](int64_t begin, int64_t, int32_t thread) {
      ids[static_cast<size_t>(thread)] = this_thread_id();
      const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(3);
      while (std::chrono::steady_clock::now() < until) {
      }
      sum += begin;
    });
    ASSERT_EQ(sum, 64 * 63 / 2);
    after();
  }
}

// Threads are moved about: every range must still run once, the driver must leave each loop as free
// as it came, so that what it starts is free too, and the others must become so.
TEST(ThreadSeats, ABusyMachineLosesNoRangeAndPinsNoThread) {
  const auto before = thread_affinity(0);
  const Switch on("on");
  const Neighbours neighbours;
  ThreadPool pool(usable_cores());
  pool.adopt_caller();
  std::vector<std::atomic<int32_t>> ids(static_cast<size_t>(usable_cores()));
  run_loops(pool, ids, [&] { ASSERT_EQ(thread_affinity(0), before); });
  for (const auto& id : ids) {
    // A worker may have been taken off its core just while it moved itself.
    for (int i = 0; i < 3000 && id != 0 && thread_affinity(id) != before; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (id != 0) {
      EXPECT_EQ(thread_affinity(id), before);
    }
  }
}

TEST(ThreadSeats, ACallerThatIsNotTheEnginesIsNeverMoved) {
  const auto before = thread_affinity(0);
  ASSERT_TRUE(before.has_value());
  const Switch on("on");
  const Neighbours neighbours;
  ThreadPool pool(usable_cores());
  std::vector<std::atomic<int32_t>> ids(static_cast<size_t>(usable_cores())), own(1);
  own[0] = this_thread_id();
  Observer observer(own, *before);
  run_loops(pool, ids, [] {});
  EXPECT_EQ(observer.finish(), 0);
}

TEST(ThreadSeats, SwitchedOffNobodyIsMoved) {
  const auto before = thread_affinity(0);
  ASSERT_TRUE(before.has_value());
  const Switch off("off");
  const Neighbours neighbours;
  ThreadPool pool(usable_cores());
  pool.adopt_caller();
  std::vector<std::atomic<int32_t>> ids(static_cast<size_t>(usable_cores()));
  Observer observer(ids, *before);
  run_loops(pool, ids, [] {});
  EXPECT_EQ(observer.finish(), 0);
}

}  // namespace
}  // namespace headrace
