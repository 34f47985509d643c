// The emulation of sm_90a: what it must compute, and what it must find.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "cuda/device/cluster.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/linear/tensor_map.h"
#include "device_data.h"
#include "short_sums.h"

namespace headrace::cuda {
namespace {

using emulation::EmulationError;

constexpr int kUnit = 64;
constexpr int kRowBytes = 128;

template <class... Params, class... Args>
void run(void (*kernel)(Params...), unsigned threads, size_t shared, const Args&... args) {
  launch("test", kernel, {.grid = {1}, .threads = threads, .shared_bytes = shared}, nullptr,
         args...);
}

template <class Work>
void expect_error(const char* part, const Work& work) {
  try {
    work();
    ADD_FAILURE() << "nothing was found: " << part;
  } catch (const EmulationError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

class Hopper : public KernelTest {
 protected:
  Random random_{61};
};

// What goes wrong.
enum class Slip {
  kNone,
  kLateWaitForCopy,
  kNoWaitForCopy,
  kNoWaitForProducts,
  kNoFence,
  kOverwrite,
  kOneWarpLess,
  kTooFewBytes,
  kTooManyBytes,
  kLanesDiffer,
  kWriteSums,
  kWrongStride,
  kWithinPattern,
  kFromNothing
};

/// c [64, n] = a [64, 64] . b^T. `b`: [n, 64], or with kTransposed [64, n] in boxes of 64 columns,
/// and a comes from registers.
template <class T, int n, bool kTransposed>
__global__ void product_kernel(const __grid_constant__ TensorMap a,
                               const __grid_constant__ TensorMap b, float* out, Slip slip) {
  char* tile_a = shared_memory() + 1024;
  char* tile_b = tile_a + 64 * kRowBytes;
  auto* full = reinterpret_cast<uint64_t*>(shared_memory());
  if (threadIdx.x == 0) {
    barrier_init(full, 1);
    barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    int bytes = (64 + n) * kRowBytes;
    if (slip == Slip::kTooFewBytes) bytes -= 64;
    if (slip == Slip::kTooManyBytes) bytes += 64;
    barrier_expect_bytes(full, static_cast<uint32_t>(bytes));
    copy_box(tile_a, &a, 0, 0, full);
    if (kTransposed) {
      for (int i = 0; i < n / 64; ++i) copy_box(tile_b + i * 64 * kRowBytes, &b, i * 64, 0, full);
    } else {
      copy_box(tile_b, &b, 0, 0, full);
    }
  }
  if (slip != Slip::kNoWaitForCopy && slip != Slip::kLateWaitForCopy) barrier_wait(full, 0);
  float c[n / 2];
  for (float& sum : c) sum = 0.25f;
  uint32_t registers[4][4];
  const int lane = lane_id();
  for (int i = 0; i < 16 && kTransposed; ++i) {
    const int w = i % 4, row = warp_id() * 16 + lane / 4 + w % 2 * 8;
    const int chunk = i / 4 * 2 + w / 2;
    __builtin_memcpy(&registers[i / 4][w],
                     tile_a + row * kRowBytes + (chunk ^ row % 8) * 16 + lane % 4 * 4, 4);
  }
  if (slip != Slip::kNoFence) products_fence();
  for (int k = 0; k < kUnit / 16; ++k) {
    if constexpr (kTransposed) {
      wgmma_64xk16<T, n>(c, registers[k],
                         transposed_descriptor(tile_b + k * 16 * kRowBytes, 64 * kRowBytes),
                         k > 0 || slip != Slip::kFromNothing);
    } else {
      uint64_t descriptor = tile_descriptor(tile_b, static_cast<uint32_t>(k) * 32);
      if (slip == Slip::kWrongStride) descriptor ^= uint64_t{1} << 37;
      if (slip == Slip::kWithinPattern) descriptor += kRowBytes >> 4;
      if (slip == Slip::kLanesDiffer) descriptor += threadIdx.x % 2;
      if (slip == Slip::kOneWarpLess && warp_id() == 3 && k == 3) continue;
      wgmma_64xk16<T, n>(c, tile_descriptor(tile_a, static_cast<uint32_t>(k) * 32), descriptor,
                         true);
      if (slip == Slip::kWriteSums) c[0] = 0.0f;
    }
  }
  products_commit();
  if (slip == Slip::kOverwrite && threadIdx.x == 5) std::memset(tile_b, 0, 2);
  if (slip != Slip::kNoWaitForProducts) products_wait<0>();
  for (int i = 0; i < n / 2; ++i) {
    const int row = warp_id() * 16 + lane / 4 + i / 2 % 2 * 8;
    out[row * n + i / 4 * 8 + lane % 4 * 2 + i % 2] = c[i];
  }
  if (slip == Slip::kNoWaitForProducts) products_wait<0>();
  if (slip == Slip::kLateWaitForCopy) barrier_wait(full, 0);
}

/// The error's bound over all of c; NaN where c is.
template <class T, int n, bool kTransposed>
double product_error(Random& random, DType dtype, Slip slip = Slip::kNone) {
  // The last columns of k lie beyond the matrices.
  constexpr int kDepth = 56;
  const auto a = random.uniforms(dtype, 64 * kDepth), b = random.uniforms(dtype, n * kDepth);
  const DeviceMatrix in_a(dtype, 64, kDepth, a, 8);
  DeviceMatrix in_b(dtype, kTransposed ? kDepth : n, kTransposed ? n : kDepth);
  for (int j = 0; j < n; ++j) {
    for (int k = 0; k < kDepth; ++k) {
      in_b.set(kTransposed ? k : j, kTransposed ? j : k, b[size_t(j * kDepth + k)]);
    }
  }
  std::vector<float> out(64 * n);
  run(product_kernel<T, n, kTransposed>, 128, 1024 + (64 + 256) * kRowBytes,
      make_tensor_map(in_a.matrix(), dtype, 64),
      make_tensor_map(in_b.matrix(), dtype, kTransposed ? 64 : n), out.data(), slip);
  double worst = 0.0;
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j < n; ++j) {
      double want = 0.25;
      for (int k = 0; k < kDepth; ++k) {
        want += double(a[size_t(i * kDepth + k)]) * double(b[size_t(j * kDepth + k)]);
      }
      const double error = std::abs(double(out[size_t(i * n + j)]) - want);
      if (!(error <= worst)) worst = error;
    }
  }
  return worst;
}

// Four roundings of sums below 64.
constexpr double kBound = 4 * 64 * 0x1p-24;

TEST_P(Hopper, ProductsOfCopiedTilesAreExact) {
  SCOPED_TRACE(random_.trace());
  EXPECT_LE((product_error<Bf16, 64, false>(random_, DType::kBF16)), kBound);
  EXPECT_LE((product_error<F16, 128, false>(random_, DType::kF16)), kBound);
  EXPECT_LE((product_error<Bf16, 256, false>(random_, DType::kBF16)), kBound);
  EXPECT_LE((product_error<F16, 64, true>(random_, DType::kF16)), kBound);
  EXPECT_LE((product_error<Bf16, 128, true>(random_, DType::kBF16)), kBound);
  EXPECT_LE((product_error<Bf16, 256, true>(random_, DType::kBF16)), kBound);
}

/// c [64, n] = a [64, 128] . b [n, 128]^T of e4m3, a in tiles of 16 rows.
template <int n>
__global__ void code_product_kernel(const __grid_constant__ TensorMap a,
                                    const __grid_constant__ TensorMap b, int32_t tile, int32_t unit,
                                    float* out) {
  char* tile_a = shared_memory() + 1024;
  char* tile_b = tile_a + 64 * kRowBytes;
  auto* full = reinterpret_cast<uint64_t*>(shared_memory());
  if (threadIdx.x == 0) {
    barrier_init(full, 1);
    barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    barrier_expect_bytes(full, (64 + n) * kRowBytes);
    copy_unit(tile_a, &a, tile, unit, full);
    copy_box(tile_b, &b, unit * kUnit, 0, full);
  }
  barrier_wait(full, 0);
  float c[n / 2];
  products_fence();
  for (uint32_t k = 0; k < 4; ++k) {
    wgmma_64xk32<n>(c, tile_descriptor(tile_a, k * 32), tile_descriptor(tile_b, k * 32), k > 0);
  }
  products_commit();
  products_wait<0>();
  for (int i = 0; i < n / 2; ++i) {
    const int row = warp_id() * 16 + lane_id() / 4 + i / 2 % 2 * 8;
    out[row * n + i / 4 * 8 + lane_id() % 4 * 2 + i % 2] = c[i];
  }
}

// The second of three units of rows 32 to 95; of 80 there are none behind the 80th.
TEST_P(Hopper, ProductsOfCodesAreShortSums) {
  constexpr int kRows = 80, kUnits = 3, kN = 16, kTileBytes = kUnits * 2048 + 64;
  const auto code = [&] {
    return static_cast<uint8_t>(random_.integer(0, 0x7d) | random_.integer(0, 1) << 7);
  };
  std::vector<uint8_t> tiles(kRows / 16 * kTileBytes), rows(kN * kUnits * 128);
  for (uint8_t& one : tiles) one = code();
  for (uint8_t& one : rows) one = code();
  const DeviceArray<uint8_t> a{std::span<const uint8_t>(tiles)}, b{std::span<const uint8_t>(rows)};
  std::vector<float> out(64 * kN);
  run(code_product_kernel<kN>, 128, 1024 + (64 + kN) * kRowBytes,
      make_tile_map({a.data(), kRows / 16, kTileBytes, kUnits}, 4),
      make_tensor_map({b.data(), kN, kUnits * kUnit, kUnits * kUnit}, DType::kF16, kN), 2, 1,
      out.data());
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j < kN; ++j) {
      const int row = 32 + i;
      const size_t at = size_t(row / 16 * kTileBytes + (16 + row % 16) * 128);
      const uint8_t* const column = &rows[size_t((j * kUnits + 1) * 128)];
      const float want = row < kRows ? emulation::sum_short(&tiles[at], column, 128) : 0.0f;
      ASSERT_EQ(out[size_t(i * kN + j)], want) << i << ", " << j;
    }
  }
  expect_error("tiles of another map", [&] {
    const TensorMap wrong =
        make_tensor_map({b.data(), kN, kUnits * kUnit, kUnits * kUnit}, DType::kF16, kN);
    run(code_product_kernel<kN>, 128, 1024 + (64 + kN) * kRowBytes, wrong, wrong, 0, 0, out.data());
  });
}

