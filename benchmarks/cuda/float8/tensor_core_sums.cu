#include "benchmarks/cuda/float8/tensor_core_sums.h"

#include "cuda/device/mma8.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/kernels/launch.cuh"

namespace headrace::bench {
namespace {

using namespace cuda;  // NOLINT: device code's vocabulary

constexpr int kWgmmaRows = 64, kUnitBytes = kMostSumCodes;
constexpr int kSharedBytes = (kWgmmaRows + kCasesOfBlock) * kUnitBytes;

#if defined(HEADRACE_HOPPER)

/// Rows of 128 bytes as products take them from shared memory; case r % 8 in row r.
__device__ void put_rows(char* to, const uint8_t* from, int rows) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * kUnitBytes / 16;
       i += static_cast<int>(blockDim.x)) {
    const int row = i / 8, chunk = i % 8;
    *reinterpret_cast<uint4*>(to + row * kUnitBytes + (chunk ^ row % 8) * 16) =
        *reinterpret_cast<const uint4*>(from + row % kCasesOfBlock * kUnitBytes + chunk * 16);
  }
}

#endif

/// Rows and columns are the same eight cases: the diagonals have the sums.
template <int kSteps>
__global__ void __launch_bounds__(128, 1) wgmma_sums(TensorCoreSums args) {
#if defined(HEADRACE_HOPPER)
  const int first = static_cast<int>(blockIdx.x) * kCasesOfBlock;
  char* const a = shared_memory();
  char* const b = a + kWgmmaRows * kUnitBytes;
  put_rows(a, args.a + first * kUnitBytes, kWgmmaRows);
  put_rows(b, args.b + first * kUnitBytes, kCasesOfBlock);
  shared_writes_fence();
  __syncthreads();
  const int g = lane_id() / 4, q = lane_id() % 4;
  float sums[4];
  HEADRACE_UNROLL
  for (int i = 0; i < 4; ++i) sums[i] = args.start[first + 2 * q + i % 2];
  hold_registers(sums);
  products_fence();
  HEADRACE_UNROLL
  for (uint32_t s = 0; s < kSteps; ++s) {
    wgmma_64xk32<8>(sums, tile_descriptor(a, s * 32), tile_descriptor(b, s * 32), true);
  }
  products_commit();
  products_wait<0>();
  hold_registers(sums);
  HEADRACE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int column = 2 * q + i % 2;
    if (column == g) args.out[(first + g) * kWgmmaCopies + 2 * warp_id() + i / 2] = sums[i];
  }
#endif
}

template <int kSteps>
__global__ void __launch_bounds__(32, 1) mma_sums(TensorCoreSums args) {
  const int first = static_cast<int>(blockIdx.x) * kCasesOfBlock;
  const int g = lane_id() / 4, q = lane_id() % 4;
  float sums[4];
  HEADRACE_UNROLL
  for (int i = 0; i < 4; ++i) sums[i] = args.start[first + 2 * q + i % 2];
  const auto word = [&](const uint8_t* from, int byte) {
    return *reinterpret_cast<const uint32_t*>(from + (first + g) * kUnitBytes + byte);
  };
  HEADRACE_UNROLL
  for (int s = 0; s < kSteps; ++s) {
    const int low = 32 * s + 4 * q, high = low + 16;
    const uint32_t a[4] = {word(args.a, low), word(args.a, low), word(args.a, high),
                           word(args.a, high)};
    const uint32_t b[2] = {word(args.b, low), word(args.b, high)};
    mma_16x8x32<Float8Code>(sums, a, b);
  }
  HEADRACE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int column = 2 * q + i % 2;
    if (column == g) args.out[(first + g) * kMmaCopies + i / 2] = sums[i];
  }
}

template <class F>
void with_steps(int steps, const F& f) {
  HEADRACE_CHECK(steps == 1 || steps == 2 || steps == 4, steps);
  if (steps == 1) return f(Int<1>{});
  if (steps == 2) return f(Int<2>{});
  f(Int<4>{});
}

unsigned num_blocks(const TensorCoreSums& args) {
  HEADRACE_CHECK(args.count % kCasesOfBlock == 0, args.count);
  return grid_size(args.count / kCasesOfBlock);
}

}  // namespace

void sum_by_wgmma(const TensorCoreSums& args, Stream stream) {
  with_steps(args.steps, [&](auto steps) {
    launch("wgmma_sums", wgmma_sums<decltype(steps)::value>,
           {.grid = {num_blocks(args)}, .threads = 128, .shared_bytes = kSharedBytes}, stream,
           args);
  });
}

void sum_by_mma(const TensorCoreSums& args, Stream stream) {
  with_steps(args.steps, [&](auto steps) {
    launch("mma_sums", mma_sums<decltype(steps)::value>,
           {.grid = {num_blocks(args)}, .threads = 32}, stream, args);
  });
}

}  // namespace headrace::bench
