#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/contract/step_batch.h"

namespace headrace {

/// Steps of some rows of a step, at their positions, over what its sequences have in the cache.
class RowSteps {
 public:
  /// Of up to so many rows, unless they are all.
  explicit RowSteps(int32_t max_rows);
  /// The step, whose lists outlive all choices of its rows.
  void begin(const StepBatch& step) { step_ = step; }
  /// The step of those rows, which ascend; of all of them the step itself. Valid until the next
  /// call. Its token ids mean nothing. REQUIRES: the cache's layout has no states.
  StepBatch choose(std::span<const int32_t> rows);

 private:
  StepBatch step_;
  std::vector<int32_t> token_ids_, positions_, rope_lens_, rope_positions_;
  std::vector<SeqSlice> seqs_;
};

}  // namespace headrace
