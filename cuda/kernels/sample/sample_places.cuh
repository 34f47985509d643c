#pragma once

// Finding places in the order of a row's tokens without sorting it: a histogram says in which bin a
// place lies, and the bin's tokens are sorted.

#include "cuda/kernels/sample/sample_row.cuh"

// What several places call: inlined, it would take minutes to compile.
#if defined(HEADRACE_CUDA_EMULATION)
#define HEADRACE_NO_INLINE
#else
#define HEADRACE_NO_INLINE __noinline__
#endif

namespace headrace::cuda {

struct FoundPlace {
  OrderCode code;
  Amount reached;  ///< summed amount up to and including it
};

/// What a sum over the first tokens must reach.
struct PlaceTarget {
  Amount amount = 0;
  uint32_t number = 0;  ///< of tokens, if not 0; then the amount doesn't count
  bool beyond = false;  ///< the amount must be exceeded

  __device__ bool reached(Amount sum, uint32_t count) const {
    if (number != 0) return count >= number;
    return beyond ? sum > amount : sum >= amount;
  }
};

struct FoundItem {
  uint32_t item;
  Amount amount_before, amount;
  uint32_t count_before, count;
};

/// Of the values of lanes up to this one.
template <class T>
__device__ T sum_up_to(T value) {
  HEADRACE_UNROLL
  for (int step = 1; step < kWarp; step *= 2) {
    const T before = __shfl_up_sync(kAllLanes, value, static_cast<unsigned>(step));
    if (lane_id() >= step) value += before;
  }
  return value;
}

/// Of `items` things in order, at most kBins, the first that isn't empty at which the target is
/// reached, or the last that isn't empty, of which there is one. The sums begin with amount_before
/// and count_before. f(item, &amount, &count). Called by the whole block.
template <class ItemAt>
__device__ FoundItem first_reaching(uint32_t items, Amount amount_before, uint32_t count_before,
                                    const PlaceTarget& target, const ItemAt& item_at,
                                    SampleShared* shared) {
  constexpr uint32_t kEach = kBins / kSampleThreads;
  const auto thread = static_cast<uint32_t>(threadIdx.x);
  Amount amounts[kEach];
  uint32_t counts[kEach];
  Amount amount = 0;
  uint32_t count = 0;
  HEADRACE_UNROLL
  for (uint32_t i = 0; i < kEach; ++i) {
    amounts[i] = 0;
    counts[i] = 0;
    if (thread * kEach + i < items) item_at(thread * kEach + i, &amounts[i], &counts[i]);
    amount += amounts[i];
    count += counts[i];
  }
  const Amount own_amount = amount;
  const uint32_t own_count = count;
  amount = sum_up_to(amount);
  count = sum_up_to(count);
  if (lane_id() == kWarp - 1) {
    shared->scan_amounts[warp_id()] = amount;
    shared->scan_counts[warp_id()] = count;
  }
  __syncthreads();
  // The first lane, or the last one that has any: sums only grow.
  const auto choose = [&](bool some, bool reached) {
    const uint32_t reaching = __ballot_sync(kAllLanes, some && reached);
    const uint32_t having = __ballot_sync(kAllLanes, some);
    return reaching != 0 ? __ffs(static_cast<int>(reaching)) - 1
                         : kWarp - 1 - __clz(static_cast<int>(having));
  };
  // Every warp finds out in which warp it is.
  constexpr int kWarps = kSampleThreads / kWarp;
  const bool is_warp = lane_id() < kWarps;
  const Amount warp_amount = is_warp ? shared->scan_amounts[lane_id()] : 0;
  const uint32_t warp_count = is_warp ? shared->scan_counts[lane_id()] : 0;
  Amount end_amount = amount_before + sum_up_to(warp_amount);
  uint32_t end_count = count_before + sum_up_to(warp_count);
  const int chosen = choose(warp_count > 0, target.reached(end_amount, end_count));
  if (warp_id() == chosen) {
    amount += __shfl_sync(kAllLanes, end_amount - warp_amount, chosen);
    count += __shfl_sync(kAllLanes, end_count - warp_count, chosen);
    if (lane_id() == choose(own_count > 0, target.reached(amount, count))) {
      amount -= own_amount;
      count -= own_count;
      bool found = false;
      HEADRACE_UNROLL
      for (uint32_t i = 0; i < kEach; ++i) {
        if (counts[i] > 0 && !found) {
          shared->first_item = thread * kEach + i;
          shared->amount_before = amount;
          shared->count_before = count;
          shared->amount_there = amounts[i];
          shared->count_there = counts[i];
        }
        amount += amounts[i];
        count += counts[i];
        found = found || (counts[i] > 0 && target.reached(amount, count));
      }
    }
  }
  __syncthreads();
  return {shared->first_item, shared->amount_before, shared->amount_there, shared->count_before,
          shared->count_there};
}

/// Of the first `count` of shared->sorted.
__device__ inline FoundItem find_sorted(uint32_t count, Amount amount_before, uint32_t count_before,
                                        const PlaceTarget& target, float max,
                                        SampleShared* shared) {
  return first_reaching(
      count, amount_before, count_before, target,
      [&](uint32_t i, Amount* amount, uint32_t* number) {
        *amount = amount_of(token_weight(value_of(shared->sorted[i]), max));
        *number = 1;
      },
      shared);
}

/// Places in a row, or in what was collected of it.
class Places {
 public:
  /// There is a token. Visits them once.
  __device__ Places(const Tokens& tokens, SampleShared* shared) : tokens_(tokens), shared_(shared) {
    build({});
    // Nothing reaches this.
    const FoundItem last = find_bin({.number = ~0u});
    total_ = last.amount_before + last.amount;
    count_ = last.count_before + last.count;
  }

