#include "grammar/deep_stack.h"

#include <pthread.h>

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
    if (!call.finished.wait_for(lock, patience, [&] { return call.done; })) {
      lock.unlock();
      late();
    }
  }
  pthread_join(thread, nullptr);
  if (call.failure) std::rethrow_exception(call.failure);
}

}  // namespace headrace::internal