TEST_P(Hopper, FindsSlips) {
  const auto error_of = [&](Slip slip) {
    return product_error<Bf16, 128, false>(random_, DType::kBF16, slip);
  };
  EXPECT_TRUE(std::isnan(error_of(Slip::kNoWaitForProducts)));
  EXPECT_TRUE(std::isnan(error_of(Slip::kLateWaitForCopy)));
  EXPECT_FALSE(error_of(Slip::kWrongStride) <= 0.1);
  // The sums' first number is left out.
  EXPECT_NEAR((product_error<Bf16, 128, true>(random_, DType::kBF16, Slip::kFromNothing)), 0.25,
              kBound);
  const auto expect = [&](Slip slip, const char* error) {
    expect_error(error, [&] { error_of(slip); });
  };
  expect(Slip::kNoWaitForCopy, "ended before this copy");
  expect(Slip::kNoFence, "without a fence");
  expect(Slip::kOverwrite, "changed under a product");
  expect(Slip::kOneWarpLess, "warps of a group differ");
  expect(Slip::kTooManyBytes, "wait for each other");
  expect(Slip::kTooFewBytes, "wait for each other");
  expect(Slip::kLanesDiffer, "lanes differ");
  expect(Slip::kWriteSums, "accumulators were written");
  expect(Slip::kWithinPattern, "within its pattern");
}