  __device__ Amount total() const { return total_; }
  __device__ uint32_t count() const { return count_; }

  /// The first token at which the target is reached, or the last one. Visits all tokens once; more
  /// often if they are close to each other.
  __device__ HEADRACE_NO_INLINE FoundPlace find(const PlaceTarget& target) {
    if (narrowed_) build({});
    narrowed_ = false;
    Bins bins;
    FoundItem bin = find_bin(target);
    Region region{bins, bin.item};
    while (bin.count > kMaxSorted) {
      bins = split(region);
      build(bins);
      narrowed_ = true;
      bin = find_bin(target, bin.amount_before, bin.count_before);
      region = {bins, bin.item};
    }
    sort(region);
    const FoundItem found =
        find_sorted(bin.count, bin.amount_before, bin.count_before, target, tokens_.max(), shared_);
    const OrderCode code = shared_->sorted[found.item];
    __syncthreads();
    return {code, found.amount_before + found.amount};
  }

 private:
  /// Bins of a distance of 1, and how far all but the last one reach.
  static constexpr float kBinsEach = 128.0f, kReach = static_cast<float>(kBins) / kBinsEach;

  /// 0: by distance from the largest value. Otherwise by code, from `first` down to `last`.
  struct Bins {
    OrderCode first = 0, last = 0;
    int shift = 0;
  };
  /// A bin's tokens.
  struct Region {
    Bins bins;
    uint32_t bin;
  };

  __device__ static uint32_t bin_of(const Bins& bins, OrderCode code, float max) {
    if (bins.first != 0) {
      if (code > bins.first || code < bins.last) return kBins;
      return static_cast<uint32_t>((bins.first - code) >> bins.shift);
    }
    const float value = value_of(code);
    const float distance = value == max ? 0.0f : max - value;
    return distance < kReach ? static_cast<uint32_t>(distance * kBinsEach) : kBins - 1;
  }

  __device__ HEADRACE_NO_INLINE void build(const Bins& bins) {
    for (uint32_t i = threadIdx.x; i < kBins; i += kSampleThreads) {
      shared_->bin_low[i] = 0;
      shared_->bin_high[i] = 0;
      shared_->bin_counts[i] = 0;
    }
    __syncthreads();
    // Most tokens may be far from the best: their sum is made apart.
    Amount far = 0;
    uint32_t far_count = 0;
    const Tokens tokens = tokens_;  // in registers
    tokens.visit([&](OrderCode code, float weight) {
      const uint32_t bin = bin_of(bins, code, tokens.max());
      if (bin == kBins) return;
      if (bin == kBins - 1) {
        far += amount_of(weight);
        ++far_count;
        return;
      }
      add_amount(&shared_->bin_low[bin], &shared_->bin_high[bin], amount_of(weight));
      atomicAdd(&shared_->bin_counts[bin], 1u);
    });
    if (far_count > 0) {
      add_amount(&shared_->bin_low[kBins - 1], &shared_->bin_high[kBins - 1], far);
      atomicAdd(&shared_->bin_counts[kBins - 1], far_count);
    }
    __syncthreads();
  }

  __device__ FoundItem find_bin(const PlaceTarget& target, Amount amount_before = 0,
                                uint32_t count_before = 0) const {
    return first_reaching(
        kBins, amount_before, count_before, target,
        [&](uint32_t i, Amount* amount, uint32_t* count) {
          *amount = Amount{shared_->bin_high[i]} << 32 | shared_->bin_low[i];
          *count = shared_->bin_counts[i];
        },
        shared_);
  }

  /// Bins for the tokens of one.
  __device__ Bins split(const Region& region) const {
    OrderCode first = 0, last = 0;  // of the latter its complement
    const Tokens tokens = tokens_;
    tokens.visit([&](OrderCode code, float) {
      if (bin_of(region.bins, code, tokens.max()) != region.bin) return;
      first = greatest(first, code);
      last = greatest(last, ~code);
    });
    Bins bins{.first = reduce_block(first, Largest{}, shared_),
              .last = ~reduce_block(last, Largest{}, shared_)};
    while ((bins.first - bins.last) >> bins.shift >= kBins) ++bins.shift;
    return bins;
  }

  __device__ void sort(const Region& region) {
    if (threadIdx.x == 0) shared_->num_sorted = 0;
    __syncthreads();
    const Tokens tokens = tokens_;
    float low = kNever, high = INFINITY;
    if (region.bins.first != 0) {
      low = value_of(region.bins.last);
      high = value_of(region.bins.first);
    } else if (tokens.max() < INFINITY) {
      const float slack = Tokens::margin(fabsf(tokens.max()) + kReach);
      const auto nearest = static_cast<float>(region.bin);
      if (region.bin < kBins - 1) low = tokens.max() - (nearest + 1.0f) / kBinsEach - slack;
      high = tokens.max() - nearest / kBinsEach + slack;
    }
    tokens.visit(low, high, [&](OrderCode code, float) {
      if (bin_of(region.bins, code, tokens.max()) != region.bin) return;
      shared_->sorted[atomicAdd(&shared_->num_sorted, 1u)] = code;
    });
    __syncthreads();
    sort_codes<kSampleThreads>(shared_->sorted, shared_->num_sorted);
  }

  const Tokens& tokens_;
  SampleShared* shared_;
  Amount total_;
  uint32_t count_;
  bool narrowed_ = false;  ///< the histogram is of some bin's tokens
};

}  // namespace headrace::cuda
