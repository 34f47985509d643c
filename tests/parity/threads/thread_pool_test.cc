#include "backend/cpu/threads/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <vector>

#include "base/check.h"
#include "fakes/failing_new.h"
#include "fakes/failing_threads.h"

namespace headrace {
namespace {

TEST(ThreadPool, RunsEveryIndexOnce) {
  for (const int32_t threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (const int64_t count : {0, 1, 2, 5, 64, 1000}) {
      for (const int64_t grain : {1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
        pool.parallel_for(count, grain, [&](int64_t begin, int64_t end, int32_t thread) {
          EXPECT_LE(end - begin, grain);
          EXPECT_GE(thread, 0);
          EXPECT_LT(thread, threads);
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
      }
    }
  }
}

TEST(ThreadPool, OneThreadIsTheCaller) {
  ThreadPool pool(1);
  const auto caller = std::this_thread::get_id();
  pool.parallel_for(10, 1, [&](int64_t, int64_t, int32_t thread) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(thread, 0);
  });
}

// A thread that wakes for a loop only when the pool is already being destroyed must still leave.
TEST(ThreadPool, EndsWhileThreadsAreLate) {
  for (int round = 0; round < 3000; ++round) {
    const int32_t threads = 2 + round % 8;
    ThreadPool pool(threads);
    std::atomic<int> sum{0};
    const int loops = round % 3;
    for (int loop = 0; loop < loops; ++loop) {
      pool.parallel_for(2, 1, [&](int64_t, int64_t, int32_t) { ++sum; });
    }
    ASSERT_EQ(sum.load(), 2 * loops);
  }
}

TEST(ThreadPool, ARefusedThreadIsAnErrorThatLeavesNone) {
  for (int given = 0; given < 3; ++given) {
    threads_left = given;
    try {
      ThreadPool pool(4);
      FAIL() << given;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      EXPECT_NE(std::string(error.what()).find("of 4 threads"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(threads_left, -1);
}

TEST(ThreadPool, WithoutMemoryNothingIsLeft) {
  int64_t failed = 0;
  for (bool built = false; !built; ++failed) {
    ASSERT_LT(failed, 100);
    allocations_left = failed;
    try {
      ThreadPool pool(4);
      built = true;
    } catch (const std::bad_alloc&) {
    }
    allocations_left = -1;
  }
  EXPECT_GT(failed, 4) << "a failure for each thread, at least";
}

TEST(ThreadPool, NoTwoRangesShareAThreadIndexAtOnce) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> busy(4);
  for (int round = 0; round < 50; ++round) {
    pool.parallel_for(40, 1, [&](int64_t, int64_t, int32_t thread) {
      EXPECT_EQ(busy[static_cast<size_t>(thread)].fetch_add(1), 0);
      std::this_thread::yield();
      busy[static_cast<size_t>(thread)].fetch_sub(1);
    });
  }
}

TEST(ThreadPool, IdleThreadsHelpABusyOne) {
  ThreadPool pool(2);
  // The first index holds whoever takes it until all others are done: its share must be taken over.
  std::atomic<int> done{0};
  pool.parallel_for(100, 1, [&](int64_t begin, int64_t, int32_t) {
    if (begin == 0) {
      while (done.load() < 99) std::this_thread::yield();
    } else {
      ++done;
    }
  });
  EXPECT_EQ(done.load(), 99);
}

TEST(ThreadPool, CarriesAnExceptionAfterAllElseHasRun) {
  for (const int32_t threads : {2, 3}) {
    ThreadPool pool(threads);
    for (int64_t bad = 0; bad < 20; ++bad) {
      std::atomic<int> ran{0};
      const auto loop = [&] {
        pool.parallel_for(20, 1, [&](int64_t begin, int64_t, int32_t) {
          ++ran;
          if (begin == bad) throw std::runtime_error("index " + std::to_string(bad));
        });
      };
      try {
        loop();
        FAIL() << "did not throw";
      } catch (const std::runtime_error& e) {
        EXPECT_EQ(e.what(), "index " + std::to_string(bad));
      }
      EXPECT_EQ(ran.load(), 20);
    }
    int64_t sum = 0;
    pool.parallel_for(1, 1, [&](int64_t, int64_t, int32_t) { ++sum; });
    EXPECT_EQ(sum, 1);
  }
}

// Loops follow each other at once, after the workers have begun to sleep, and in between.
TEST(ThreadPool, ManyLoopsInARow) {
  ThreadPool pool(3);
  int64_t total = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<int64_t> parts(16, 0);
    pool.parallel_for(16, 1, [&](int64_t begin, int64_t, int32_t) {
      parts[static_cast<size_t>(begin)] = begin + round;
    });
    for (const int64_t part : parts) total += part;
    if (round % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds(round % 7 * 50));
  }
  EXPECT_EQ(total, 3000LL * 120 + 16LL * 2999 * 3000 / 2);
}

TEST(ThreadPool, TellsWhereThreadsStart) {
  for (const int32_t threads : {2, 3, 5}) {
    ThreadPool pool(threads);
    for (const int64_t count : {int64_t{5}, int64_t{6}, int64_t{17}}) {
      std::vector<int64_t> first(static_cast<size_t>(threads), -1);
      std::atomic<int32_t> started{0};
      pool.parallel_for(count, 1, [&](int64_t begin, int64_t, int32_t thread) {
        int64_t& mine = first[static_cast<size_t>(thread)];
        if (mine >= 0) return;
        mine = begin;
        // Nobody goes on to another's share before all have begun their own.
        ++started;
        while (started.load() < threads) std::this_thread::yield();
      });
      for (int32_t t = 0; t < threads; ++t) {
        EXPECT_EQ(first[static_cast<size_t>(t)], pool.first_of(t, count)) << threads << " " << t;
      }
    }
  }
}

// Hints about memory that is not there, between loops that threads wait in and behind.
TEST(ThreadPool, ReadsAheadHarmlessly) {
  ThreadPool pool(2);
  for (int round = 0; round < 500; ++round) {
    for (int32_t t = 0; t < 2; ++t) {
      const auto address = static_cast<uintptr_t>(round) * 4096 * (t == 0 ? 1 : 1'000'003);
      pool.read_ahead(t, reinterpret_cast<const void*>(address), size_t{1} << (round % 20));
    }
    std::atomic<int> sum{0};
    pool.parallel_for(4, 1, [&](int64_t begin, int64_t, int32_t) {
      if (begin == round % 4) std::this_thread::sleep_for(std::chrono::microseconds(round % 60));
      ++sum;
    });
    ASSERT_EQ(sum.load(), 4);
  }
}

TEST(ThreadPool, StartsAndStopsUnused) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(1 + i % 4);
}

}  // namespace
}  // namespace headrace
