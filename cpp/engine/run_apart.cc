#include "engine/run_apart.h"

#include <exception>
#include <system_error>
#include <thread>

namespace headrace::internal {

void run_apart(bool apart, const std::function<void()>& fn) {
  if (!apart) return fn();
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

}  // namespace headrace::internal
