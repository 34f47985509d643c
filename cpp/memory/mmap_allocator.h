#pragma once

// Host memory.

#include <string>

#include "memory/raw_allocator.h"

namespace headrace {

/// Anonymous private mappings. Ranges of 2 MiB and more start on a 2 MiB boundary and ask for
/// transparent huge pages. Pages take memory when they are first written; until then
/// untouched_mapped_bytes() knows of them.
class MmapAllocator final : public RawAllocator {
 public:
  Result<void*> alloc(size_t bytes, size_t alignment) override;
  void free(void* data, size_t bytes) noexcept override;
  RawMemoryInfo info() const override;

  /// By all of this process: handed out and not given back.
  static size_t mapped_bytes() noexcept;
};

/// Memory of this machine, or of the control group (v1 or v2) this process is confined to if that
/// is less. File cache that the system would drop counts as free. 0 for what cannot be read.
/// `root` is put before /proc and /sys (tests).
RawMemoryInfo host_memory_info(const std::string& root = "");

/// What MmapAllocators of this process have handed out and nobody has written to yet, at least: the
/// system still counts it as free. `root` as above.
size_t untouched_mapped_bytes(const std::string& root = "");

}  // namespace headrace
