#include "fiber.h"

#include <cstdint>

#if defined(HEADRACE_ASAN)
#include <sanitizer/asan_interface.h>
#endif

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

void Fiber::start(char* stack, size_t bytes, void (*entry)(void*), void* argument) {
#if defined(HEADRACE_ASAN)
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
  Fiber* self = starting_;
  after_switch(nullptr, &self->caller_stack_, &self->caller_stack_bytes_);
  self->entry_(self->argument_);
  __builtin_trap();
}

}  // namespace headrace::emulation
