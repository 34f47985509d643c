#pragma once

// Log-probabilities, rank and best tokens of a sampled row.

#include "cuda/kernels/sample_row.cuh"

namespace headrace::cuda {

/// What a token's logit is reported as.
struct ReportScale {
  bool logits = false;  ///< as they are
  float max = 0.0f;
  double log_total = 0.0;
  OrderCode last = 0;  ///< of the top_p set; tokens behind it are at -inf

  __device__ bool has(float value, int32_t token) const {
    return value > kNever && order_code(value, token) >= last;
  }
  __device__ float reported(float value, int32_t token) const {
    if (!has(value, token)) return kNever;
    if (logits) return value;
    const double distance =
        value == max ? 0.0 : static_cast<double>(value) - static_cast<double>(max);
    return static_cast<float>(distance - log_total);
  }
};

__device__ inline ReportScale report_scale(Survey& survey, float max, const SampleRowArgs& args) {
  ReportScale scale;
  scale.max = max;
  scale.logits = args.logprobs_mode == LogprobsMode::kRawLogits ||
                 args.logprobs_mode == LogprobsMode::kProcessedLogits;
  if (scale.logits) return scale;
  Amount total = survey.total();
  if (args.logprobs_mode == LogprobsMode::kRawLogprobs && args.top_p_normalized_logprobs &&
      args.top_p < 1.0f) {
    const double target = ceil(static_cast<double>(args.top_p) * static_cast<double>(total));
    survey.narrow(1, static_cast<Amount>(target));
    const FoundPlace found = survey.find(0, static_cast<Amount>(target), false, true);
    scale.last = found.code;
    total = found.reached;
  }
  scale.log_total = log(static_cast<double>(total) / static_cast<double>(kAmountUnit));
  return scale;
}

/// Writes the first `count` tokens in order, of which there are that many, to top.
__device__ inline void list_best(Survey& survey, const ReportScale& scale, uint32_t count,
                                 TokenLogprob* top, SampleShared* shared) {
  survey.narrow(count, 0);
  const OrderCode last = survey.find(scale.last, count, false, false).code;
  if (threadIdx.x == 0) shared->num_best = 0;
  __syncthreads();
  survey.visit([&](OrderCode code, float) {
    if (code >= last) shared->best[atomicAdd(&shared->num_best, 1u)] = code;
  });
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < count; i += kSampleThreads) {
    const OrderCode code = shared->best[i];
    uint32_t place = 0;
    for (uint32_t j = 0; j < count; ++j) place += shared->best[j] > code ? 1u : 0u;
    top[place] = {token_of(code), scale.reported(value_of(code), token_of(code))};
  }
  __syncthreads();
}

/// Writes the first `count` tokens at -inf by id, of which there are that many, to top.
__device__ inline void list_never(const RowReader& row, const ReportScale& scale, uint32_t count,
                                  TokenLogprob* top, SampleShared* shared) {
  uint32_t listed = 0;
  for (int32_t first = 0; listed < count; first += kSampleThreads) {
    const int32_t token = first + static_cast<int32_t>(threadIdx.x);
    const bool never = token < row.vocab_size && !scale.has(row[token], token);
    const uint32_t votes = __ballot_sync(kAllLanes, never);
    auto* counts = reinterpret_cast<uint32_t*>(shared->reduce);
    if (lane_id() == 0) counts[warp_id()] = static_cast<uint32_t>(__popc(votes));
    __syncthreads();
    uint32_t place = listed + static_cast<uint32_t>(__popc(votes & ((1u << lane_id()) - 1)));
    for (int w = 0; w < kSampleThreads / kWarp; ++w) {
      if (w < warp_id()) place += counts[w];
      listed += counts[w];
    }
    if (never && place < count) top[place] = {token, kNever};
    __syncthreads();
  }
}

/// Fills everything but `token` of the result, and the row's `top`.
__device__ inline void report(const RowReader& row, const SampleRowArgs& args, TokenLogprob* top,
                              SampleShared* shared, SampleRowResult* result) {
  const OrderCode best = best_token(row, shared);
  const float max = best == 0 ? kNever : value_of(best);
  Survey survey(row, max, 0.0f, shared);
  ReportScale scale;
  if (best != 0) scale = report_scale(survey, max, args);

  const float value = row[result->token];
  const bool inside = scale.has(value, result->token);
  uint32_t greater = 0, all = 0;
  row.visit([&](float other, int32_t token) {
    if (!scale.has(other, token)) return;
    ++all;
    if (!inside || other > value) ++greater;
  });
  result->rank = 1 + static_cast<int32_t>(reduce_block(greater, Sum{}, shared));
  result->logprob = scale.reported(value, result->token);
  all = reduce_block(all, Sum{}, shared);

  const auto count = static_cast<uint32_t>(least(args.num_logprobs, row.vocab_size));
  const uint32_t listed = least(count, all);
  result->num_top = static_cast<int32_t>(count);
  if (listed > 0) list_best(survey, scale, listed, top, shared);
  if (listed < count) list_never(row, scale, count - listed, top + listed, shared);
}

}  // namespace headrace::cuda
