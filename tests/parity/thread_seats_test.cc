#include "backend/cpu/thread_seats.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "backend/cpu/cpu_affinity.h"
#include "backend/cpu/cpu_info.h"
#include "backend/cpu/thread_pool.h"
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

// What a thread that the system took off its core looks like: it holds a range and doesn't run.
class StalledWorker {
 public:
  explicit StalledWorker(ThreadSeats& seats)
      : thread_([this, &seats] {
          seats.begin_work(1);
          id_ = this_thread_id();
          working_ = true;
          while (!resume_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          cpu_ = current_cpu();
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
  std::atomic<int32_t> id_{0}, cpu_{-1};
  std::atomic<bool> working_{false}, resume_{false}, done_{false}, leave_{false};
  std::thread thread_;
};

TEST(ThreadSeats, AStalledThreadIsHelpedAndRestsAfterALongWait) {
  if (usable_cores() < 2) GTEST_SKIP() << "needs two cores";
  const auto before = thread_affinity(0);
  ThreadSeats seats(2);
  seats.begin_work(0);
  seats.end_work(0);
  StalledWorker worker(seats);
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
  ThreadSeats seats(2);
  seats.begin_work(0);
  seats.end_work(0);
  StalledWorker worker(seats);
  for (int i = 0; i < 100; ++i) seats.help_stalled(0);
  worker.finish();
  seats.end_wait(100'000);
  seats.end_wait(50'000'000);
  EXPECT_FALSE(seats.is_resting(1));
}

TEST(ThreadSeats, MoreThreadsThanCoresAreLeftAlone) {
  ThreadSeats seats(usable_cores() + 1);
  StalledWorker worker(seats);
  for (int i = 0; i < 100; ++i) seats.help_stalled(0);
  seats.end_wait(50'000'000);
  EXPECT_FALSE(seats.is_resting(1));
}

// Neighbours take the cores all the time, and threads are moved about: every range must still run
// once, and every thread must be left as free as it was.
TEST(ThreadSeats, ABusyMachineLosesNoRangeAndPinsNoThread) {
  const auto before = thread_affinity(0);
  const int32_t threads = usable_cores();
  std::atomic<bool> stop{false};
  std::vector<std::thread> neighbours;
  for (int32_t i = 0; i < 3 * threads; ++i) {
    neighbours.emplace_back([&] {
      while (!stop) {
      }
    });
  }
  {
    ThreadPool pool(threads);
    std::vector<std::atomic<int32_t>> ids(static_cast<size_t>(threads));
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
    }
    for (const auto& id : ids) {
      if (id != 0) {
        EXPECT_EQ(thread_affinity(id), before);
      }
    }
  }
  stop = true;
  for (std::thread& neighbour : neighbours) neighbour.join();
}

}  // namespace
}  // namespace headrace
