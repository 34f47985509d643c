#pragma once

// Checkpoints made for activations that are rounded row by row.

#include <filesystem>
#include <functional>

#include "cpp/model/checkpoint_files.h"

namespace headrace {

enum class RoundedTool {
  kFloat8Tensor,   ///< the method fp8, a scale for each matrix
  kFloat8Blocks,   ///< the method fp8, 128 x 128
  kFloat8Channel,  ///< compressed-tensors
  kInt8Channel,    ///< compressed-tensors
};

/// Writes `from`, a small checkpoint, to the folder `to`, its layers' matrices as codes. `change`
/// may spoil each tensor that is written.
void write_rounded(const std::filesystem::path& from, RoundedTool tool,
                   const std::filesystem::path& to,
                   const std::function<void(TensorToWrite&)>& change = {});

}  // namespace headrace
