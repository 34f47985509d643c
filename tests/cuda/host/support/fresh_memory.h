#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>

#if defined(HEADRACE_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace headrace::cuda {

/// As a GPU gives it: aligned to more than any kernel asks for, and its contents are no zeros.
/// AddressSanitizer reports who touches what the alignment adds. For std::free().
inline void* fresh_memory(size_t bytes) {
  const size_t all = (bytes + 4095) / 4096 * 4096;
  void* const memory = std::aligned_alloc(4096, all);
  std::memset(memory, 0xff, bytes);
#if defined(HEADRACE_ASAN)
  ASAN_POISON_MEMORY_REGION(static_cast<char*>(memory) + bytes, all - bytes);
#endif
  return memory;
}

}  // namespace headrace::cuda
