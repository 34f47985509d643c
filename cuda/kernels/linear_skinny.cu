#include "cuda/device/mma.cuh"
#include "cuda/device/stream_load.cuh"
#include "cuda/kernels/linear_epilogue.cuh"
#include "cuda/kernels/linear_kernels.h"

namespace headrace::cuda {
namespace {

constexpr int kGroup = 32;  // of k, that one pair of products takes

template <class T>
struct SkinnyTask {
  const T* x;
  int64_t x_stride;
  int rows;
  const T* weight;
  int64_t weight_stride;
  int64_t k;
  int slices;
  int slice_units;
  bool x_vectors;
};

/// Eight elements of a row of x from `k0` on; zeros beyond its end.
template <class T>
__device__ inline uint4 load_x(const SkinnyTask<T>& task, const T* row, int64_t k0) {
  if (row == nullptr || k0 >= task.k) return {0, 0, 0, 0};
  if (task.x_vectors && k0 + 8 <= task.k) return *reinterpret_cast<const uint4*>(row + k0);
  Vector<T> values = {};
  for (int i = 0; i < 8; ++i) {
    if (k0 + i < task.k) values.at[i] = row[k0 + i];
  }
  uint4 out;
  __builtin_memcpy(&out, &values, sizeof out);
  return out;
}

/// A lane's part of `kSteps` groups of 16 * kRowTiles weight rows.
template <int kRowTiles, int kSteps>
struct Batch {
  uint4 at[kSteps][kRowTiles][2];
};

/// A block takes 16 * kRowTiles weight rows, each of its warps a slice of k. Batches of loads are
/// in flight while the batch before is multiplied.
template <class T, class Out, int kTokenTiles, int kRowTiles, int kSteps>
__global__ void __launch_bounds__(256)
    linear_skinny_kernel(SkinnyTask<T> task, LinearOutput<T, Out> out) {
  constexpr int kRows = 16 * kRowTiles, kTokens = 8 * kTokenTiles;
  const auto [g, q] = lane_place();
  const int64_t first_row = int64_t{blockIdx.x} * kRows;
  const int64_t unit = kWeightColUnit;
  const int64_t begin =
      least<int64_t>(int64_t{warp_id()} * task.slice_units * unit, task.weight_stride);
  const int64_t end = least<int64_t>(begin + task.slice_units * unit, task.weight_stride);
  const T* weight = task.weight + (first_row + g) * task.weight_stride + 8 * q;
  const T* tokens[kTokenTiles];
  HEADRACE_UNROLL
  for (int t = 0; t < kTokenTiles; ++t) {
    const int row = 8 * t + g;
    tokens[t] = row < task.rows ? task.x + row * task.x_stride : nullptr;
  }
  float sums[kRowTiles][kTokenTiles][4] = {};

  using Loads = Batch<kRowTiles, kSteps>;
  const auto load = [&](Loads& loads, int64_t k0) {
    HEADRACE_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      if (k0 + s * kGroup >= end) continue;
      HEADRACE_UNROLL
      for (int r = 0; r < kRowTiles * 2; ++r) {
        loads.at[s][r / 2][r % 2] =
            load_streamed(weight + 8 * r * task.weight_stride + k0 + s * kGroup);
      }
    }
  };
  Loads current = {}, next = {};
  load(current, begin);
  HEADRACE_NO_UNROLL
  for (int64_t k0 = begin; k0 < end; k0 += kSteps * kGroup) {
    load(next, k0 + kSteps * kGroup);
    HEADRACE_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const int64_t at = k0 + s * kGroup;
      if (at >= end) continue;
      HEADRACE_UNROLL
      for (int t = 0; t < kTokenTiles; ++t) {
        const uint4 x = load_x(task, tokens[t], at + 8 * q);
        HEADRACE_UNROLL
        for (int r = 0; r < kRowTiles; ++r) {
          mma_16x8x32<T>(sums[r][t], current.at[s][r][0], current.at[s][r][1], x);
        }
      }
    }
    current = next;
  }

  auto* shared = reinterpret_cast<float*>(shared_memory());
  float* own = shared + warp_id() * kRows * kTokens;
  HEADRACE_UNROLL
  for (int r = 0; r < kRowTiles; ++r) {
    HEADRACE_UNROLL
    for (int t = 0; t < kTokenTiles; ++t) {
      HEADRACE_UNROLL
      for (int i = 0; i < 4; ++i) {
        own[(8 * t + 2 * q + i % 2) * kRows + 16 * r + g + i / 2 * 8] = sums[r][t][i];
      }
    }
  }
  __syncthreads();
  write_tile<T, Out>({.sums = shared,
                      .slice_stride = kRows * kTokens,
                      .row_stride = kRows,
                      .slices = task.slices,
                      .features = kRows,
                      .first_feature = first_row,
                      .first_row = 0,
                      .rows = task.rows},
                     out, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
}

template <class T, class Out, int kTokenTiles, int kRowTiles, int kSteps>
void run(const LinearArgs& args, Stream stream) {
  const WeightLayout& layout = args.layout;
  const auto* x = static_cast<const T*>(args.x.data);
  const int slices = static_cast<int>(k_slices(layout.k));
  const SkinnyTask<T> task{.x = x,
                           .x_stride = args.x.stride,
                           .rows = static_cast<int>(args.x.rows),
                           .weight = static_cast<const T*>(args.weight),
                           .weight_stride = layout.stride(),
                           .k = layout.k,
                           .slices = slices,
                           .slice_units = static_cast<int>(k_slice_units(layout.k)),
                           .x_vectors = is_vectorizable(x, args.x.stride, 0)};
  constexpr int kRows = 16 * kRowTiles;
  const LaunchShape shape{
      .grid = {grid_size(
          divide_up<int64_t>(layout.gate_up ? layout.stored_rows() : layout.n, kRows))},
      .threads = static_cast<unsigned>(slices * kWarp),
      .shared_bytes = sizeof(float) * kRows * 8 * kTokenTiles * static_cast<size_t>(slices)};
  launch("linear_skinny", linear_skinny_kernel<T, Out, kTokenTiles, kRowTiles, kSteps>, shape,
         stream, task, linear_output<T, Out>(args));
}

}  // namespace

void linear_skinny(const LinearArgs& args, Stream stream) {
  HEADRACE_CHECK(args.x.rows <= kMaxSkinnyRows, args.x.rows);
  with_linear_types(args, [&](auto element, auto result) {
    using T = decltype(element);
    using Out = decltype(result);
    if (args.x.rows <= 8) {
      run<T, Out, 1, 1, 4>(args, stream);
    } else if (args.x.rows <= 16) {
      run<T, Out, 2, 1, 4>(args, stream);
    } else {
      run<T, Out, 4, 2, 2>(args, stream);
    }
  });
}

}  // namespace headrace::cuda
