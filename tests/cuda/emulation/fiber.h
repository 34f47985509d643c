#pragma once

// A call stack of its own, switched to and from by hand: one for each emulated CUDA thread. x86-64.

#include <cstddef>

#if defined(HEADRACE_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the registers that a call preserves, and the stack pointer to *save; goes on from `load`.
extern "C" void headrace_switch_stack(void** save, void* load);

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
  void resume() {
    starting_ = this;
    before_switch(&caller_fake_stack_, stack_, stack_bytes_);
    headrace_switch_stack(&caller_stack_pointer_, stack_pointer_);
    after_switch(caller_fake_stack_, nullptr, nullptr);
  }
  /// From within the fiber: goes back to where resume() was called.
  void suspend() {
    before_switch(&own_fake_stack_, caller_stack_, caller_stack_bytes_);
    headrace_switch_stack(&stack_pointer_, caller_stack_pointer_);
    after_switch(own_fake_stack_, &caller_stack_, &caller_stack_bytes_);
  }

 private:
  static void trampoline();
  static void before_switch([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* stack,
                            [[maybe_unused]] size_t bytes) {
#if defined(HEADRACE_ASAN)
    __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
#endif
  }
  static void after_switch([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** stack,
                           [[maybe_unused]] size_t* bytes) {
#if defined(HEADRACE_ASAN)
    __sanitizer_finish_switch_fiber(fake_stack, stack, bytes);
#endif
  }

  static constinit inline thread_local Fiber* starting_ = nullptr;

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
