#include "cuda/device/cp_async.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/kernels/linear_epilogue.cuh"
#include "cuda/kernels/linear_kernels.h"

namespace headrace::cuda {
namespace {

constexpr int kFeatures = 16;  // of a warp
constexpr int kUnit = static_cast<int>(kWeightColUnit);
constexpr int kRowBytes = kUnit * 2;  // of a stage: eight chunks of 16 bytes
constexpr int kChunks = kRowBytes / 16;

template <class T>
struct SkinnyTask {
  const T* x;
  int64_t x_stride;
  int rows;
  const T* weight;
  int64_t weight_stride;
  int64_t stored_rows;
  int64_t k;
  int units;  // of k
  bool x_vectors;
};

/// Byte of a chunk in a stage: ldmatrix, which takes a chunk of 8 rows, meets every bank once, and
/// so do copies of a row.
__device__ inline int chunk_byte(int row, int chunk) {
  return row * kRowBytes + (chunk ^ (row & 7)) * 16;
}

/// Units of k that a warp holds in its own part of shared memory: rows of the weight, then tokens.
template <class T, int kTokenTiles, int kStages>
struct WarpRing {
  static constexpr int kTokens = 8 * kTokenTiles;
  static constexpr int kBytes = (kFeatures + kTokens) * kRowBytes;

  const SkinnyTask<T>& task;
  const T* weight;  // of the warp's first feature
  char* memory;

  __device__ char* stage(int unit) const { return memory + unit % kStages * kBytes; }

  __device__ void load_weight(int unit) const {
    HEADRACE_UNROLL
    for (int i = 0; i < kFeatures * kChunks / kWarp; ++i) {
      const int row = i * (kWarp / kChunks) + lane_id() / kChunks, chunk = lane_id() % kChunks;
      copy_async_16(stage(unit) + chunk_byte(row, chunk),
                    weight + row * task.weight_stride + unit * kUnit + chunk * 8);
    }
  }

  /// Eight elements of a token; zeros beyond its end.
  __device__ Vector<T> token_chunk(int row, int64_t k0) const {
    const T* from = task.x + row * task.x_stride + k0;
    if (task.x_vectors && k0 + 8 <= task.k) return load_vector(from);
    Vector<T> values = {};
    for (int i = 0; i < 8; ++i) {
      if (k0 + i < task.k) values.at[i] = from[i];
    }
    return values;
  }

  /// Tokens that aren't there stay as they are: nobody reads their sums.
  __device__ void load_tokens(int unit) const {
    char* to = stage(unit) + kFeatures * kRowBytes;
    HEADRACE_UNROLL
    for (int i = 0; i < kTokens * kChunks / kWarp; ++i) {
      const int row = i * (kWarp / kChunks) + lane_id() / kChunks, chunk = lane_id() % kChunks;
      if (row >= task.rows) continue;
      const int64_t k0 = int64_t{unit} * kUnit + chunk * 8;
      if (task.x_vectors) {
        const int64_t left = greatest<int64_t>(task.k - k0, 0);
        copy_async_16(to + chunk_byte(row, chunk),
                      task.x + row * task.x_stride + (left > 0 ? k0 : 0),
                      static_cast<int>(least<int64_t>(left, 8)) * 2);
      } else {
        store_vector(reinterpret_cast<T*>(to + chunk_byte(row, chunk)), token_chunk(row, k0));
      }
    }
  }

  /// The same for the first units at once, through registers: their weights may still be under way.
  __device__ void load_first_tokens(int count) const {
    constexpr int kAtOnce = 4;
    const int chunks = count * kChunks;
    for (int row = 0; row < task.rows; ++row) {
      for (int first = lane_id(); first < chunks; first += kAtOnce * kWarp) {
        Vector<T> held[kAtOnce];
        HEADRACE_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const int c = first + i * kWarp;
          if (c < chunks) held[i] = token_chunk(row, int64_t{c} * 8);
        }
        HEADRACE_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const int c = first + i * kWarp;
          if (c >= chunks) continue;
          char* to = stage(c / kChunks) + kFeatures * kRowBytes;
          store_vector(reinterpret_cast<T*>(to + chunk_byte(row, c % kChunks)), held[i]);
        }
      }
    }
  }

  __device__ void multiply(int unit, float (&sums)[kTokenTiles][4]) const {
    const char* features = stage(unit);
    const char* tokens = features + kFeatures * kRowBytes;
    const int lane = lane_id();
    HEADRACE_UNROLL
    for (int pair = 0; pair < kChunks / 4; ++pair) {  // of steps of 16 k
      uint32_t b[kTokenTiles][4];
      HEADRACE_UNROLL
      for (int t = 0; t < kTokenTiles; ++t) {
        load_matrices(b[t], tokens + chunk_byte(8 * t + lane % 8, 4 * pair + lane / 8));
      }
      HEADRACE_UNROLL
      for (int step = 0; step < 2; ++step) {
        uint32_t a[4];
        load_matrices(a, features + chunk_byte(lane % 16, 4 * pair + 2 * step + lane / 16));
        HEADRACE_UNROLL
        for (int t = 0; t < kTokenTiles; ++t) {
          const uint32_t own[2] = {b[t][2 * step], b[t][2 * step + 1]};
          mma_16x8x16<T>(sums[t], a, own);
        }
      }
    }
  }
};

