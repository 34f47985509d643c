#pragma once

// What kernels of layers with a state know of a step, and where a layer's states lie: float32
// numbers of a slot, [window][channels] and [heads][value_dim][key_dim]. So a column of a matrix is
// a row here.

#include <cstdint>

#include "backend/contract/state_save.h"

namespace headrace::cuda {

/// A slice of the step. Without rows it is padding of a recorded step: nothing is done for it.
struct StateSlice {
  int32_t first_row = 0;
  int32_t num_rows = 0;
  int32_t state_in = kZeroState;
  int32_t first_store = 0;  ///< of StateStep::stores: one or more, if it has rows
  int32_t num_stores = 0;
};

/// Rows [row, row + kPieceRows) of a slice, as far as it has them.
struct StatePiece {
  int32_t slice = 0;
  int32_t row = 0;
};

inline constexpr int32_t kPieceRows = 32;

/// In device memory.
struct StateStep {
  const StateSlice* slices = nullptr;
  const StateSave* stores = nullptr;   ///< of each slice its saves, then state_out behind its end
  const StatePiece* pieces = nullptr;  ///< of all slices
  int32_t num_slices = 0;
  int32_t num_pieces = 0;
};

/// A layer's windows, or its matrices.
struct StateArray {
  float* data = nullptr;  ///< of slot 0; aligned to 256 bytes
  int64_t stride = 0;     ///< numbers between slots: a multiple of 64

  constexpr float* slot(int32_t index) const { return data + index * stride; }
};

}  // namespace headrace::cuda
