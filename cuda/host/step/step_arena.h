#pragma once

// A step's host data on the device: indices, block tables, work lists, sampling rows. It is written
// to pinned memory and copied in the order of the stream; nobody waits.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "cuda/host/memory/device_memory.h"
#include "cuda/host/memory/pinned.h"

namespace headrace::cuda {

/// Used by the backend's thread. Device addresses are a function of the sizes asked for since
/// begin(), as long as generation() stays the same: what a captured graph relies on.
class StepArena {
 public:
  StepArena(CudaContext& context, DeviceMemory& memory) : context_(context), memory_(memory) {}

  /// Makes room for steps of that size ahead of time.
  void reserve(size_t bytes);
  /// A new step: all that was handed out before is void.
  void begin();

  /// A copy of `from` on the device, complete behind the next flush(). `capacity`: T's to set aside
  /// for it, so that what comes next lies in the same place whatever from.size() is.
  template <class T>
  T* put(std::span<const T> from, size_t capacity = 0) {
    static_assert(std::is_trivially_copyable_v<T>);
    const size_t room = std::max(capacity, from.size()) * sizeof(T);
    return reinterpret_cast<T*>(put_bytes(from.data(), from.size_bytes(), room));
  }
  /// Device memory of the step without contents.
  template <class T>
  T* take(size_t count) {
    return reinterpret_cast<T*>(put_bytes(nullptr, 0, count * sizeof(T)));
  }
  /// Copies what was taken since the last flush.
  void flush();

  /// Changes when the memory moves.
  int generation() const noexcept { return generation_; }
  size_t device_bytes() const noexcept { return device_.bytes; }

 private:
  struct Slot {
    PinnedBuffer memory;
    EventHandle copied;
  };
  std::byte* put_bytes(const void* from, size_t bytes, size_t room);
  void grow(size_t bytes);

  static constexpr size_t kSlots = 3;

  CudaContext& context_;
  DeviceMemory& memory_;
  Backend::Buffer device_;
  std::array<Slot, kSlots> slots_;
  size_t slot_ = 0;
  size_t used_ = 0, flushed_ = 0;  // bytes of the current step
  int generation_ = 0;
  // Outgrown in the middle of a step, whose earlier pieces are still in use.
  std::vector<Backend::Buffer> old_device_;
  std::vector<PinnedBuffer> old_pinned_;
};

}  // namespace headrace::cuda
