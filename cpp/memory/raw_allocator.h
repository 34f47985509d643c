#pragma once

// RawAllocator: where big ranges of memory come from (mmap, a device, a fake address space).

#include <cstddef>

#include "base/result.h"

namespace headrace {

struct RawMemoryInfo {
  size_t total_bytes = 0;  ///< memory of the device, or what this process may use of it
  size_t free_bytes = 0;   ///< available now, counting what the system would give up for it
};

/// Any thread may call it.
class RawAllocator {
 public:
  virtual ~RawAllocator() = default;

  /// A range of at least `bytes` that starts at a multiple of `alignment`; Failure(kOutOfMemory)
  /// if it cannot be had. Contents are undefined. REQUIRES: bytes > 0, alignment a power of two.
  virtual Result<void*> alloc(size_t bytes, size_t alignment) = 0;
  /// REQUIRES: `data` came from alloc(bytes, ...) and is freed once.
  virtual void free(void* data, size_t bytes) noexcept = 0;
  virtual RawMemoryInfo info() const = 0;
};

/// How much of a device one user takes. The device may be shared: what others hold is respected.
struct MemoryShare {
  double ratio = 0.9;   ///< [0, 1]: part of the total, leftover not counted
  size_t leftover = 0;  ///< bytes of the total to leave alone
  size_t headroom = 0;  ///< bytes of what is free now to leave alone
};

/// min((total - leftover) * ratio, free - headroom), never below 0.
size_t memory_budget(const RawMemoryInfo& info, const MemoryShare& share) noexcept;

}  // namespace headrace
