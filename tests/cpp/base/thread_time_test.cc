#include "base/thread_time.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace headrace {
namespace {

TEST(ThreadTime, StandsStillWhileAThreadSleeps) {
  std::atomic<bool> stop{false};
  std::atomic<int32_t> id{0};
  std::thread sleeper([&] {
    id = this_thread_id();
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  });
  while (id == 0) std::this_thread::yield();
  // On a busy machine it takes its time to fall asleep.
  int64_t before = 0, after = 1;
  for (int i = 0; i < 1000 && before != after; ++i) {
    before = thread_cpu_nanoseconds(id);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    after = thread_cpu_nanoseconds(id);
  }
  EXPECT_GT(before, 0);
  EXPECT_EQ(after, before);
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

}  // namespace
}  // namespace headrace
