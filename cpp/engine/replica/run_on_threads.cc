#include "engine/replica/run_on_threads.h"

#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"

namespace headrace::internal {

void run_on_thread(bool own_thread, const std::function<void()>& fn) {
  if (!own_thread) return fn();
  std::exception_ptr failure;
  std::thread thread;
  try {
    thread = std::thread([&] {
      try {
        fn();
      } catch (...) {
        failure = std::current_exception();
      }
    });
  } catch (const std::system_error&) {
    return fn();
  }
  thread.join();
  if (failure) std::rethrow_exception(failure);
}

void run_on_threads(size_t count, const std::function<void(size_t)>& fn) {
  std::vector<std::exception_ptr> failures(count);
  const auto call = [&](size_t index) {
    try {
      fn(index);
    } catch (...) {
      failures[index] = std::current_exception();
    }
  };
  std::vector<std::jthread> threads;
  threads.reserve(count);
  try {
    for (size_t i = 1; i < count; ++i) threads.emplace_back(call, i);
  } catch (const std::system_error& error) {
    throw_error(ErrorCode::kIo, "no thread to work on a replica: ", error.what());
  }
  call(0);
  threads.clear();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace headrace::internal
