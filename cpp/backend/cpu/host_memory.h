#pragma once

// Memory of the CPU backend: aligned, counted and bounded.

#include <atomic>
#include <cstddef>
#include <memory>

#include "backend/backend.h"

namespace headrace {

/// Hands out zeroed memory aligned to 256 bytes (large pieces: to a page, on huge pages where the
/// system grants them). Thread-safe. Pieces may outlive the object.
class HostMemory {
 public:
  /// `limit`: upper bound on bytes_in_use(); 0 = none.
  explicit HostMemory(size_t limit);

  /// Throws Error(kOutOfMemory), naming the size and what is left, if it does not fit.
  Backend::Buffer allocate(size_t bytes);
  size_t bytes_in_use() const noexcept;

 private:
  struct Meter {
    std::atomic<size_t> bytes_in_use{0};
  };
  void reserve(size_t bytes);

  std::shared_ptr<Meter> meter_;
  size_t limit_;
};

}  // namespace headrace
