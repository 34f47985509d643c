#pragma once

// Draws of rows that many tokens matter to, spread over many blocks (SpreadDraw). No block reads
// more than a slice at a time, and amounts are integers, so that a draw has the bits of
// draw_placed() over all tokens, which is what is left where too many tokens are alike.

#include "cuda/device/divisor.cuh"
#include "cuda/device/last_block.cuh"
#include "cuda/kernels/sample/sample_report.cuh"
#include "cuda/kernels/sample/sample_scan.cuh"

namespace headrace::cuda {

/// A row's logits as the draw sees them.
__device__ inline RowReader processed_row(const SampleArgs& args, const SampleRowArgs& row) {
  return {args.logits + row.logits_row * args.stride, row.allowed, args.vocab_size,
          row.greedy ? 1.0f : row.temperature};
}

/// f(row, first slice, end slice) for this block's share: about as many slices for all blocks,
/// those of one row together.
template <class F>
__device__ void for_each_spread_run(const SampleWork& args, const F& f) {
  const auto slices = static_cast<uint32_t>(args.table.slices);
  const uint32_t count = static_cast<uint32_t>(*args.table.num_spread) * slices;
  const uint32_t each = divide_up(count, gridDim.x);
  const uint32_t end = least(each * (blockIdx.x + 1), count);
  HEADRACE_NO_UNROLL
  for (uint32_t i = each * blockIdx.x; i < end;) {
    const uint32_t first = i % slices, run = least(slices - first, end - i);
    f(args.table.spread_rows[i / slices], static_cast<int32_t>(first),
      static_cast<int32_t>(first + run));
    __syncthreads();
    i += run;
  }
}

/// This thread's values of a slice, divided; what isn't to be drawn is at -inf.
__device__ inline SliceValues processed_slice(const RowReader& row, int32_t slice) {
  const int32_t first = slice * kSliceSize;
  SliceValues values;
  values.load(row.logits, first, row.vocab_size);
  if (row.allowed != nullptr) values.mask(row.allowed, first, row.vocab_size);
  values.drop_nan();
  Divisor(row.divisor).divide(values.at);
  return values;
}

__device__ inline uint32_t spread_bin(const SpreadDraw& draw, float value) {
  const float place = (draw.max - value) * draw.bins_each;
  return place < static_cast<float>(kBins - 1) ? static_cast<uint32_t>(place) : kBins - 1;
}

/// Where a target is reached among the row's bins.
__device__ inline FoundItem find_spread_bin(const PlaceTarget& target, SampleShared* shared) {
  return first_reaching(
      kBins, 0, 0, target,
      [&](uint32_t i, Amount* amount, uint32_t* count) {
        *amount = Amount{shared->bin_high[i]} << 32 | shared->bin_low[i];
        *count = *amount > 0 ? 1 : 0;
      },
      shared);
}

/// Finds the bins in which the draw may end, of the row's bins that are complete.
__device__ inline void find_region(const Amount* bins, const SampleRowArgs& row, SpreadDraw* draw,
                                   SampleShared* shared) {
  Amount total = 0;
  for (uint32_t i = threadIdx.x; i < kBins; i += kSampleThreads) {
    const Amount amount = load_other(bins + i);
    shared->bin_low[i] = static_cast<uint32_t>(amount);
    shared->bin_high[i] = static_cast<uint32_t>(amount >> 32);
    total += amount;
  }
  total = reduce_block(total, Sum{}, shared);
  const double u = static_cast<double>(philox_uniform(row.seed, row.position));
  Amount least_kept = total, most_kept = total, before_kept_end = 0;
  uint32_t kept_end = kBins;
  if (row.top_p < 1.0f) {
    const PlaceTarget target = top_p_target(row.top_p, total);
    const FoundItem bin = find_spread_bin(target, shared);
    kept_end = bin.item;
    before_kept_end = bin.amount_before;
    least_kept = target.amount;
    most_kept = bin.amount_before + bin.amount;
  }
  const FoundItem begin =
      find_spread_bin({.amount = share_of(u, least_kept), .beyond = true}, shared);
  const FoundItem end = find_spread_bin({.amount = share_of(u, most_kept), .beyond = true}, shared);
  if (threadIdx.x != 0) return;
  draw->begin = begin.item;
  draw->end = end.item;
  draw->kept_end = kept_end;
  draw->before = begin.amount_before;
  if (kept_end < kBins && kept_end > end.item) {
    draw->gap = before_kept_end - (end.amount_before + end.amount);
  }
  draw->total = total;
}

/// Adds the thread's values to the block's bins, and those of the last bin, of many tokens, to
/// `far`. All that can go at once does: what an addition answers takes long.
__device__ inline void add_values(const SliceValues& values, const SpreadDraw& scale, Amount* far,
                                  SampleShared* shared) {
  constexpr int kEach = 4;  // there are no registers for more
  HEADRACE_UNROLL
  for (int first = 0; first < SliceValues::kCount; first += kEach) {
    uint32_t bins[kEach], low[kEach], high[kEach], old[kEach];
    HEADRACE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const float value = values.at[first + i];
      bins[i] = spread_bin(scale, value);
      const Amount amount = amount_of(expf(value - scale.max));
      const bool is_far = bins[i] == kBins - 1;
      *far += is_far ? amount : 0;
      low[i] = is_far ? 0 : static_cast<uint32_t>(amount);
      high[i] = is_far ? 0 : static_cast<uint32_t>(amount >> 32);
    }
    HEADRACE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      old[i] = low[i] != 0 ? atomicAdd(&shared->bin_low[bins[i]], low[i]) : 0;
    }
    HEADRACE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      high[i] += old[i] + low[i] < old[i] ? 1 : 0;
      if (high[i] != 0) atomicAdd(&shared->bin_high[bins[i]], high[i]);
    }
  }
}

