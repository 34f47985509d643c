#pragma once

// One row of logits as the block that draws sees it: passes over all of its tokens, or over the few
// thousand best of them, which the scan of its slices has listed.

#include "cuda/device/numbers.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/kernels/sample/sample_slices.cuh"

namespace headrace::cuda {

inline constexpr uint32_t kMaxCandidates = 4096;
/// Tokens that are put in order at once.
inline constexpr uint32_t kMaxSorted = 1024;
static_assert(kMaxDeviceLogprobs <= kMaxSorted);

struct SampleShared {
  OrderCode candidates[kMaxCandidates];
  OrderCode sorted[kMaxSorted];
  uint32_t bin_low[kBins], bin_high[kBins], bin_counts[kBins];  // 64-bit amounts, and tokens
  uint64_t reduce[kSampleThreads / kWarp];
  Amount scan_amounts[kSampleThreads / kWarp];
  uint32_t scan_counts[kSampleThreads / kWarp];
  uint32_t num_candidates, num_sorted;
  uint32_t first_item, last_item;
  Amount amount_before, amount_there;
  uint32_t count_before, count_there;
};

/// Logits after the edits of the pipeline that have been made in memory, and the divisor.
struct RowReader {
  const float* logits;
  const uint32_t* allowed;
  int32_t vocab_size;
  float divisor;

  __device__ float divided(float logit) const { return divisor == 1.0f ? logit : logit / divisor; }
  __device__ float value(float logit, int32_t token) const {
    if (allowed != nullptr && (allowed[token / 32] >> (token % 32) & 1u) == 0) return kNever;
    return is_nan(logit) ? kNever : divided(logit);
  }
  __device__ float operator[](int32_t token) const { return value(logits[token], token); }

