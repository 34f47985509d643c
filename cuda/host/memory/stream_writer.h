#pragma once

// Host to device in the order of the stream: what ops are given outside of steps, rows of images
// above all. Nobody waits for the GPU, unless all of the pinned memory is still on its way.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/host/memory/pinned.h"
#include "tensor/tensor_view.h"

namespace headrace::cuda {

/// Used by the backend's thread. Takes pinned memory when it is first used.
class StreamWriter {
 public:
  explicit StreamWriter(CudaContext& context) : context_(context) {}

  /// Values as `to` has them: float32, bfloat16 or float16. `values` may be reused then.
  void write_rows(std::span<const float> values, const TensorView& to);
  /// Bytes as they are.
  void write(const void* source, size_t bytes, void* device);

  static constexpr size_t kPieceBytes = size_t{1} << 20;

 private:
  struct Piece {
    PinnedBuffer memory;
    EventHandle copied;
  };
  /// Pinned memory for up to kPieceBytes, which no copy reads. What was given before is in copies
  /// that are queued.
  std::byte* take(size_t bytes);

  CudaContext& context_;
  std::array<Piece, 16> pieces_;
  size_t current_ = 0;
  size_t used_ = kPieceBytes;  // of the current piece
};

}  // namespace headrace::cuda
