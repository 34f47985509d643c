#pragma once

// Log-probabilities, rank and best tokens of a sampled row.

#include "cuda/kernels/sample/sample_draw.cuh"
#include "cuda/kernels/sample/sample_edits.cuh"

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

__device__ inline int32_t rank_of(const RowReader& row, const ReportScale& scale, int32_t token,
                                  uint32_t* num_all, SampleShared* shared) {
  const float value = row[token];
  const bool inside = scale.has(value, token);
  uint32_t greater = 0, all = 0;
  row.visit([&](float other, int32_t t) {
    if (!scale.has(other, t)) return;
    ++all;
    if (!inside || other > value) ++greater;
  });
  *num_all = reduce_block(all, Sum{}, shared);
  return 1 + static_cast<int32_t>(reduce_block(greater, Sum{}, shared));
}

/// report() from what the scan has left, without a look at most tokens. False if that isn't enough:
/// then the results are as before.
__device__ inline bool report_listed(const RowReader& row, const RowFound& found,
                                     const SliceFound* slices, int32_t num_slices,
                                     const OrderCode* lists, const SampleRowArgs& args,
                                     TokenLogprob* top, SampleShared* shared,
                                     SampleRowResult* result) {
  const auto count = static_cast<uint32_t>(least(args.num_logprobs, row.vocab_size));
  const bool cut = args.logprobs_mode == LogprobsMode::kRawLogprobs &&
                   args.top_p_normalized_logprobs && args.top_p < 1.0f;
  if (!reports_scanned(args) || cut || found.best == 0 || count > kSureTokens) return false;
  ReportScale scale{.logits = args.logprobs_mode == LogprobsMode::kRawLogits ||
                              args.logprobs_mode == LogprobsMode::kProcessedLogits};
  scale.max = row.divided(value_of(found.best));
  Tokens tokens(row, scale.max, 0.0f, shared);
  tokens.collect(found, slices, num_slices, lists);
  const float value = row[result->token];
  const OrderCode own = value > kNever ? order_code(value, result->token) : 0;
  uint32_t greater = 0;
  bool listed = false;
  for (uint32_t i = threadIdx.x; i < tokens.listed(); i += kSampleThreads) {
    greater += value_of(shared->candidates[i]) > value ? 1u : 0u;
    listed = listed || shared->candidates[i] == own;
  }
  greater = reduce_block(greater, Sum{}, shared);
  listed = reduce_block(listed ? 1u : 0u, Largest{}, shared) != 0;
  if (tokens.listed() < greatest(count, 1u)) return false;
  if (sort_first(tokens.listed(), shared) < count) return false;
  if (!scale.logits) {
    const Amount total =
        scanned_total(slices, num_slices, &SliceFound::reported, row, scale.max, shared);
    scale.log_total = log(static_cast<double>(total) / static_cast<double>(kAmountUnit));
  }
  for (uint32_t i = threadIdx.x; i < count; i += kSampleThreads) {
    const OrderCode code = shared->sorted[i];
    top[i] = {token_of(code), scale.reported(value_of(code), token_of(code))};
  }
  uint32_t all = 0;
  result->num_top = static_cast<int32_t>(count);
  result->rank =
      listed ? 1 + static_cast<int32_t>(greater) : rank_of(row, scale, result->token, &all, shared);
  result->logprob = scale.reported(value, result->token);
  return true;
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
    uint32_t all = 0;
    result->rank = rank_of(row, scale, result->token, &all, shared);
    result->logprob = scale.reported(row[result->token], result->token);
    listed = least(count, all);
    if (listed > 0) list_best(tokens, places, scale, listed, top, shared);
  } else {
    result->rank = 1;
    result->logprob = kNever;
  }
  if (listed < count) list_never(row, scale, count - listed, top + listed, shared);
}

/// What is left to do for row `r` once its token is known. Called by the block.
__device__ HEADRACE_NO_INLINE void finish_row(const SampleWork& args, int32_t r,
                                              const RowFound& found, int32_t token,
                                              SampleShared* shared) {
  const SampleRowArgs row = args.rows[r];
  float* const logits = args.logits + row.logits_row * args.stride;
  SampleRowResult result{.token = token, .finite = found.finite};
  const ReadPoint read = read_point(row);
  if (read != ReadPoint::kNowhere) {
    const SliceTable& table = args.table;
    const int64_t first_slice = int64_t{r} * table.slices;
    const RowReader reported{logits, row.allowed, args.vocab_size, reported_divisor(row)};
    TokenLogprob* const top = args.top + int64_t{r} * args.max_logprobs;
    if (!report_listed(reported, found, table.found + first_slice, table.slices,
                       table.lists + first_slice * kSliceList, row, top, shared, &result)) {
      float max = found.best == 0 ? kNever : reported.divided(value_of(found.best));
      if (read != ReadPoint::kProcessed && has_edits(row)) {
        RowEdits(args, row, logits, 0, args.vocab_size).undo(read);
        max = largest_value(reported, shared);
      }
      report(reported, max, row, top, shared, &result);
    }
  }
  if (threadIdx.x == 0) {
    SampleRowResult* const results = args.results_at != nullptr ? *args.results_at : args.results;
    results[r] = result;
    if (args.drawn != nullptr) args.drawn[r] = result.token;
  }
}

}  // namespace headrace::cuda
