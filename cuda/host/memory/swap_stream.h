#pragma once

// KV blocks and state slots on their way to host memory and back, beside the kernels.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/contract/block_copy.h"
#include "cuda/host/memory/pinned.h"
#include "cuda/host/runtime/context.h"

namespace headrace::cuda {

/// Copies run behind the last step that uses one of their blocks or slots, beside later ones, and
/// in front of what is queued on the context's stream next. Used by the backend's thread; what it
/// throws is Error(kDevice).
class SwapStream {
 public:
  explicit SwapStream(CudaContext& context);
  /// Waits for the copies.
  ~SwapStream();
  SwapStream(const SwapStream&) = delete;
  SwapStream& operator=(const SwapStream&) = delete;

  /// What is queued on the context's stream from now on belongs to the next step.
  void begin_step();
  /// The step uses the block, or the slot.
  void note_use(int32_t index, bool is_state = false);
  /// Where to put these copies.
  Stream begin_copies(std::span<const BlockCopy> copies);
  /// The next step waits for them.
  void end_copies();

 private:
  static constexpr uint64_t kEvents = 4;  // of the latest steps

  EventHandle& end_of(uint64_t step) { return ends_[step % kEvents]; }

  CudaContext& context_;
  Stream stream_ = nullptr;
  std::array<EventHandle, kEvents> ends_;
  EventHandle copied_;
  uint64_t step_ = 0;                              // under way; 0: none has begun
  std::array<std::vector<uint64_t>, 2> last_use_;  // by block, and by slot; 0: never
};

}  // namespace headrace::cuda
