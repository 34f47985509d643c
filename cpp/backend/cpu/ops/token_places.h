#pragma once

#include <cstdint>
#include <span>

#include "backend/contract/step_batch.h"

namespace headrace {

/// Where a row's keys and values go.
struct TokenPlace {
  int32_t block;
  int32_t slot;
};

/// Of each row of the step, in the group's blocks.
inline void find_places(const StepBatch& step, int32_t group, int32_t block_size,
                        TokenPlace* places) {
  for (const SeqSlice& seq : step.seqs) {
    const std::span<const int32_t> table = seq.blocks[group];
    for (int32_t i = 0; i < seq.num_rows; ++i) {
      const int32_t position = seq.start_pos + i;
      places[seq.first_row + i] = {table[static_cast<size_t>(position / block_size)],
                                   position % block_size};
    }
  }
}

}  // namespace headrace
