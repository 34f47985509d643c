#include "base/thread_time.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace headrace {

int32_t this_thread_id() noexcept {
  thread_local const auto id = static_cast<int32_t>(::syscall(SYS_gettid));
  return id;
}

int64_t thread_cpu_nanoseconds(int32_t thread_id) noexcept {
  // The clock of a thread by its number, as pthread_getcpuclockid() makes it from a pthread_t,
  // which must not be of a thread that has ended; a number may.
  constexpr uint32_t kThreadClock = 6;
  const auto clock = static_cast<clockid_t>(~static_cast<uint32_t>(thread_id) << 3 | kThreadClock);
  timespec time{};
  if (::clock_gettime(clock, &time) != 0) return -1;
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace headrace
