#include "engine/loop/warm_up.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <span>
#include <vector>

#include "base/checked_math.h"
#include "engine/loop/reserve_steps.h"

namespace headrace::internal {

namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Computes a step and draws from all of its logits, and waits for that.
void run_step(StepRunner& runner, StepBatch batch) {
  std::vector<SampleRow> rows(batch.logit_rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].logits_row = static_cast<int32_t>(i);
    rows[i].greedy = true;
  }
  std::vector<SampleResult> results(rows.size());
  batch.draws = rows;
  const TensorView logits = runner.forward(batch, {});
  if (runner.runs_ahead()) {
    runner.begin_sample(logits, rows);
    runner.end_sample(results);
  } else {
    runner.sample(logits, rows, results);
  }
}

/// Decode steps of up to kMostRows sequences with up to kMostBlocks blocks are recorded before the
/// first request needs them: twice each, for a backend records a kind of step the second time. The
/// first kind always, others until kLongest is over.
void record_small_steps(StepRunner& runner, const SchedulerConfig& config) {
  constexpr int32_t kMostRows = 8, kMostBlocks = 16;
  constexpr double kLongest = 0.4;  // seconds
  const double begin = seconds_now();
  const int32_t most_rows =
      std::min({kMostRows, config.max_num_seqs, runner.recorded_rows(), runner.max_logit_rows()});
  const int32_t most_blocks =
      std::min({kMostBlocks, config.num_blocks, ceil_div(config.max_model_len, config.block_size)});
  const std::vector<int32_t> zeros(kMostRows, 0);
  std::vector<int32_t> ordinals(kMostBlocks);
  std::iota(ordinals.begin(), ordinals.end(), 0);
  for (int32_t rows = 1; rows <= most_rows; rows *= 2) {
    const auto count = static_cast<size_t>(rows);
    for (int32_t blocks = 1; blocks <= most_blocks; blocks *= 2) {
      const int32_t length = std::min(blocks * config.block_size, config.max_model_len);
      const std::vector<int32_t> positions(count, length - 1), lengths(count, length);
      std::vector<SeqSlice> slices;
      for (int32_t row = 0; row < rows; ++row) {
        SeqSlice& slice = slices.emplace_back();
        slice = {row, 1, length - 1, std::span(ordinals).first(size_t(blocks))};
        if (config.num_state_slots > 0) slice.state_in = slice.state_out = row;
      }
      for (int time = 0; time < 2; ++time) {
        run_step(runner, {std::span(zeros).first(count), positions, lengths, slices,
                          std::span(ordinals).first(count)});
      }
      if (seconds_now() - begin > kLongest) return;
    }
  }
}

}  // namespace

void warm_up(StepRunner& runner, const SchedulerConfig& config, bool guesses) {
  reserve_steps(runner, config);
  const std::array<int32_t, 1> zero = {0}, one = {1};
  std::array<SeqSlice, 1> slices = {SeqSlice{0, 1, 0, zero}};
  if (config.num_state_slots > 0) slices[0].state_out = 0;
  run_step(runner, {zero, zero, one, slices, zero});
  if (!guesses) record_small_steps(runner, config);
}

}  // namespace headrace::internal