/// out [64, 8] = b's row sums over 16 k, by an operand of ones in registers, and `words`: the 8
/// words of two tiles from word 4 on. 0: as it should be.
__global__ void held_product_kernel(const __grid_constant__ TensorMap b,
                                    const __grid_constant__ TensorMap run, float* out,
                                    float4* words, int slip) {
  auto* full = reinterpret_cast<uint64_t*>(shared_memory());
  char* tile = shared_memory() + 1024;
  char* bytes = tile + 8 * kRowBytes;
  if (threadIdx.x == 0) {
    barrier_init(full, 1);
    barrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    barrier_expect_bytes(full, 8 * kRowBytes + 32);
    copy_box(tile, &b, 0, 0, full);
    copy_run(bytes, slip == 1 ? &b : &run, 4, 1, full);
  }
  barrier_wait(full, 0);
  const uint32_t ones = pack_pair<Bf16>(1.0f, 1.0f);
  uint32_t a[4] = {ones, ones, ones, ones};
  float c[4];
  products_fence();
  wgmma_held_64xk16<Bf16, 8>(c, a, tile_descriptor(tile, 0), false);
  products_commit();
  if (slip == 2 && threadIdx.x == 77) a[3] = 0;
  products_wait<0>();
  for (int i = 0; i < 4; ++i) {
    const int row = warp_id() * 16 + lane_id() / 4 + i / 2 * 8;
    out[row * 8 + lane_id() % 4 * 2 + i % 2] = c[i];
  }
  if (threadIdx.x < 2) {
    words[threadIdx.x] =
        load_from_block(reinterpret_cast<const float4*>(bytes) + threadIdx.x, slip == 3 ? 1 : 0);
  }
}

