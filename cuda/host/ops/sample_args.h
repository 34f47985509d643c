#pragma once

#include "cuda/kernels/sample/sample.h"

namespace headrace::cuda {

/// What the device needs of a row besides its lists and its mask.
inline SampleRowArgs sample_args_without_lists(const SampleRow& row) {
  return {.seed = row.seed,
          .position = row.position,
          .logits_row = row.logits_row,
          .forced_token = row.forced_token,
          .top_k = row.top_k,
          .temperature = row.temperature,
          .top_p = row.top_p,
          .min_p = row.min_p,
          .repetition_penalty = row.repetition_penalty,
          .frequency_penalty = row.frequency_penalty,
          .presence_penalty = row.presence_penalty,
          .num_logprobs = row.num_logprobs,
          .logprobs_mode = row.logprobs_mode,
          .greedy = row.greedy,
          .temperature_scaled_logprobs = row.temperature_scaled_logprobs,
          .top_p_normalized_logprobs = row.top_p_normalized_logprobs};
}

}  // namespace headrace::cuda
