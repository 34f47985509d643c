#pragma once

// A call stack of its own, switched to and from by hand: one for each emulated CUDA thread. x86-64.

#include <cstddef>

namespace headrace::emulation {

class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Makes the next resume() call entry(argument) on `stack`. What ran there before is abandoned:
  /// its destructors don't run. `entry` must not return: it ends in a suspend() that is final.
  void start(char* stack, size_t bytes, void (*entry)(void*), void* argument);

  /// Runs the fiber until it calls suspend(). Not from within a fiber.
  void resume();
  /// From within the fiber: goes back to where resume() was called.
  void suspend();

 private:
  static void trampoline();

  void* stack_pointer_ = nullptr;
  void* caller_stack_pointer_ = nullptr;
  char* stack_ = nullptr;
  size_t stack_bytes_ = 0;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  // AddressSanitizer's bookkeeping.
  void* own_fake_stack_ = nullptr;
  void* caller_fake_stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_stack_bytes_ = 0;
};

}  // namespace headrace::emulation
