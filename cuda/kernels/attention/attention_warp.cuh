#pragma once

// What a warp does with 8 * kGroups keys for its 16 rows, on every tensor core (mma.sync): scores,
// online softmax, sums. A config C has
//   T            of 16 bits
//   kSteps       groups of 16 of the columns that the warp has, kChunks of 8
//   kLarge       queries are loaded for every tile, for they don't fit the registers
//   Places       of a tile's rows in shared memory, keys and values alike

#include "cuda/kernels/attention/attention_rows.cuh"

namespace headrace::cuda {

/// A lane's two rows in the split that is under way, and in those before it.
template <class C>
struct WarpState {
  uint32_t queries[C::kLarge ? 1 : C::kSteps][4];
  float sums[C::kChunks][4];
  float max[2], totals[2];
  float held_max[2] = {kNoScore, kNoScore}, held_totals[2] = {};

  __device__ void start_split() {
    HEADRACE_UNROLL
    for (int i = 0; i < C::kChunks * 4; ++i) sums[i / 4][i % 4] = 0.0f;
    for (int i = 0; i < 2; ++i) max[i] = kNoScore;
    for (int i = 0; i < 2; ++i) totals[i] = 0.0f;
  }
};

/// `load`: (step, uint32_t (&)[4]) loads a step of the rows' queries; used where C::kLarge.
template <class C, class Load, int kGroups>
__device__ void score_tile(const char* keys, const WarpState<C>& state, const Load& load,
                           Scores<kGroups>& scores) {
  using T = typename C::T;
  const int lane = fresh_lane_id(), matrix = lane / 8, row = lane % 8;
  HEADRACE_UNROLL
  for (int step = 0; step < C::kSteps; ++step) {
    uint32_t query[4];
    if constexpr (C::kLarge) {
      load(step, query);
    } else {
      HEADRACE_UNROLL
      for (int i = 0; i < 4; ++i) query[i] = state.queries[step][i];
    }
    HEADRACE_UNROLL
    for (int j = 0; j < kGroups; j += 2) {
      uint32_t b[4];
      load_matrices(b, keys + C::Places::at(8 * j + row + matrix / 2 * 8, 2 * step + matrix % 2));
      const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
      mma_16x8x16<T>(scores[j], query, low);
      mma_16x8x16<T>(scores[j + 1], query, high);
    }
  }
}

/// Scores to weights; the sums so far are scaled to the new maximum.
template <class C, int kGroups>
__device__ void soften_tile(float scale, Scores<kGroups>& scores, WarpState<C>& state) {
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    const float max = max_with(state.max[i], largest_score(scores, i), scale);
    const float base = base_of(max), keep = factor_of(state.max[i], base);
    state.max[i] = max;
    state.totals[i] = fmaf(state.totals[i], keep, soften(scores, i, scale, base));
    HEADRACE_UNROLL
    for (int n = 0; n < C::kChunks; ++n) {
      state.sums[n][2 * i] *= keep;
      state.sums[n][2 * i + 1] *= keep;
    }
  }
}

/// sums += weights . values.
template <class C, int kGroups>
__device__ void add_values(const Scores<kGroups>& weights, const char* values,
                           WarpState<C>& state) {
  using T = typename C::T;
  const int lane = fresh_lane_id(), matrix = lane / 8, row = lane % 8;
  HEADRACE_UNROLL
  for (int step = 0; step < kGroups / 2; ++step) {
    uint32_t a[4];
    pack_weights<T>(weights, step, a);
    HEADRACE_UNROLL
    for (int n = 0; n < C::kChunks; n += 2) {
      uint32_t b[4];
      load_transposed(b, values + C::Places::at(16 * step + matrix % 2 * 8 + row, n + matrix / 2));
      const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
      mma_16x8x16<T>(state.sums[n], a, first);
      mma_16x8x16<T>(state.sums[n + 1], a, second);
    }
  }
}

}  // namespace headrace::cuda
