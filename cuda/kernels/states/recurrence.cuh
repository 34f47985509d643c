#pragma once

// Matrices of states that each row changes: S = decay * S + k u^T, then out = S^T q. The columns of
// S are independent. A block has kStateColumns of one head and slice, from its first row to its
// last one: eight lanes hold a column in registers. So a state is read and written once, whatever
// the slice's length, and its bits depend on its rows alone.
//
// Order of sums over a column: a lane has the numbers 4 * (lane + 8 * c) + e. For each e a chain of
// fused multiply-adds over ascending c, then (0 + 1) + (2 + 3), then a tree over the lanes.
//
// Rows come by tiles of kStateRows, widened to float32 in shared memory: each number is converted
// once for all columns of the block.

#include "cuda/device/reduce.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/states/state_step.h"

namespace headrace::cuda {

inline constexpr int kStateThreads = 128;
inline constexpr int kColumnLanes = 8;
inline constexpr int kStateColumns = kStateThreads / kColumnLanes;
inline constexpr int kStateRows = 16;

/// Of one head, in the step's row 0.
template <class T>
struct HeadRows {
  const T *keys, *queries, *values;
  T* out;
};

/// Of a row and head: what S is multiplied by, and what else the rule of its update asks for.
struct RowGates {
  float decay, factor;
};

struct RecurrenceShape {
  int32_t heads, key_dim, value_dim;
  int64_t stride, out_stride;  ///< elements between rows of keys, queries and values; of out
};

template <int kChunks>
struct StateTile {
  static constexpr int kPitch = 4 * kColumnLanes * kChunks;  ///< zeros behind key_dim
  alignas(16) float keys[kStateRows][kPitch];
  alignas(16) float queries[kStateRows][kPitch];
  float values[kStateRows][kStateColumns];  ///< then the results
  RowGates gates[kStateRows];
};

/// A lane's part of a column.
template <int kChunks>
struct Column {
  Vector<float> at[kChunks];

  __device__ static int place(int chunk, int lane) { return 4 * (lane + kColumnLanes * chunk); }

  /// `from`: the column, null: zeros.
  __device__ void load(const float* from, int32_t key_dim, int lane) {
    HEADRACE_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      at[c] = {};
      if (from != nullptr && place(c, lane) < key_dim) at[c] = load_vector(from + place(c, lane));
    }
  }
  __device__ void store(float* to, int32_t key_dim, int lane) const {
    HEADRACE_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      if (place(c, lane) < key_dim) store_vector(to + place(c, lane), at[c]);
    }
  }
  /// The whole column times `x`, in each of its lanes.
  __device__ float dot(const float* x, int lane) const {
    float sum[4] = {};
    HEADRACE_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      const Vector<float> other = load_vector(x + place(c, lane));
      HEADRACE_UNROLL
      for (int e = 0; e < 4; ++e) sum[e] = fmaf(at[c].at[e], other.at[e], sum[e]);
    }
    return warp_reduce<kColumnLanes>((sum[0] + sum[1]) + (sum[2] + sum[3]), Sum{});
  }
  __device__ void update(float decay, const float* keys, float u, int lane) {
    HEADRACE_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      const Vector<float> key = load_vector(keys + place(c, lane));
      HEADRACE_UNROLL
      for (int e = 0; e < 4; ++e) at[c].at[e] = fmaf(key.at[e], u, decay * at[c].at[e]);
    }
  }
};

/// Rows [row, row + count) of the step. A thread fills those values whose results it writes out.
template <class Rule, int kChunks, class T>
__device__ inline void fill_tile(const Rule& rule, const HeadRows<T>& from, int32_t head,
                                 int32_t first_column, int64_t row, int count,
                                 StateTile<kChunks>& tile) {
  constexpr int kPitch = StateTile<kChunks>::kPitch;
  const RecurrenceShape& s = rule.shape;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < count * kPitch; i += kStateThreads) {
    const int r = i / kPitch, k = i % kPitch;
    const int64_t at = (row + r) * s.stride + k;
    tile.keys[r][k] = k < s.key_dim ? to_float(from.keys[at]) : 0.0f;
    tile.queries[r][k] = k < s.key_dim ? to_float(from.queries[at]) : 0.0f;
  }
  for (int i = thread; i < count * kStateColumns; i += kStateThreads) {
    const int r = i / kStateColumns, column = first_column + i % kStateColumns;
    tile.values[r][i % kStateColumns] =
        column < s.value_dim ? to_float(from.values[(row + r) * s.stride + column]) : 0.0f;
  }
  if (thread < count) tile.gates[thread] = rule.gates(row + thread, head);
}