TEST_P(Hopper, OperandsStayInRegistersAndRunsAreCopied) {
  const auto rows = random_.uniforms(DType::kBF16, 8 * kUnit);
  const DeviceMatrix b(DType::kBF16, 8, kUnit, rows);
  std::vector<float> numbers(3 * 12);
  for (float& one : numbers) one = random_.uniform(-1.0f, 1.0f);
  const DeviceArray<float> tiles{std::span<const float>(numbers)};
  std::vector<float> out(64 * 8);
  std::vector<float4> words(2);
  const auto go = [&](int slip) {
    run(held_product_kernel, 128, 1024 + 8 * kRowBytes + 128,
        make_tensor_map(b.matrix(), DType::kBF16, 8),
        make_run_map({tiles.data(), 3, 48, 32}, 16, 2), out.data(), words.data(), slip);
  };
  go(0);
  for (int j = 0; j < 8; ++j) {
    double want = 0.0;
    for (int k = 0; k < 16; ++k) want += double(rows[size_t(j * kUnit + k)]);
    for (int i = 0; i < 64; ++i) ASSERT_EQ(out[size_t(i * 8 + j)], static_cast<float>(want));
  }
  for (size_t tile = 0; tile < 2; ++tile) {
    EXPECT_EQ(words[tile].x, numbers[(tile + 1) * 12 + 4]);
    EXPECT_EQ(words[tile].w, numbers[(tile + 1) * 12 + 7]);
  }
  expect_error("a run of another map", [&] { go(1); });
  expect_error("registers changed", [&] { go(2); });
  expect_error("no such block", [&] { go(3); });
}

/// 0: as it should be.
__global__ void registers_kernel(int slip) {
  if (threadIdx.x < 128) {
    if (slip != 1) give_registers<40>();
  } else {
    take_registers<232>();
    if (slip == 2) take_registers<40>();
  }
}

TEST(HopperBlock, RegistersMustBeThere) {
  run(registers_kernel, 384, 0, 0);
  expect_error("more registers than there are", [] { run(registers_kernel, 384, 0, 1); });
  expect_error("the other way", [] { run(registers_kernel, 384, 0, 2); });
}

/// Warps 0 and 1 take turns, which warps 2 and 3 have no part in.
__global__ void turns_kernel(int* log, int* next, int slip) {
  const int warp = warp_id();
  if (warp >= 2) return;
  if (warp == 1) named_barrier_arrive(1, 64);
  for (int turn = 0; turn < 3; ++turn) {
    named_barrier(1 + warp, slip == 1 && turn == 2 ? 32 : 64);
    if (lane_id() == 0) log[(*next)++] = warp;
    __syncwarp();
    named_barrier_arrive(2 - warp, 64);
  }
}

TEST_P(Hopper, NamedBarriersPassTurns) {
  std::vector<int> log(6);
  int next = 0;
  run(turns_kernel, 128, 0, log.data(), &next, 0);
  EXPECT_EQ(log, (std::vector<int>{0, 1, 0, 1, 0, 1}));
  next = 0;
  expect_error("disagree", [&] { run(turns_kernel, 128, 0, log.data(), &next, 1); });
}

__global__ void barrier_kernel(int slip) {
  auto* barrier = reinterpret_cast<uint64_t*>(shared_memory());
  if (threadIdx.x == 0 && slip != 1) barrier_init(barrier, 4);
  __syncthreads();
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
  barrier_wait(barrier, 0);
  if (slip == 2) barrier_wait(barrier, 1);
}

TEST(HopperBlock, BarriersCountArrivals) {
  run(barrier_kernel, 128, 64, 0);
  expect_error("no barrier was initialised", [] { run(barrier_kernel, 128, 64, 1); });
  expect_error("wait for each other", [] { run(barrier_kernel, 128, 64, 2); });
}

TEST(HopperBlock, TensorMapsAreCheckedAsTheDriverDoes) {
  const DeviceMatrix matrix(DType::kBF16, 4, 12);
  expect_error("no driver", [&] { make_tensor_map(matrix.matrix(), DType::kBF16, 4); });
}

HEADRACE_KERNEL_TESTS(Hopper);

}  // namespace
}  // namespace headrace::cuda
