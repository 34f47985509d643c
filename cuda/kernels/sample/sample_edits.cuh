#pragma once

// Steps 3, 4, 5 and 7 of sampling: changes of single logits, made in place and undone where values
// are to be read before them.

#include "cuda/device/numbers.cuh"
#include "cuda/kernels/sample/sample_slices.cuh"

namespace headrace::cuda {

/// Where in the pipeline the reported values are read, in its order.
enum class ReadPoint { kNowhere, kRaw, kPenalized, kProcessed };

__device__ inline ReadPoint read_point(const SampleRowArgs& row) {
  if (row.num_logprobs < 0) return ReadPoint::kNowhere;
  if (row.logprobs_mode == LogprobsMode::kRawLogprobs ||
      row.logprobs_mode == LogprobsMode::kRawLogits) {
    return ReadPoint::kRaw;
  }
  return row.logprobs_mode == LogprobsMode::kPenalizedLogprobs ? ReadPoint::kPenalized
                                                               : ReadPoint::kProcessed;
}

/// What the reported values are divided by.
__device__ inline float reported_divisor(const SampleRowArgs& row) {
  const bool scaled =
      read_point(row) == ReadPoint::kProcessed ||
      (row.logprobs_mode == LogprobsMode::kRawLogprobs && row.temperature_scaled_logprobs);
  return scaled && !row.greedy ? row.temperature : 1.0f;
}

/// Are there any edits? A forced token whose values are read before them needs none.
__device__ inline bool has_edits(const SampleRowArgs& row) {
  // No branches: the loads go together.
  const auto any = [](const SampleRange& range) { return range.end > range.begin ? 1 : 0; };
  const int lists = any(row.bias) | any(row.masked) | any(row.seen) | any(row.banned);
  return lists != 0 && (row.forced_token < 0 || read_point(row) > ReadPoint::kRaw);
}

/// Are the reported values those that the scan sees? Then its lists have the best of them, and its
/// sums are theirs.
__device__ inline bool reports_scanned(const SampleRowArgs& row) {
  const ReadPoint read = read_point(row);
  return read == ReadPoint::kProcessed || (read != ReadPoint::kNowhere && !has_edits(row));
}

/// Of a row's tokens [first, last).
class RowEdits {
 public:
  __device__ RowEdits(const SampleArgs& args, const SampleRowArgs& row, float* logits,
                      int32_t first, int32_t last)
      : args_(args), row_(row), logits_(logits), first_(first), last_(last) {}

  /// Called by the whole block, as is undo().
  __device__ void apply() const {
    edit(row_.bias, bias_token(), args_.saved,
         [&](float l, int32_t i) { return l + args_.bias[i].bias; });
    const auto never = [](float, int32_t) { return kNever; };
    edit(row_.masked, list_token(), token_saved(), never);
    edit(row_.seen, seen_token(), seen_saved(), [&](float l, int32_t i) {
      const int32_t count = args_.seen[i].output_count;
      const float presence = count > 0 ? row_.presence_penalty : 0.0f;
      const float r = row_.repetition_penalty;
      return (l < 0 ? l * r : l / r) -
             (static_cast<float>(count) * row_.frequency_penalty + presence);
    });
    edit(row_.banned, list_token(), token_saved(), never);
  }

  /// Undoes what comes behind a read point, the last change first.
  __device__ void undo(ReadPoint read) const {
    restore(row_.banned, list_token(), token_saved());
    if (read == ReadPoint::kPenalized) return;
    restore(row_.seen, seen_token(), seen_saved());
    restore(row_.masked, list_token(), token_saved());
    restore(row_.bias, bias_token(), args_.saved);
  }

 private:
  struct BiasToken {
    const LogitBias* list;
    __device__ int32_t operator()(int32_t i) const { return list[i].token; }
  };
  struct ListToken {
    const int32_t* list;
    __device__ int32_t operator()(int32_t i) const { return list[i]; }
  };
  struct SeenTokenOf {
    const SeenToken* list;
    __device__ int32_t operator()(int32_t i) const { return list[i].token; }
  };

  __device__ BiasToken bias_token() const { return {args_.bias}; }
  __device__ ListToken list_token() const { return {args_.tokens}; }
  __device__ SeenTokenOf seen_token() const { return {args_.seen}; }
  __device__ float* token_saved() const { return args_.saved + args_.num_bias; }
  __device__ float* seen_saved() const { return token_saved() + args_.num_tokens; }

  template <class Token, class F>
  __device__ void for_each(const SampleRange& range, const Token& token_at, const F& f) const {
    for (int32_t i = range.begin + static_cast<int32_t>(threadIdx.x); i < range.end;
         i += kSampleThreads) {
      const int32_t token = token_at(i);
      if (token >= first_ && token < last_) f(token, i);
    }
    __syncthreads();
  }

  template <class Token, class Change>
  __device__ void edit(const SampleRange& range, const Token& token_at, float* saved,
                       const Change& change) const {
    for_each(range, token_at, [&](int32_t token, int32_t i) {
      const float old = logits_[token];
      saved[i] = old;
      const float changed = change(is_nan(old) ? kNever : old, i);
      logits_[token] = is_nan(changed) ? kNever : changed;
    });
  }

  template <class Token>
  __device__ void restore(const SampleRange& range, const Token& token_at,
                          const float* saved) const {
    for_each(range, token_at, [&](int32_t token, int32_t i) { logits_[token] = saved[i]; });
  }

  const SampleArgs& args_;
  const SampleRowArgs& row_;
  float* logits_;
  int32_t first_, last_;
};

}  // namespace headrace::cuda
