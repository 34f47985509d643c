#include "grammar/deep_stack.h"

#include <pthread.h>
#include <time.h>

#include <condition_variable>
#include <exception>
#include <mutex>

#include "base/check.h"

namespace headrace::internal {

namespace {

struct Call {
  const std::function<void()>& body;
  std::exception_ptr failure;
  std::mutex mutex;
  std::condition_variable finished;
  bool done = false;  // guarded by mutex
};

void* run(void* argument) noexcept {
  auto& call = *static_cast<Call*>(argument);
  try {
    call.body();
  } catch (...) {
    call.failure = std::current_exception();
  }
  const std::lock_guard lock(call.mutex);
  call.done = true;
  call.finished.notify_one();
  return nullptr;
}

/// Processor time that a thread has had; what runs beside it doesn't count.
std::chrono::nanoseconds cpu_time(pthread_t thread) {
  clockid_t clock;
  timespec used{};
  if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &used) != 0) return {};
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace

void call_on_deep_stack(size_t bytes, const std::function<void()>& body,
                        std::chrono::nanoseconds patience, const std::function<void()>& late) {
  constexpr size_t kPage = 1 << 16;
  Call call{body};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, (bytes + kPage - 1) / kPage * kPage);
  pthread_t thread;
  const int failed = pthread_create(&thread, &attributes, run, &call);
  pthread_attr_destroy(&attributes);
  if (failed != 0) {
    throw_error(ErrorCode::kOutOfMemory, "no memory for a stack of ", bytes >> 20, " MiB.");
  }
  {
    std::unique_lock lock(call.mutex);
    auto left = patience;
    while (left > left.zero() && !call.finished.wait_for(lock, left, [&] { return call.done; })) {
      left = patience - cpu_time(thread);
    }
    if (!call.done) {
      lock.unlock();
      late();
    }
  }
  pthread_join(thread, nullptr);
  if (call.failure) std::rethrow_exception(call.failure);
}

}  // namespace headrace::internal
