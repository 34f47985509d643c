#include "engine/loop/warm_up.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <vector>

#include "engine/loop/reserve_steps.h"

namespace headrace::internal {

namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Learns what rows cost before the first guess is made.
void calibrate(StepRunner& runner, const SchedulerConfig& config, Speculator& speculator) {
  constexpr int32_t kMostRows = 32;
  constexpr int kTries = 2;
  const int64_t positions = int64_t{config.num_blocks} * config.block_size;
  const auto most = static_cast<int32_t>(
      std::min<int64_t>(positions, std::min({kMostRows, config.max_num_batched_tokens,
                                             config.max_model_len, runner.max_logit_rows()})));
  std::vector<int32_t> zeros, ordinals, blocks;
  for (int32_t i = 0; i < most; ++i) {
    zeros.push_back(0);
    ordinals.push_back(i);
    if (i % config.block_size == 0) blocks.push_back(i / config.block_size);
  }
  const std::vector<int32_t> rope_lens(static_cast<size_t>(most), most);
  for (int32_t rows = 1; rows <= most; rows *= 2) {
    const auto count = static_cast<size_t>(rows);
    const std::array<SeqSlice, 1> slices = {SeqSlice{0, rows, 0, blocks}};
    double best = 0;
    for (int tried = 0; tried < kTries; ++tried) {
      const double start = seconds_now();
      runner.forward({std::span(zeros).first(count), std::span(ordinals).first(count),
                      std::span(rope_lens).first(count), slices, std::span(ordinals).first(count)},
                     {});
      const double seconds = seconds_now() - start;
      best = tried == 0 ? seconds : std::min(best, seconds);
    }
    speculator.note_step(rows, 0, true, best);
  }
}

}  // namespace

void warm_up(StepRunner& runner, const SchedulerConfig& config, Speculator* speculator) {
  reserve_steps(runner, config);
  const std::array<int32_t, 1> zero = {0}, one = {1};
  const std::array<SeqSlice, 1> slices = {SeqSlice{0, 1, 0, zero}};
  const TensorView logits = runner.forward({zero, zero, one, slices, zero}, {});
  std::array<SampleRow, 1> rows;
  rows[0].greedy = true;
  std::array<SampleResult, 1> results;
  if (runner.runs_ahead()) {
    runner.begin_sample(logits, rows);
    runner.end_sample(results);
  } else {
    runner.sample(logits, rows, results);
  }
  if (speculator != nullptr) calibrate(runner, config, *speculator);
}

}  // namespace headrace::internal