template <class Rule, int kChunks, class T>
__device__ inline void write_results(const Rule& rule, const HeadRows<T>& to, int32_t first_column,
                                     int64_t row, int count, const StateTile<kChunks>& tile) {
  for (int i = static_cast<int>(threadIdx.x); i < count * kStateColumns; i += kStateThreads) {
    const int r = i / kStateColumns, column = first_column + i % kStateColumns;
    if (column >= rule.shape.value_dim) continue;
    to.out[(row + r) * rule.shape.out_stride + column] =
        from_float<T>(tile.values[r][i % kStateColumns]);
  }
}

/// A rule has
///   shape                      RecurrenceShape
///   rows(head)                 HeadRows
///   gates(row, head)           RowGates
///   kReads                     whether update() looks at S^T k
///   update(gates, value, S^T k)  u
///   result(head, S^T q, value)   out
template <class Rule, int kChunks>
__global__ void __launch_bounds__(kStateThreads)
    recurrence_kernel(Rule rule, StateStep step, StateArray states) {
  __shared__ StateTile<kChunks> tile;
  start_next();
  wait_for_previous();
  const RecurrenceShape& s = rule.shape;
  const int parts = divide_up(s.value_dim, kStateColumns);
  const auto block = static_cast<int32_t>(blockIdx.x);
  const int32_t head = block / parts % s.heads, first_column = block % parts * kStateColumns;
  const StateSlice slice = step.slices[block / parts / s.heads];
  const int own = static_cast<int>(threadIdx.x) / kColumnLanes;
  const int lane = static_cast<int>(threadIdx.x) % kColumnLanes;
  const int32_t column = first_column + own;
  const int64_t offset = (int64_t{head} * s.value_dim + column) * s.key_dim;
  const bool exists = column < s.value_dim;
  if (slice.num_rows == 0) return;

  Column<kChunks> state;
  state.load(exists && slice.state_in >= 0 ? states.slot(slice.state_in) + offset : nullptr,
             s.key_dim, lane);
  const auto rows = rule.rows(head);
  const StateSave* store = step.stores + slice.first_store;
  const StateSave* const stores_end = store + slice.num_stores;
  int32_t next_store = store->row;
  for (int32_t first = 0; first < slice.num_rows; first += kStateRows) {
    const int count = least(kStateRows, slice.num_rows - first);
    fill_tile(rule, rows, head, first_column, slice.first_row + first, count, tile);
    __syncthreads();
    for (int r = 0; r < count; ++r) {
      const RowGates gates = tile.gates[r];
      const float value = tile.values[r][own];
      float read = 0.0f;
      if constexpr (Rule::kReads) read = state.dot(tile.keys[r], lane);
      state.update(gates.decay, tile.keys[r], rule.update(gates, value, read), lane);
      const float sum = state.dot(tile.queries[r], lane);
      // The column's lanes have all read the value.
      if (lane == 0) tile.values[r][own] = rule.result(head, sum, value);
      if (first + r != next_store) continue;
      if (exists) state.store(states.slot(store->slot) + offset, s.key_dim, lane);
      if (++store != stores_end) next_store = store->row;
    }
    __syncthreads();
    write_results(rule, rows, first_column, slice.first_row + first, count, tile);
  }
}

/// Runs the rule over all slices.
template <class Rule>
void run_recurrence(const char* name, const Rule& rule, const StateStep& step,
                    const StateArray& states, Stream stream) {
  const RecurrenceShape& s = rule.shape;
  HEADRACE_CHECK(s.key_dim % 8 == 0 && s.key_dim > 0 && s.key_dim <= 256, s.key_dim);
  if (step.num_slices == 0) return;
  const int64_t blocks = int64_t{step.num_slices} * s.heads * divide_up(s.value_dim, kStateColumns);
  const LaunchShape shape{.grid = {grid_size(blocks)}, .threads = kStateThreads, .overlaps = true};
  const auto run = [&](auto chunks) {
    launch(name, recurrence_kernel<Rule, chunks()>, shape, stream, rule, step, states);
  };
  if (s.key_dim <= 32) return run(Int<1>{});
  if (s.key_dim <= 64) return run(Int<2>{});
  if (s.key_dim <= 128) return run(Int<4>{});
  run(Int<8>{});
}

}  // namespace headrace::cuda