/// Slices [first_slice, end_slice).
__device__ inline void add_slices(const SampleWork& args, int32_t r, int32_t first_slice,
                                  int32_t end_slice, SampleShared* shared) {
  const SliceTable& table = args.table;
  const SampleRowArgs& row = args.rows[r];
  SpreadDraw* const draw = table.spread + r;
  Amount* const bins = table.bins + int64_t{r} * kBins;
  for (uint32_t i = threadIdx.x; i < kBins; i += kSampleThreads) {
    shared->bin_low[i] = 0;
    shared->bin_high[i] = 0;
  }
  __syncthreads();
  const SpreadDraw scale{.max = draw->max, .bins_each = draw->bins_each};
  Amount far = 0;
  HEADRACE_NO_UNROLL
  for (int32_t slice = first_slice; slice < end_slice; ++slice) {
    add_values(processed_slice(processed_row(args, row), slice), scale, &far, shared);
  }
  if (far > 0) add_amount(&shared->bin_low[kBins - 1], &shared->bin_high[kBins - 1], far);
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < kBins; i += kSampleThreads) {
    const Amount amount = Amount{shared->bin_high[i]} << 32 | shared->bin_low[i];
    if (amount > 0) atomicAdd(&bins[i], amount);
  }
  const int32_t made = end_slice - first_slice;
  if (!is_last_block(&draw->added, made, table.slices, &shared->first_item)) return;
  __syncthreads();
  find_region(bins, row, draw, shared);
}

/// The draw among the picked tokens, all of which are there.
__device__ inline int32_t draw_picked(const OrderCode* picked, uint32_t count, uint32_t ahead,
                                      const SpreadDraw& draw, const SampleRowArgs& row,
                                      SampleShared* shared) {
  for (uint32_t i = threadIdx.x; i < count; i += kSampleThreads) {
    shared->candidates[i] = load_other(picked + i);
  }
  sort_codes<kSampleThreads>(shared->candidates, count);
  const auto find = [&](uint32_t items, const PlaceTarget& target) {
    return first_reaching(
        items, draw.before, 0, target,
        [&](uint32_t i, Amount* amount, uint32_t* number) {
          *amount = amount_of(token_weight(value_of(shared->candidates[i]), draw.max));
          if (i == ahead) *amount += draw.gap;
          *number = 1;
        },
        shared);
  };
  Amount total = draw.total;
  if (row.top_p < 1.0f) {
    const FoundItem last = find(count, top_p_target(row.top_p, total));
    total = last.amount_before + last.amount;
  }
  const double u = static_cast<double>(philox_uniform(row.seed, row.position));
  const FoundItem found = find(ahead, {.amount = share_of(u, total), .beyond = true});
  return token_of(shared->candidates[found.item]);
}

