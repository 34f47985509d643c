#pragma once

// A step's slices as the host lists them for StateStep.

#include <cstddef>
#include <span>
#include <vector>

#include "backend/contract/step_batch.h"
#include "cuda/kernels/states/state_step.h"

namespace headrace::cuda {

/// Kept from step to step, so that their memory is.
struct StateLists {
  std::vector<StateSlice> slices;
  std::vector<StateSave> stores;
  std::vector<StatePiece> pieces;

  /// Then there are at least `least` slices, and as many pieces: those behind the batch's have no
  /// rows.
  void fill(std::span<const SeqSlice> seqs, size_t least = 0) {
    slices.clear();
    stores.clear();
    pieces.clear();
    for (const SeqSlice& seq : seqs) {
      const auto index = static_cast<int32_t>(slices.size());
      slices.push_back({seq.first_row, seq.num_rows, seq.state_in,
                        static_cast<int32_t>(stores.size()),
                        static_cast<int32_t>(seq.saves.size()) + 1});
      stores.insert(stores.end(), seq.saves.begin(), seq.saves.end());
      stores.push_back({seq.num_rows - 1, seq.state_out});
      for (int32_t row = 0; row < seq.num_rows; row += kPieceRows) pieces.push_back({index, row});
    }
    while (slices.size() < least) {
      pieces.push_back({static_cast<int32_t>(slices.size()), 0});
      slices.push_back({});
    }
  }
};

}  // namespace headrace::cuda
