#pragma once

// What an MTP block is asked to compute (model/decoder/mtp_block.h).

#include <cstdint>
#include <span>

#include "backend/contract/step_batch.h"

namespace headrace {

/// Where the hidden rows h that an MTP block reads come from.
enum class MtpInput : uint8_t {
  kStep,   ///< the model's last step
  kKept,   ///< rows that were kept
  kGuess,  ///< the block's own last result: a guess behind a guess
};

/// Rows for an MTP block. Row i of the batch is at position p: h of that position is row `rows[i]`
/// of the input, and its token is the one at position p + 1. Its logits are of p + 2's.
struct MtpStep {
  StepBatch batch;  ///< without adapters, given rows and room
  MtpInput input = MtpInput::kStep;
  std::span<const int32_t> rows;  ///< [T]
};

}  // namespace headrace
