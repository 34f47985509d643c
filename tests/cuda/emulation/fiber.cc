#include "fiber.h"

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the registers that a call preserves, and the stack pointer to *save; goes on from `load`.
extern "C" void headrace_switch_stack(void** save, void* load);
asm(R"(
.text
.globl headrace_switch_stack
.type headrace_switch_stack, @function
headrace_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size headrace_switch_stack, . - headrace_switch_stack
)");

namespace headrace::emulation {
namespace {

thread_local Fiber* starting = nullptr;

void before_switch([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* stack,
                   [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
#endif
}

void after_switch([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** stack,
                  [[maybe_unused]] size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, stack, bytes);
#endif
}

}  // namespace

void Fiber::start(char* stack, size_t bytes, void (*entry)(void*), void* argument) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack, bytes);
#endif
  stack_ = stack;
  stack_bytes_ = bytes;
  entry_ = entry;
  argument_ = argument;
  own_fake_stack_ = nullptr;
  // Six registers, then where to return to; a function is entered with the stack 8 off 16.
  auto top = (reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t{15};
  auto* words = reinterpret_cast<uintptr_t*>(top) - 2;
  words[0] = reinterpret_cast<uintptr_t>(&Fiber::trampoline);
  words[1] = 0;
  for (int i = 1; i <= 6; ++i) words[-i] = 0;
  stack_pointer_ = words - 6;
}

void Fiber::trampoline() {
  Fiber* self = starting;
  after_switch(nullptr, &self->caller_stack_, &self->caller_stack_bytes_);
  self->entry_(self->argument_);
  __builtin_trap();
}

void Fiber::resume() {
  starting = this;
  before_switch(&caller_fake_stack_, stack_, stack_bytes_);
  headrace_switch_stack(&caller_stack_pointer_, stack_pointer_);
  after_switch(caller_fake_stack_, nullptr, nullptr);
}

void Fiber::suspend() {
  before_switch(&own_fake_stack_, caller_stack_, caller_stack_bytes_);
  headrace_switch_stack(&stack_pointer_, caller_stack_pointer_);
  after_switch(own_fake_stack_, &caller_stack_, &caller_stack_bytes_);
}

}  // namespace headrace::emulation
