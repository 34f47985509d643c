#pragma once

// Replaces operator new for a test program: an allocation of this thread can be made to fail.
// Include it in one source of the program.

#include <cstdint>
#include <cstdlib>
#include <new>

namespace {
thread_local int64_t allocations_left = -1;  // before one fails; -1: none fails
}

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  if (allocations_left == 0) {
    allocations_left = -1;
    return nullptr;
  }
  if (allocations_left > 0) --allocations_left;
  return std::malloc(bytes > 0 ? bytes : 1);
}
void* operator new(std::size_t bytes) {
  if (void* data = operator new(bytes, std::nothrow)) return data;
  throw std::bad_alloc();
}
// GCC 12 takes this pair for a mismatch once it has inlined one half of it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete(void* data, const std::nothrow_t&) noexcept { std::free(data); }
#pragma GCC diagnostic pop