  /// f(value, token) for this thread's tokens above -inf.
  template <class F>
  __device__ void visit(const F& f) const {
    visit(kNever, INFINITY, f);
  }
  /// Of those whose logits lie in [low, high]; others cost little.
  template <class F>
  __device__ void visit(float low, float high, const F& f) const {
    const int thread = static_cast<int>(threadIdx.x);
    const auto take = [&](float logit, int32_t token) {
      if (!(logit >= low && logit <= high)) return;
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

/// exp(value - max).
__device__ inline float token_weight(float value, float max) {
  return value == max ? 1.0f : expf(value - max);
}

__device__ inline Amount amount_of(float weight) {
  return static_cast<Amount>(weight * kAmountUnit);
}

/// The row's slices put together.
struct RowFound {
  OrderCode best;  ///< by the logit; 0: all are at -inf
  bool finite;     ///< SampleRowResult::finite
  bool complete;   ///< the lists have all tokens from `floor` on
  float floor;     ///< as SliceFound::floor
};

/// Every warp does it by itself.
__device__ inline RowFound row_found(const SliceFound* slices, int32_t count) {
  OrderCode best = 0;
  float floor = kNever;
  bool bad = false, some = false, overfull = false;
  for (int32_t s = lane_id(); s < count; s += kWarp) {
    const SliceFound slice = slices[s];
    best = greatest(best, slice.best);
    floor = greatest(floor, slice.floor);
    bad = bad || slice.bad;
    some = some || slice.some;
    overfull = overfull || slice.listed > kSliceList;
  }
  return {.best = warp_reduce(best, Largest{}),
          .finite = !__any_sync(kAllLanes, bad) && __any_sync(kAllLanes, some),
          .complete = !__any_sync(kAllLanes, overfull),
          .floor = warp_reduce(floor, Largest{})};
}

/// Tokens of a row that are at least min_p of the best, or the first of them in order.
class Tokens {
 public:
  /// All.
  __device__ Tokens(const RowReader& row, float max, float min_p, SampleShared* shared)
      : row_(row), max_(max), min_p_(min_p), shared_(shared) {}

  __device__ float max() const { return max_; }

  /// f(code, weight) for this thread's share of the tokens.
  template <class F>
  __device__ void visit(const F& f) const {
    visit(kNever, INFINITY, f);
  }
  /// Only values in [low, high] matter to f; it may see others.
  template <class F>
  __device__ void visit(float low, float high, const F& f) const {
    if (narrow_) {
      for (uint32_t i = threadIdx.x; i < listed_; i += kSampleThreads) {
        const OrderCode code = shared_->candidates[i];
        f(code, token_weight(value_of(code), max_));
      }
      return;
    }
    // Wider by more than what rounding takes from a product and a quotient.
    const float least_logit = low * row_.divisor, most_logit = high * row_.divisor;
    row_.visit(least_logit - margin(least_logit), most_logit + margin(most_logit),
               [&](float value, int32_t token) {
                 const float weight = token_weight(value, max_);
                 if (weight >= min_p_) f(order_code(value, token), weight);
               });
  }
  __device__ static float margin(float value) { return fabsf(value) * 0x1p-20f + 0x1p-120f; }

  /// Collects those that surely are the first in order from the slices' lists.
  __device__ void collect(const RowFound& found, const SliceFound* slices, int32_t num_slices,
                          const OrderCode* lists) {
    if (threadIdx.x == 0) shared_->num_candidates = 0;
    __syncthreads();
    const float limit = limit_ = row_.divided(found.floor);
    // Where division makes a smaller logit equal, ids decide; those of the others aren't known.
    const bool limit_is_sure =
        found.floor == kNever || row_.divided(next_below(found.floor)) < limit;
    // A warp takes 32 codes of a list at a time, the first ones of all lists first.
    constexpr int32_t kWarps = kSampleThreads / kWarp, kLoads = 8;
    const int32_t pieces = found.complete ? num_slices * (kSliceList / kWarp) : 0;
    Amount amount = 0;
    for (int32_t first = warp_id(); first < pieces; first += kWarps * kLoads) {
      OrderCode codes[kLoads];
      HEADRACE_UNROLL
      for (int32_t i = 0; i < kLoads; ++i) {
        const int32_t piece = first + i * kWarps, slice = piece % num_slices;
        const int32_t place = piece / num_slices * kWarp + lane_id();
        const bool listed = piece < pieces && place < static_cast<int32_t>(slices[slice].listed);
        codes[i] = listed ? lists[int64_t{slice} * kSliceList + place] : 0;
      }
      uint32_t votes[kLoads], taken = 0;
      HEADRACE_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        bool sure = codes[i] != 0;
        if (sure) {
          const float value = row_.divided(value_of(codes[i]));
          const float weight = token_weight(value, max_);
          sure = value > kNever && (value > limit || (value == limit && limit_is_sure)) &&
                 weight >= min_p_;
          codes[i] = order_code(value, token_of(codes[i]));
          if (sure) amount += amount_of(weight);
        }
        votes[i] = __ballot_sync(kAllLanes, sure);
        taken += static_cast<uint32_t>(__popc(votes[i]));
      }
      uint32_t place = 0;
      if (lane_id() == 0 && taken > 0) place = atomicAdd(&shared_->num_candidates, taken);
      place = __shfl_sync(kAllLanes, place, 0);
      HEADRACE_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        const uint32_t at =
            place + static_cast<uint32_t>(__popc(votes[i] & ((1u << lane_id()) - 1)));
        if ((votes[i] >> lane_id() & 1u) != 0 && at < kMaxCandidates) {
          shared_->candidates[at] = codes[i];
        }
        place += static_cast<uint32_t>(__popc(votes[i]));
      }
    }
    listed_amount_ = reduce_block(amount, Sum{}, shared_);
    listed_ = shared_->num_candidates;
    // A token in no list has a logit below the floor.
    const bool rest = found.floor > kNever && token_weight(limit, max_) >= min_p_;
    has_all_ = found.complete && listed_ <= kMaxCandidates && !rest;
    if (listed_ > kMaxCandidates) listed_ = 0;
  }

  /// Of what has been collected.
  __device__ uint32_t listed() const { return listed_; }
  __device__ Amount listed_amount() const { return listed_amount_; }
  __device__ bool has_all() const { return has_all_; }

  /// Beyond this value every token has been collected; what hasn't is at most as large.
  __device__ float limit() const { return limit_; }

  /// From now on only what has been collected is visited, or again all.
  __device__ void narrow() { narrow_ = true; }
  __device__ void widen() { narrow_ = false; }

 private:
  /// The next smaller float.
  __device__ static float next_below(float value) {
    if (value == 0.0f) return -0x1p-149f;
    return float_of_bits(bits_of_float(value) + (value < 0.0f ? 1u : ~0u));
  }

  RowReader row_;
  float max_, min_p_, limit_ = INFINITY;
  SampleShared* shared_;
  Amount listed_amount_ = 0;
  uint32_t listed_ = 0;
  bool has_all_ = false, narrow_ = false;
};

}  // namespace headrace::cuda
