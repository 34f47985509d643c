#pragma once

#include <cstdint>

#include "backend/contract/step_batch.h"

namespace headrace {

/// Rows [first_row, first_row + num_rows) of the step, behind which a slice's states are stored.
struct StateRun {
  int32_t first_row, num_rows;
  int32_t from, to;  ///< slots: of the states before and behind them. `from` may be kZeroState
};

/// Calls run(StateRun) for each part of a slice that ends where its states are stored, in order:
/// each goes on from what the one before has stored.
template <class Run>
void for_state_runs(const SeqSlice& seq, const Run& run) {
  int32_t row = 0, from = seq.state_in;
  for (const StateSave& save : seq.saves) {
    run(StateRun{seq.first_row + row, save.row + 1 - row, from, save.slot});
    row = save.row + 1;
    from = save.slot;
  }
  run(StateRun{seq.first_row + row, seq.num_rows - row, from, seq.state_out});
}

}  // namespace headrace
