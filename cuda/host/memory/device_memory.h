#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "backend/contract/backend.h"
#include "cuda/host/runtime/context.h"
#include "memory/bfc_allocator.h"

namespace headrace::cuda {

/// Where BfcAllocator gets a GPU's memory from.
class DeviceAllocator final : public RawAllocator {
 public:
  explicit DeviceAllocator(CudaContext& context) : context_(context) {}
  Result<void*> alloc(size_t bytes, size_t alignment) override;
  void free(void* data, size_t bytes) noexcept override;
  /// Of the GPU, all its users counted; zeros where it doesn't answer.
  RawMemoryInfo info() const override;

 private:
  CudaContext& context_;
};

/// All device memory of a backend: weights, caches, scratch. Thread-safe.
class DeviceMemory {
 public:
  /// `limit`: bound on bytes_held(); 0 = what the GPU has. `context` must outlive this and every
  /// buffer.
  DeviceMemory(CudaContext& context, size_t limit);

  /// Contents undefined. Throws Error(kOutOfMemory) naming what was asked for, what is in use, and
  /// what the GPU has left.
  Backend::Buffer allocate(size_t bytes);
  size_t bytes_in_use() const { return heap_.stats().in_use_bytes; }
  size_t bytes_held() const { return heap_.stats().region_bytes; }
  RawMemoryInfo info() const { return raw_.info(); }

 private:
  CudaContext& context_;
  DeviceAllocator raw_;
  BfcAllocator heap_;
};

}  // namespace headrace::cuda