/// Each warp has 16 features, all tokens and all of k: no sum is divided. kStages units of k of the
/// weight are on their way to a warp, the first of them before the kernel ahead has ended.
template <class T, class Out, int kTokenTiles, int kWarps, int kStages>
__global__ void __launch_bounds__(kWarps* kWarp)
    linear_skinny_kernel(SkinnyTask<T> task, LinearOutput<T, Out> out) {
  using Ring = WarpRing<T, kTokenTiles, kStages>;
  start_next();
  const int64_t first = (int64_t{blockIdx.x} * kWarps + warp_id()) * kFeatures;
  if (first >= task.stored_rows) return wait_for_previous();
  const Ring ring{task, task.weight + first * task.weight_stride,
                  shared_memory() + warp_id() * kStages * Ring::kBytes};
  HEADRACE_UNROLL
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < task.units) ring.load_weight(s);
    copy_async_commit();
  }
  wait_for_previous();
  ring.load_first_tokens(least(kStages - 1, task.units));

  float sums[kTokenTiles][4] = {};
  HEADRACE_NO_UNROLL
  for (int unit = 0; unit < task.units; ++unit) {
    copy_async_wait<kStages - 2>();
    __syncwarp();
    const int next = unit + kStages - 1;
    if (next < task.units) {
      ring.load_weight(next);
      ring.load_tokens(next);
    }
    copy_async_commit();
    ring.multiply(unit, sums);
  }

  const auto [g, q] = lane_place();
  HEADRACE_UNROLL
  for (int i = 0; i < kTokenTiles * 2; ++i) {
    const int row = i / 2 * 8 + 2 * q + i % 2;
    if (row >= task.rows) continue;
    const float low = sums[i / 2][i % 2], high = sums[i / 2][2 + i % 2];
    if (out.silu_mul) {
      out.store_gated(row, first / 2 + g, low, high);
    } else {
      out.store_feature(row, first + g, low);
      out.store_feature(row, first + 8 + g, high);
    }
  }
}

template <class T, class Out, int kTokenTiles, int kWarps, int kStages>
void run_with(const LinearArgs& args, Stream stream) {
  const WeightLayout& layout = args.layout;
  const auto* x = static_cast<const T*>(args.x.data);
  const SkinnyTask<T> task{.x = x,
                           .x_stride = args.x.stride,
                           .rows = static_cast<int>(args.x.rows),
                           .weight = static_cast<const T*>(args.weight),
                           .weight_stride = layout.stride(),
                           .stored_rows = layout.stored_rows(),
                           .k = layout.k,
                           .units = static_cast<int>(layout.stride() / kUnit),
                           .x_vectors = is_vectorizable(x, args.x.stride, 0)};
  constexpr int kRingBytes = WarpRing<T, kTokenTiles, kStages>::kBytes * kStages;
  const LaunchShape shape{
      .grid = {grid_size(divide_up<int64_t>(layout.stored_rows(), kFeatures * kWarps))},
      .threads = kWarps * kWarp,
      .shared_bytes = static_cast<size_t>(kRingBytes * kWarps),
      .overlaps = true};
  launch("linear_skinny", linear_skinny_kernel<T, Out, kTokenTiles, kWarps, kStages>, shape, stream,
         task, linear_output<T, Out>(args));
}

/// 96 KiB a block: two of them fill a multiprocessor of sm_90, one the smallest there is. Narrow
/// weights have few warps, which then hold more of k each.
template <class T, class Out, int kTokenTiles>
void run(const LinearArgs& args, Stream stream) {
  constexpr int kStages = 32 / (1 + kTokenTiles);
  const int64_t warps = args.layout.stored_rows() / kFeatures;
  if (warps <= int64_t{4} * args.multiprocessors) {
    run_with<T, Out, kTokenTiles, 2, kStages>(args, stream);
  } else {
    run_with<T, Out, kTokenTiles, 4, kStages / 2>(args, stream);
  }
}

}  // namespace

void linear_skinny(const LinearArgs& args, Stream stream) {
  HEADRACE_CHECK(args.x.rows <= kMaxSkinnyRows && args.layout.stride() <= 0x7fffffff, args.x.rows);
  with_linear_types(args, [&](auto element, auto result) {
    using T = decltype(element);
    using Out = decltype(result);
    if (args.x.rows <= 8) {
      run<T, Out, 1>(args, stream);
    } else {
      run<T, Out, 2>(args, stream);
    }
  });
}

}  // namespace headrace::cuda
