#include "engine/loop/reserve_steps.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/checked_math.h"

namespace headrace::internal {

namespace {

/// A step of `total` rows, of sequences of up to `most` rows each that end at the longest context.
void reserve_step(StepRunner& runner, const SchedulerConfig& config, int32_t total, int32_t most) {
  const int32_t length = config.max_model_len;
  const auto count = static_cast<size_t>(total);
  const std::vector<int32_t> tokens(count, 0), rope_lens(count, length);
  const std::vector<int32_t> blocks(static_cast<size_t>(ceil_div(length, config.block_size)), 0);
  std::vector<int32_t> positions;
  std::vector<SeqSlice> slices;
  for (int32_t row = 0; row < total; row += most) {
    const int32_t rows = std::min(most, total - row);
    slices.push_back({row, rows, length - rows, blocks});
    if (config.num_state_slots > 0) slices.back().state_out = row / most;
    for (int32_t i = 0; i < rows; ++i) positions.push_back(length - rows + i);
  }
  std::vector<int32_t> wanted(std::min(count, static_cast<size_t>(runner.max_logit_rows())));
  std::iota(wanted.begin(), wanted.end(), 0);
  runner.reserve({tokens, positions, rope_lens, slices, wanted});
}

}  // namespace

void reserve_steps(StepRunner& runner, const SchedulerConfig& config) {
  const int64_t most_tokens = int64_t{config.max_num_seqs} * config.max_model_len;
  const auto total =
      static_cast<int32_t>(std::min<int64_t>(config.max_num_batched_tokens, most_tokens));
  reserve_step(runner, config, total, std::min(total, config.max_model_len));
  reserve_step(runner, config, config.max_num_seqs, 1);
  // Steps whose logits are read at once may be padded.
  reserve_step(runner, config, std::min(config.max_num_seqs, runner.max_logit_rows()), 1);
  reserve_step(runner, config, 1, 1);
}

}  // namespace headrace::internal
