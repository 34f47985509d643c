// The emulation itself: what it must run, and what it must find.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "cuda/device/cp_async.cuh"
#include "cuda/device/divisor.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/kernels/launch.cuh"

namespace headrace::cuda {
namespace {

using emulation::EmulationError;
using emulation::Schedule;

constexpr Schedule kSchedules[] = {Schedule::kForward, Schedule::kBackward, Schedule::kWarpsAhead,
                                   Schedule::kShuffled};

template <class... Params, class... Args>
void run(void (*kernel)(Params...), unsigned blocks, unsigned threads, size_t shared,
         const Args&... args) {
  launch("test", kernel, {.grid = {blocks}, .threads = threads, .shared_bytes = shared}, nullptr,
         args...);
}

void expect_error(const char* part, const std::function<void()>& work) {
  try {
    work();
    ADD_FAILURE() << "nothing was found: " << part;
  } catch (const EmulationError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

__global__ void sum_kernel(const int* values, int* sums) {
  __shared__ int scratch[kWarp];
  const int sum = block_reduce(values[blockIdx.x * blockDim.x + threadIdx.x], Sum{}, scratch);
  if (threadIdx.x == blockDim.x - 1) sums[blockIdx.x] = sum;
}

TEST(Emulation, ReducesOverBlocksInEveryOrder) {
  std::vector<int> values(3 * 256);
  std::vector<int> want(3, 0), sums(3);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<int>(i * i % 97);
    want[i / 256] += values[i];
  }
  for (const Schedule schedule : kSchedules) {
    emulation::set_schedule(schedule);
    std::fill(sums.begin(), sums.end(), -1);
    run(sum_kernel, 3, 256, 0, values.data(), sums.data());
    EXPECT_EQ(sums, want);
  }
  emulation::set_schedule(Schedule::kForward);
}

__global__ void reverse_kernel(int* values, bool wait) {
  int* shared = reinterpret_cast<int*>(shared_memory());
  shared[threadIdx.x] = values[threadIdx.x];
  if (wait) __syncthreads();
  values[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

TEST(Emulation, AMissingBarrierShows) {
  std::vector<int> values(64), want(64);
  for (int i = 0; i < 64; ++i) values[size_t(i)] = want[size_t(63 - i)] = i;
  std::vector<int> with = values, without = values;
  run(reverse_kernel, 1, 64, 64 * sizeof(int), with.data(), true);
  EXPECT_EQ(with, want);
  run(reverse_kernel, 1, 64, 64 * sizeof(int), without.data(), false);
  EXPECT_NE(without, want);
}

__global__ void divergent_kernel(int kind) {
  if (kind == 0 && threadIdx.x >= 40) return;
  if (kind == 1 && threadIdx.x >= 40) {
    __syncthreads();
    return;
  }
  if (kind == 2 && threadIdx.x % 2 == 1) return;
  if (kind == 3) __shfl_xor_sync(0xffu, 1, 1);
  if (kind == 4 && threadIdx.x < 8) __shfl_xor_sync(0xffu, 1, 8);
  if (kind == 2) __syncwarp();
  __syncthreads();
}

TEST(Emulation, FindsDivergence) {
  expect_error("wait for each other", [] { run(divergent_kernel, 1, 64, 0, 0); });
  expect_error("different barriers", [] { run(divergent_kernel, 1, 64, 0, 1); });
  expect_error("wait for each other", [] { run(divergent_kernel, 1, 64, 0, 2); });
  expect_error("leaves out the calling lane", [] { run(divergent_kernel, 1, 64, 0, 3); });
  expect_error("takes no part", [] { run(divergent_kernel, 1, 64, 0, 4); });
  run(divergent_kernel, 1, 64, 0, 5);
}

__global__ void wait_outside_kernel(bool lets_next_start) {
  if (threadIdx.x == 0 && lets_next_start) start_next();
  __syncthreads();
  emulation::wait_outside([] { return true; }, std::source_location::current());
}

TEST(Emulation, FindsWaitsForOtherGpusBehindTheNextKernelsStart) {
  run(wait_outside_kernel, 2, 64, 0, false);
  expect_error("behind start_next()", [] { run(wait_outside_kernel, 2, 64, 0, true); });
}

TEST(Emulation, RefusesWhatNoGpuTakes) {
  expect_error("no GPU takes", [] { run(divergent_kernel, 1, 1025, 0, 5); });
  expect_error("no GPU takes", [] { run(divergent_kernel, 1, 32, 228 << 10, 5); });
}

__global__ void shared_is_poisoned_kernel(uint32_t* out) {
  out[threadIdx.x] = reinterpret_cast<uint32_t*>(shared_memory())[threadIdx.x];
}

TEST(Emulation, SharedMemoryStartsAsNan) {
  std::vector<uint32_t> words(32);
  run(shared_is_poisoned_kernel, 1, 32, 128, words.data());
  EXPECT_EQ(words, std::vector<uint32_t>(32, 0xffffffffu));
}

__global__ void async_kernel(const float* from, float* out, bool wait) {
  float* shared = reinterpret_cast<float*>(shared_memory());
  if (threadIdx.x < 8) {
    copy_async_16(shared + threadIdx.x * 4, from + threadIdx.x * 4, threadIdx.x == 7 ? 8 : 16);
  }
  copy_async_commit();
  if (wait) copy_async_wait<0>();
  __syncthreads();
  out[threadIdx.x] = shared[threadIdx.x];
}

TEST(Emulation, AsyncCopiesLandWhenTheyAreWaitedFor) {
  alignas(16) float from[32];
  float out[32];
  for (int i = 0; i < 32; ++i) from[i] = static_cast<float>(i + 1);
  run(async_kernel, 1, 32, sizeof from, static_cast<const float*>(from), static_cast<float*>(out),
      true);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], i < 30 ? from[i] : 0.0f);
  run(async_kernel, 1, 32, sizeof from, static_cast<const float*>(from), static_cast<float*>(out),
      false);
  EXPECT_TRUE(std::isnan(out[0]));
}

TEST(Numbers, SixteenBitFloatsRoundAsTheCpuDoes) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float bf = to_float(Bf16{half}), f = to_float(F16{half});
    if (!std::isnan(bf)) {
      ASSERT_EQ(bf, bf16_to_f32(half));
      ASSERT_EQ(from_float<Bf16>(bf).bits, half);
    }
    if (!std::isnan(f)) {
      ASSERT_EQ(f, f16_to_f32(half)) << bits;
      ASSERT_EQ(from_float<F16>(f).bits, half);
    }
  }
  uint32_t bits = 12345;
  for (int i = 0; i < 300000; ++i) {
    bits = bits * 1664525u + 1013904223u;
    const float value = float_of_bits(bits);
    if (std::isnan(value)) continue;
    ASSERT_EQ(from_float<Bf16>(value).bits, f32_to_bf16(value)) << value;
    ASSERT_EQ(from_float<F16>(value).bits, f32_to_f16(value)) << value;
  }
}

TEST(Divisor, RoundsAsADivisionDoes) {
  std::mt19937 random(9);
  const auto any = [&] { return std::bit_cast<float>(static_cast<uint32_t>(random())); };
  const auto usual = [&] { return (static_cast<float>(random() >> 8) - 0x1p23f) * 0x1p-18f; };
  for (int32_t i = 0; i < 20000; ++i) {
    float divisor = i % 2 == 0 ? std::abs(usual()) + 0.01f : std::abs(any());
    if (i % 7 == 0) divisor = std::bit_cast<float>(std::bit_cast<uint32_t>(divisor) | 0x7fffff);
    if (!std::isfinite(divisor) || divisor == 0.0f) continue;
    float values[8] = {usual(), usual(), usual(), -INFINITY, 0.0f, i % 3 == 0 ? any() : usual()};
    if (std::isnan(values[5])) continue;
    float want[8];
    std::ranges::transform(values, want, [&](float value) { return value / divisor; });
    Divisor(divisor).divide(values);
    for (int32_t k = 0; k < 8; ++k) ASSERT_EQ(values[k], want[k]) << divisor;
  }
}

}  // namespace
}  // namespace headrace::cuda
