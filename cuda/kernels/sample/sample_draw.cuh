#pragma once

// Step 9 of sampling.

#include "backend/contract/philox.h"
#include "cuda/kernels/sample/sample_places.cuh"

namespace headrace::cuda {

__device__ inline Amount share_of(double share, Amount sum) {
  return static_cast<Amount>(share * static_cast<double>(sum));
}

/// What the first tokens must reach for top_p.
__device__ inline PlaceTarget top_p_target(float top_p, Amount total) {
  const double target = ceil(static_cast<double>(top_p) * static_cast<double>(total));
  return {.amount = static_cast<Amount>(target)};
}

/// Puts the first of the candidates, at least kSureTokens if there are that many, to
/// shared->sorted, in order, if they have room. Returns their number, or 0.
__device__ inline uint32_t sort_first(uint32_t listed, SampleShared* shared) {
  constexpr int kEach = 4;  // threads of a group: of each 32 groups' maxima, half are kept
  constexpr int kGroups = kSampleThreads / kEach;
  static_assert(kSureTokens == kGroups / 2);
  OrderCode own = 0;
  for (uint32_t i = threadIdx.x; i < listed; i += kSampleThreads) {
    own = greatest(own, shared->candidates[i]);
  }
  auto* const maxima = shared->sorted;
  if (threadIdx.x == 0) shared->num_sorted = 0;
  own = greatest(own, __shfl_xor_sync(kAllLanes, own, 1));
  own = greatest(own, __shfl_xor_sync(kAllLanes, own, 2));
  if (threadIdx.x % kEach == 0) maxima[threadIdx.x / kEach] = own;
  __syncthreads();
  if (threadIdx.x < kGroups) {
    own = maxima[threadIdx.x];
    const OrderCode* const others = maxima + warp_id() * kWarp;
    int place = 0;
    for (int i = 0; i < kWarp; ++i) place += others[i] > own ? 1 : 0;
    // Groups without a candidate are equal.
    const uint32_t kept = __ballot_sync(kAllLanes, own != 0 && place < kWarp / 2);
    const OrderCode least_kept = ~warp_reduce(own != 0 && place < kWarp / 2 ? ~own : 0, Largest{});
    if (lane_id() == 0) {
      const bool all = __popc(kept) < kWarp / 2;
      shared->reduce[warp_id()] = all ? 0 : least_kept;
    }
  }
  __syncthreads();
  OrderCode threshold = shared->reduce[0];
  for (int w = 1; w < kGroups / kWarp; ++w)
    threshold = least(threshold, OrderCode{shared->reduce[w]});
  for (uint32_t i = threadIdx.x; i < listed; i += kSampleThreads) {
    const OrderCode code = shared->candidates[i];
    if (code < threshold) continue;
    const uint32_t place = atomicAdd(&shared->num_sorted, 1u);
    if (place < kMaxSorted) shared->sorted[place] = code;
  }
  __syncthreads();
  const uint32_t count = shared->num_sorted;
  if (count > kMaxSorted) return 0;
  sort_codes<kSampleThreads>(shared->sorted, count);
  return count;
}

/// The draw among the first tokens of shared->sorted, at most kSureTokens, by a warp.
__device__ inline int32_t draw_sorted(uint32_t count, double u, float max,
                                      const SampleRowArgs& args, const SampleShared* shared) {
  static_assert(kSureTokens == 2 * kWarp);
  const uint32_t first = 2 * static_cast<uint32_t>(lane_id());
  const auto amount_at = [&](uint32_t i) {
    return i < count ? amount_of(token_weight(value_of(shared->sorted[i]), max)) : 0;
  };
  const Amount amount = amount_at(first), next = amount_at(first + 1);
  const Amount sum = sum_up_to(amount + next);
  Amount total = __shfl_sync(kAllLanes, sum, kWarp - 1);
  uint32_t place = count - 1;
  // The first place that reaches the target, or the last one; `total` becomes its sum.
  const auto find = [&](const PlaceTarget& target) {
    const bool at_first = first < count && target.reached(sum - next, 0);
    const bool at_next = first + 1 < count && target.reached(sum, 0);
    const uint32_t votes = __ballot_sync(kAllLanes, at_first || at_next);
    if (votes == 0) return;
    const int lane = __ffs(static_cast<int>(votes)) - 1;
    place = __shfl_sync(kAllLanes, at_first ? first : first + 1, lane);
    total = __shfl_sync(kAllLanes, at_first ? sum - next : sum, lane);
  };
  if (args.top_p < 1.0f) find(top_p_target(args.top_p, total));
  find({.amount = share_of(u, total), .beyond = true});
  return token_of(shared->sorted[place]);
}

/// Sum of the weights of all tokens, where the scan of the slices has made it: `amount` of each.
__device__ inline Amount scanned_total(const SliceFound* slices, int32_t count,
                                       Amount SliceFound::* amount, const RowReader& row, float max,
                                       SampleShared* shared) {
  Amount own = 0;
  const auto s = static_cast<int32_t>(threadIdx.x);
  if (s < count && slices[s].best != 0) {
    const float best = row.divided(value_of(slices[s].best));
    const double scale =
        best == max ? 1.0 : exp(static_cast<double>(best) - static_cast<double>(max));
    own = static_cast<Amount>(scale * static_cast<double>(slices[s].*amount));
  }
  return reduce_block(own, Sum{}, shared);
}

/// The draw among the tokens that are visited. `total`: of all tokens' weights, or 0: theirs.
__device__ HEADRACE_NO_INLINE int32_t draw_placed(const Tokens& tokens, Amount total, double u,
                                                  const SampleRowArgs& args, SampleShared* shared) {
  Places places(tokens, shared);
  if (total == 0) total = places.total();
  const uint32_t top_k = args.top_k > 0 ? static_cast<uint32_t>(args.top_k) : 0;
  if (top_k > 0 && top_k < places.count()) total = places.find({.number = top_k}).reached;
  if (args.top_p < 1.0f) total = places.find(top_p_target(args.top_p, total)).reached;
  return token_of(places.find({.amount = share_of(u, total), .beyond = true}).code);
}

/// The draw of a row whose listed tokens don't reach what top_p keeps, but may reach the draw; -1
/// if they don't surely. `scanned` is close to the sum of all tokens' weights.
__device__ inline int32_t draw_ahead_of_top_p(Tokens& tokens, Amount scanned, double u, float top_p,
                                              SampleShared* shared) {
  // The scan's sums are right to some 2^-20, and the last token that is kept is at most as heavy as
  // those that aren't listed.
  const Amount slack = scanned >> 16;
  const Amount last = amount_of(token_weight(tokens.limit(), tokens.max()));
  const Amount least_kept = top_p_target(top_p, scanned - slack).amount;
  const Amount most_kept = top_p_target(top_p, scanned + slack).amount + last;
  const Amount most = share_of(u, most_kept);
  if (most >= tokens.listed_amount()) return -1;
  tokens.narrow();
  Places places(tokens, shared);
  const FoundPlace found = places.find({.amount = most, .beyond = true});
  tokens.widen();
  const Amount before = found.reached - amount_of(token_weight(value_of(found.code), tokens.max()));
  return before <= share_of(u, least_kept) ? token_of(found.code) : -1;
}

/// Leaves the draw to the blocks of the kernels behind. Called by the block.
__device__ inline void spread_draw(const Tokens& tokens, const SliceTable& table) {
  Amount* const bins = table.bins + int64_t{blockIdx.x} * kBins;
  for (uint32_t i = threadIdx.x; i < kBins; i += kSampleThreads) bins[i] = 0;
  if (threadIdx.x != 0) return;
  // Some 1.4 % of the tokens lie between the largest value and the limit. In a bell of any width,
  // the bins reach beyond all tokens, and a bin has a few hundred of them at most.
  constexpr float kReach = 4.5f, kLeast = 0x1p-20f, kMost = 0x1p20f;
  const float each = static_cast<float>(kBins) / (kReach * (tokens.max() - tokens.limit()));
  const float bins_each = greatest(kLeast, least(kMost, each));  // `each` may be infinite
  table.spread[blockIdx.x] = {.max = tokens.max(),
                              .bins_each = float_of_bits(bits_of_float(bins_each) & 0x7f800000u)};
  table.spread_rows[atomicAdd(table.num_spread, 1)] = static_cast<int32_t>(blockIdx.x);
}

inline constexpr int32_t kSpread = -1;

/// There is a token above -inf, the best of which has the value `max`. Returns kSpread if it is
/// left to the kernels behind.
__device__ inline int32_t draw(const RowReader& row, const RowFound& found, const SampleWork& all,
                               const SampleRowArgs& args, SampleShared* shared) {
  const SliceTable& table = all.table;
  const int64_t first_slice = int64_t{blockIdx.x} * table.slices;
  const SliceFound* const slices = table.found + first_slice;
  const float max = row.divided(value_of(found.best));
  const double u = static_cast<double>(philox_uniform(args.seed, args.position));
  Tokens tokens(row, max, args.min_p, shared);
  tokens.collect(found, slices, table.slices, table.lists + first_slice * kSliceList);
  const uint32_t top_k = args.top_k > 0 ? static_cast<uint32_t>(args.top_k) : 0;
  const bool enough = tokens.has_all() || (top_k > 0 && tokens.listed() >= top_k);
  if (enough && top_k > 0 && top_k <= kSureTokens) {
    const uint32_t sorted = sort_first(tokens.listed(), shared);
    if (sorted > 0) return draw_sorted(least(sorted, top_k), u, max, args, shared);
  }
  Amount total = 0;
  bool narrow = enough;
  if (!enough && needs_total(args)) {
    if (tokens.listed() > 0) {
      total = greatest(scanned_total(slices, table.slices, &SliceFound::amount, row, max, shared),
                       tokens.listed_amount());
      narrow = args.top_p < 1.0f ? top_p_target(args.top_p, total).amount <= tokens.listed_amount()
                                 : share_of(u, total) < tokens.listed_amount();
      if (!narrow && args.top_p < 1.0f) {
        const int32_t token = draw_ahead_of_top_p(tokens, total, u, args.top_p, shared);
        if (token >= 0) return token;
      }
    }
    if (!narrow && max < INFINITY) {
      spread_draw(tokens, table);
      return kSpread;
    }
  }
  if (narrow) tokens.narrow();
  return draw_placed(tokens, narrow && !enough ? total : 0, u, args, shared);
}

}  // namespace headrace::cuda
