#pragma once

// One row of logits as a block of threads sees it: passes over its tokens, and the few thousand
// best of them, from which most questions are answered.

#include "cuda/device/reduce.cuh"
#include "cuda/device/select.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/sample.h"

namespace headrace::cuda {

inline constexpr int kSampleThreads = 512;
inline constexpr int kMaxCandidates = 4096;
inline constexpr float kNever = -INFINITY;
/// Candidates' distance from the best token: weights from 3e-4.
inline constexpr float kReach = 8.0f;
/// A weight of 1 as an Amount; 2^19 of them fit.
inline constexpr float kAmountUnit = 0x1p44f;
inline constexpr int32_t kMaxVocabulary = 1 << 19;

struct SampleShared {
  OrderCode candidates[kMaxCandidates];
  SelectScratch select;
  uint64_t reduce[kSampleThreads / kWarp];
  uint32_t num_candidates;
  OrderCode best[kMaxDeviceLogprobs];
  uint32_t num_best;
};

/// Logits after the edits of the pipeline that have been made in memory, and the divisor.
struct RowReader {
  const float* logits;
  const uint32_t* allowed;
  int32_t vocab_size;
  float divisor;

  __device__ float value(float logit, int32_t token) const {
    if (allowed != nullptr && (allowed[token / 32] >> (token % 32) & 1u) == 0) return kNever;
    if (is_nan(logit)) return kNever;
    return divisor == 1.0f ? logit : logit / divisor;
  }
  __device__ float operator[](int32_t token) const { return value(logits[token], token); }

  /// f(value, token) for this thread's tokens above -inf.
  template <class F>
  __device__ void visit(const F& f) const {
    const int thread = static_cast<int>(threadIdx.x);
    const auto take = [&](float logit, int32_t token) {
      const float v = value(logit, token);
      if (v > kNever) f(v, token);
    };
    const bool aligned = (reinterpret_cast<uintptr_t>(logits) & 15u) == 0;
    const int32_t quads = aligned ? vocab_size / 4 : 0;
    constexpr int kLoads = 4;
    for (int32_t first = 0; first < quads; first += kLoads * kSampleThreads) {
      float4 loaded[kLoads];
      HEADRACE_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        const int32_t quad = first + i * kSampleThreads + thread;
        loaded[i] = quad < quads ? reinterpret_cast<const float4*>(logits)[quad]
                                 : float4{kNever, kNever, kNever, kNever};
      }
      HEADRACE_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        const int32_t quad = first + i * kSampleThreads + thread;
        if (quad >= quads) continue;
        take(loaded[i].x, 4 * quad);
        take(loaded[i].y, 4 * quad + 1);
        take(loaded[i].z, 4 * quad + 2);
        take(loaded[i].w, 4 * quad + 3);
      }
    }
    for (int32_t t = 4 * quads + thread; t < vocab_size; t += kSampleThreads) take(logits[t], t);
  }
};

template <class T, class Combine>
__device__ T reduce_block(T value, const Combine& combine, SampleShared* shared) {
  static_assert(sizeof(T) <= sizeof(shared->reduce[0]));
  return block_reduce(value, combine, reinterpret_cast<T*>(shared->reduce));
}

/// The first token in order; 0 if all are at -inf.
__device__ inline OrderCode best_token(const RowReader& row, SampleShared* shared) {
  OrderCode best = 0;
  row.visit([&](float value, int32_t token) { best = greatest(best, order_code(value, token)); });
  return reduce_block(best, Largest{}, shared);
}

/// exp(value - max).
__device__ inline float token_weight(float value, float max) {
  return value == max ? 1.0f : expf(value - max);
}

__device__ inline Amount amount_of(float weight) {
  return static_cast<Amount>(weight * kAmountUnit);
}

/// Tokens of a row that are at least min_p of the best: their number, their weights' sum, and, if
/// the candidates are enough for what is asked, those alone.
class Survey {
 public:
  __device__ Survey(const RowReader& row, float max, float min_p, SampleShared* shared)
      : row_(row), max_(max), min_p_(min_p), shared_(shared) {
    if (threadIdx.x == 0) shared->num_candidates = 0;
    __syncthreads();
    const float threshold = max - kReach;
    Amount total = 0;
    uint32_t count = 0;
    row.visit([&](float value, int32_t token) {
      const float weight = token_weight(value, max);
      if (weight < min_p) return;
      total += amount_of(weight);
      ++count;
      if (!(value > threshold) && value != max) return;
      const uint32_t place = atomicAdd(&shared->num_candidates, 1u);
      if (place < kMaxCandidates) shared->candidates[place] = order_code(value, token);
    });
    total_ = reduce_block(total, Sum{}, shared);
    count_ = reduce_block(count, Sum{}, shared);
    found_ = shared->num_candidates;
    Amount reached = 0;
    if (found_ <= kMaxCandidates) {
      for (uint32_t i = threadIdx.x; i < found_; i += kSampleThreads) {
        reached += amount_of(token_weight(value_of(shared->candidates[i]), max));
      }
    }
    reached_ = reduce_block(reached, Sum{}, shared);
  }

  __device__ Amount total() const { return total_; }
  __device__ uint32_t count() const { return count_; }

  /// From now on only the candidates are visited, if they are the first `tokens` in order and sum
  /// up to more than `amount`.
  __device__ void narrow(uint32_t tokens, Amount amount) {
    narrow_ =
        found_ <= kMaxCandidates && (found_ == count_ || (found_ >= tokens && reached_ > amount));
  }

  /// f(code, weight) for this thread's share of the tokens.
  template <class F>
  __device__ void visit(const F& f) const {
    if (narrow_) {
      for (uint32_t i = threadIdx.x; i < found_; i += kSampleThreads) {
        const OrderCode code = shared_->candidates[i];
        f(code, token_weight(value_of(code), max_));
      }
      return;
    }
    row_.visit([&](float value, int32_t token) {
      const float weight = token_weight(value, max_);
      if (weight >= min_p_) f(order_code(value, token), weight);
    });
  }

  /// See find_place; of the tokens up to `last`. By weight, or by number.
  __device__ FoundPlace find(OrderCode last, Amount target, bool beyond, bool by_weight) const {
    return find_place(
        [&](const auto& f) {
          visit([&](OrderCode code, float weight) {
            if (code >= last) f(code, by_weight ? amount_of(weight) : 1);
          });
        },
        target, beyond, &shared_->select);
  }

  /// Of the tokens up to `last`.
  __device__ Amount sum(OrderCode last) const {
    Amount sum = 0;
    visit([&](OrderCode code, float weight) {
      if (code >= last) sum += amount_of(weight);
    });
    return reduce_block(sum, Sum{}, shared_);
  }

 private:
  const RowReader& row_;
  float max_, min_p_;
  SampleShared* shared_;
  Amount total_, reached_;
  uint32_t count_, found_;
  bool narrow_ = false;
};

}  // namespace headrace::cuda
