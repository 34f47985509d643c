#pragma once

// Host to device at load: weights, converted or copied on several threads straight into pinned
// memory, whose copies to the GPU run meanwhile.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/mutex.h"
#include "cuda/host/memory/pinned.h"

namespace headrace::cuda {

class Uploader {
 public:
  /// `threads`: most that fill at once. Takes pinned memory when it is first used. `behind`, if
  /// there is one: an event that device memory may have to wait for when write() gets it.
  Uploader(CudaContext& context, int32_t threads, EventHandle* behind = nullptr);
  ~Uploader();

  /// Writes the units [first, first + count) to `to`, of unit_bytes each.
  using Fill = std::function<void(int64_t first, int64_t count, std::byte* to)>;
  /// Fills device memory [device, device + units * unit_bytes). Returns when the last piece has
  /// been filled: what `fill` reads is then free, but the memory is complete only after flush().
  /// `fill` runs on several threads; what it throws is thrown here. One caller at a time: others
  /// wait.
  void write(void* device, int64_t units, size_t unit_bytes, const Fill& fill);
  /// Bytes as they are; the same otherwise.
  void write(void* device, const void* source, size_t bytes);
  /// Returns when all that was written has arrived.
  void flush();
  /// Gives the pinned memory back after a flush().
  void release();

 private:
  struct Lane {
    PinnedBuffer memory;
    EventHandle copied;
  };
  struct Task;
  void work(Lane& lane, Task& task);
  void prepare(size_t lanes, size_t bytes) HEADRACE_REQUIRES(mutex_);

  CudaContext& context_;
  const size_t threads_;
  EventHandle* const behind_;
  Mutex mutex_;
  Stream stream_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
  std::vector<Lane> lanes_ HEADRACE_GUARDED_BY(mutex_);
  bool pending_ HEADRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace headrace::cuda
