#include "cuda/host/step/step_arena.h"

#include <algorithm>
#include <cstring>

#include "base/checked_math.h"

namespace headrace::cuda {

namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kGapBytes = 16 << 10;
constexpr size_t kFirstBytes = size_t{64} << 10;

}  // namespace

void StepArena::reserve(size_t bytes) {
  if (bytes > device_.bytes) grow(bytes);
}

void StepArena::begin() {
  if (device_.data == nullptr) grow(kFirstBytes);
  if (!old_device_.empty()) {
    context_.wait();
    old_device_.clear();
    old_pinned_.clear();
  }
  slot_ = (slot_ + 1) % kSlots;
  slots_[slot_].copied.wait();
  used_ = flushed_ = 0;
}

void StepArena::flush() {
  if (flushed_ == used_) return;
  Slot& slot = slots_[slot_];
  context_.check(context_.api().copy(static_cast<std::byte*>(device_.data) + flushed_,
                                     slot.memory.data() + flushed_, used_ - flushed_,
                                     CopyKind::kHostToDevice, context_.stream()),
                 "copying a step's inputs");
  slot.copied.record(context_.stream());
  flushed_ = used_;
}

std::byte* StepArena::put_bytes(const void* from, size_t bytes, size_t room) {
  const size_t rounded = round_up(std::max<size_t>(room, 1), kAlignment);
  if (rounded > device_.bytes - used_) grow(used_ + rounded);
  const size_t at = used_;
  if (bytes > 0) std::memcpy(slots_[slot_].memory.data() + at, from, bytes);
  used_ = at + bytes;
  // A gap worth a copy of its own is left out.
  if (rounded - bytes > kGapBytes) {
    flush();
    flushed_ = at + rounded;
  }
  used_ = at + rounded;
  return static_cast<std::byte*>(device_.data) + at;
}

// Pieces of this step stay where they are: what comes next begins behind their place in the new
// memory.
void StepArena::grow(size_t bytes) {
  const size_t capacity = std::max({kFirstBytes, 2 * device_.bytes, round_up(bytes, kAlignment)});
  if (device_.data != nullptr) flush();
  Backend::Buffer device = memory_.allocate(capacity);
  std::array<PinnedBuffer, kSlots> pinned;
  for (PinnedBuffer& memory : pinned) memory = PinnedBuffer(context_, capacity);
  if (device_.data != nullptr) old_device_.push_back(std::move(device_));
  device_ = std::move(device);
  for (size_t i = 0; i < kSlots; ++i) {
    old_pinned_.push_back(std::move(slots_[i].memory));
    slots_[i].memory = std::move(pinned[i]);
    if (slots_[i].copied.empty()) slots_[i].copied = EventHandle(context_);
  }
  ++generation_;
}

}  // namespace headrace::cuda
