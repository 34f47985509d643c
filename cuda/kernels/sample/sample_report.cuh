#pragma once

// Log-probabilities, rank and best tokens of a sampled row.

#include "cuda/kernels/sample/sample_draw.cuh"

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

__device__ inline ReportScale report_scale(Places& places, float max, const SampleRowArgs& args) {
  ReportScale scale;
  scale.max = max;
  scale.logits = args.logprobs_mode == LogprobsMode::kRawLogits ||
                 args.logprobs_mode == LogprobsMode::kProcessedLogits;
  if (scale.logits) return scale;
  Amount total = places.total();
  if (args.logprobs_mode == LogprobsMode::kRawLogprobs && args.top_p_normalized_logprobs &&
      args.top_p < 1.0f) {
    const FoundPlace found = places.find(top_p_target(args.top_p, total));
    scale.last = found.code;
    total = found.reached;
  }
  scale.log_total = log(static_cast<double>(total) / static_cast<double>(kAmountUnit));
  return scale;
}

/// Writes the first `count` tokens in order, of which there are that many, to top.
__device__ inline void list_best(const Tokens& tokens, Places& places, const ReportScale& scale,
                                 uint32_t count, TokenLogprob* top, SampleShared* shared) {
  const OrderCode last = places.find({.number = count}).code;
  if (threadIdx.x == 0) shared->num_sorted = 0;
  __syncthreads();
  tokens.visit([&](OrderCode code, float) {
    if (code >= last) shared->sorted[atomicAdd(&shared->num_sorted, 1u)] = code;
  });
  __syncthreads();
  sort_codes<kSampleThreads>(shared->sorted, count);
  for (uint32_t i = threadIdx.x; i < count; i += kSampleThreads) {
    const OrderCode code = shared->sorted[i];
    top[i] = {token_of(code), scale.reported(value_of(code), token_of(code))};
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

/// The largest value; -inf if there is none above.
__device__ inline float largest_value(const RowReader& row, SampleShared* shared) {
  float largest = kNever;
  row.visit([&](float value, int32_t) { largest = greatest(largest, value); });
  return reduce_block(largest, Largest{}, shared);
}

/// Fills `logprob`, `rank` and `num_top` of the result, and the row's `top`. `max`: the row's
/// largest value.
__device__ inline void report(const RowReader& row, float max, const SampleRowArgs& args,
                              TokenLogprob* top, SampleShared* shared, SampleRowResult* result) {
  const auto count = static_cast<uint32_t>(least(args.num_logprobs, row.vocab_size));
  result->num_top = static_cast<int32_t>(count);
  ReportScale scale;
  uint32_t listed = 0;
  if (max > kNever) {
    const Tokens tokens(row, max, 0.0f, shared);
    Places places(tokens, shared);
    scale = report_scale(places, max, args);
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
    listed = least(count, reduce_block(all, Sum{}, shared));
    if (listed > 0) list_best(tokens, places, scale, listed, top, shared);
  } else {
    result->rank = 1;
    result->logprob = kNever;
  }
  if (listed < count) list_never(row, scale, count - listed, top + listed, shared);
}

}  // namespace headrace::cuda
