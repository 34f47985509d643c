#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/checked_math.h"
#include "tensor/tensor_view.h"

namespace headrace::internal {

/// Rows of media in the backend's memory: what StepBatch::given points into.
struct MediaRows {
  std::vector<TensorView> tensors;  ///< [rows, hidden_size] act each
  std::shared_ptr<void> owner;
};

/// Bytes of one of them: aligned like buffers of a backend.
inline size_t tensor_bytes(int64_t rows, int64_t hidden_size, DType dtype) {
  return round_up(static_cast<size_t>(rows * hidden_size) * dtype_size(dtype), size_t{256});
}

}  // namespace headrace::internal