/// Once all slices have been looked through.
__device__ inline void finish_spread(const SampleWork& args, int32_t r, SampleShared* shared) {
  const SliceTable& table = args.table;
  const SampleRowArgs& row = args.rows[r];
  SpreadDraw* const draw = table.spread + r;
  const uint32_t count = load_other(&draw->num_picked);
  const uint32_t ahead = load_other(&draw->num_ahead);
  const RowFound found = row_found(table.found + int64_t{r} * table.slices, table.slices);
  int32_t token = 0;
  if (count <= kMaxPicked) {
    token = draw_picked(table.picked + int64_t{r} * kMaxPicked, count, ahead, *draw, row, shared);
  } else {
    const double u = static_cast<double>(philox_uniform(row.seed, row.position));
    const Tokens tokens(processed_row(args, row), draw->max, row.min_p, shared);
    token = draw_placed(tokens, 0, u, row, shared);
  }
  __syncthreads();
  finish_row(args, r, found, token, shared);
}

/// Slices [first_slice, end_slice).
__device__ inline void pick_slices(const SampleWork& args, int32_t r, int32_t first_slice,
                                   int32_t end_slice, SampleShared* shared) {
  const SliceTable& table = args.table;
  SpreadDraw* const draw = table.spread + r;
  OrderCode* const picked = table.picked + int64_t{r} * kMaxPicked;
  if (threadIdx.x == 0) {
    shared->num_candidates = 0;
    shared->num_sorted = 0;
  }
  __syncthreads();
  const SpreadDraw scale{.max = draw->max, .bins_each = draw->bins_each};
  const uint32_t begin = draw->begin, end = draw->end, kept_end = draw->kept_end;
  HEADRACE_NO_UNROLL
  for (int32_t slice = first_slice; slice < end_slice; ++slice) {
    const SliceValues values = processed_slice(processed_row(args, args.rows[r]), slice);
    uint32_t ahead = 0, picked_here = 0;
    HEADRACE_UNROLL
    for (int i = 0; i < SliceValues::kCount; ++i) {
      const uint32_t bin = spread_bin(scale, values.at[i]);
      const bool some = values.at[i] > kNever;
      ahead |= some && bin >= begin && bin <= end ? 1u << i : 0u;
      picked_here |= some && bin == kept_end ? 1u << i : 0u;
    }
    picked_here |= ahead;
    if (picked_here == 0) continue;
    uint32_t place = atomicAdd(&shared->num_candidates, static_cast<uint32_t>(__popc(picked_here)));
    if (ahead != 0) atomicAdd(&shared->num_sorted, static_cast<uint32_t>(__popc(ahead)));
    HEADRACE_UNROLL
    for (int i = 0; i < SliceValues::kCount; ++i) {
      if ((picked_here >> i & 1u) == 0) continue;
      if (place < kMaxPicked) {
        shared->candidates[place] =
            order_code(values.at[i], SliceValues::token(slice * kSliceSize, i));
      }
      ++place;
    }
  }
  __syncthreads();
  const uint32_t count = shared->num_candidates;
  if (threadIdx.x == 0 && count > 0) {
    shared->first_item = atomicAdd(&draw->num_picked, count);
    atomicAdd(&draw->num_ahead, shared->num_sorted);
  }
  __syncthreads();
  const uint32_t first = shared->first_item;
  for (uint32_t i = threadIdx.x; i < least(count, kMaxPicked); i += kSampleThreads) {
    if (first + i < kMaxPicked) picked[first + i] = shared->candidates[i];
  }
  const int32_t made = end_slice - first_slice;
  if (!is_last_block(&draw->looked_through, made, table.slices, &shared->last_item)) return;
  __syncthreads();
  finish_spread(args, r, shared);
}

}  // namespace headrace::cuda
