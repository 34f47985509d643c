#pragma once

// Replaces operator new for a test program: an allocation of this thread can be made to fail.
// Include it in one source of the program.

#include <cstdint>
#include <cstdlib>
#include <new>

namespace {
thread_local int64_t allocations_left = -1;  // before one fails; -1: none fails
}

void* operator new(std::size_t bytes) {
  if (allocations_left == 0) {
    allocations_left = -1;
    throw std::bad_alloc();
  }
  if (allocations_left > 0) --allocations_left;
  if (void* data = std::malloc(bytes > 0 ? bytes : 1)) return data;
  throw std::bad_alloc();
}
// GCC 12 takes this pair for a mismatch once it has inlined one half of it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
#pragma GCC diagnostic pop
