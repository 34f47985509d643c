#pragma once

// Memory of the CPU backend: aligned, counted and bounded.

#include <cstddef>
#include <memory>

#include "backend/contract/backend.h"

namespace headrace {

/// Hands out pieces of large mappings, so that small weights share huge pages with their neighbours
/// too. Thread-safe. Pieces may outlive the object.
class HostMemory {
 public:
  /// `limit`: upper bound on bytes_in_use(); 0 = none.
  explicit HostMemory(size_t limit);

  /// `bytes` aligned to 256, contents undefined. Throws Error(kOutOfMemory), naming what was asked
  /// for, the limit and what is in use, if they cannot be had.
  Backend::Buffer allocate(size_t bytes);
  size_t bytes_in_use() const noexcept;
  /// Taken from the system; pages that were never written are among them.
  size_t bytes_held() const;

 private:
  struct Heap;
  void reserve(size_t bytes);

  std::shared_ptr<Heap> heap_;
  size_t limit_;
};

/// Backend::adopt of a backend that reads host memory.
Backend::Buffer adopt_host_memory(const void* data, size_t bytes, std::shared_ptr<void> owner);

}  // namespace headrace
