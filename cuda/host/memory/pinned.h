#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "cuda/host/runtime/context.h"

namespace headrace::cuda {

/// Page-locked host memory, which the GPU copies without help. Move-only.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  /// Throws Error(kDevice).
  PinnedBuffer(CudaContext& context, size_t bytes) : context_(&context), bytes_(bytes) {
    context.finish_shared_work();
    context.check(context.api().malloc_pinned(&data_, bytes), "pinning host memory");
  }
  PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    PinnedBuffer(std::move(other)).swap(*this);
    return *this;
  }
  ~PinnedBuffer() {
    if (data_ != nullptr) static_cast<void>(context_->api().free_pinned(data_));
  }

  std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }
  size_t bytes() const noexcept { return bytes_; }

 private:
  void swap(PinnedBuffer& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  CudaContext* context_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

/// For `count` things of a cache on the host, of `each` bytes. Throws Error(kOutOfMemory) naming
/// the option, or kDevice of a lost GPU.
PinnedBuffer pin_for_swaps(CudaContext& context, int32_t count, size_t each);

/// A point on a stream to wait for. Move-only; an empty one is never waited for.
class EventHandle {
 public:
  EventHandle() = default;
  explicit EventHandle(CudaContext& context) : context_(&context) {
    context.check(context.api().create_event(&event_), "making an event");
  }
  EventHandle(EventHandle&& other) noexcept { swap(other); }
  EventHandle& operator=(EventHandle&& other) noexcept {
    EventHandle(std::move(other)).swap(*this);
    return *this;
  }
  ~EventHandle() {
    if (event_ != nullptr) static_cast<void>(context_->api().destroy_event(event_));
  }

  bool empty() const noexcept { return event_ == nullptr; }
  void record(Stream stream) {
    context_->check(context_->api().record(event_, stream), "recording an event");
    recorded_ = true;
  }
  /// The same where errors must not be thrown. For hold_up() alone.
  void try_record(Stream stream) noexcept {
    static_cast<void>(context_->api().record(event_, stream));
  }
  /// What `stream` gets from now on runs behind what was in front of the last record().
  void hold_up(Stream stream) {
    context_->check(context_->api().wait_event(stream, event_), "making a stream wait");
  }
  /// Returns when what was in front of the last record() is done; at once without one.
  void wait(const char* what = "waiting for a copy") {
    if (!recorded_) return;
    context_->check(context_->api().synchronize_event(event_), what);
    recorded_ = false;
  }

 private:
  void swap(EventHandle& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(event_, other.event_);
    std::swap(recorded_, other.recorded_);
  }

  CudaContext* context_ = nullptr;
  Event event_ = nullptr;
  bool recorded_ = false;
};

}  // namespace headrace::cuda
