#pragma once

// What an MTP block is asked to compute (model/decoder/mtp_block.h).

#include <cstdint>
#include <span>

#include "backend/contract/step_batch.h"

namespace headrace {

/// The source of the hidden rows h that an MTP block reads.
enum class MtpInput : uint8_t {
  kStep,   ///< the model's last step
  kKept,   ///< kept rows
  kGuess,  ///< the block's own last result: the next guess after a guess
};

/// Rows for an MTP block. Let row i of the batch be at position p. Then row `rows[i]` of the input
/// is h of position p, the batch's token is the one at position p + 1, and the logits are for the
/// token at p + 2.
struct MtpStep {
  StepBatch batch;  ///< without adapters, given rows and room
  MtpInput input = MtpInput::kStep;
  std::span<const int32_t> rows;  ///< [T]
};

}  // namespace headrace
