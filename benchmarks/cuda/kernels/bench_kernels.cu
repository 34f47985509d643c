#include "benchmarks/cuda/kernels/bench_kernels.h"

#include "cuda/device/numbers.cuh"
#include "cuda/device/stream_load.cuh"
#include "cuda/kernels/launch.cuh"

namespace headrace::bench {
namespace {

using namespace headrace::cuda;  // NOLINT: the kernels' vocabulary

constexpr int kLoads = 8;  // of 16 bytes in flight, of each thread
constexpr unsigned kFillThreads = 256;
constexpr int64_t kMostFillBlocks = 4096;

__device__ inline int64_t first_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ inline int64_t all_threads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

__global__ void __launch_bounds__(kReadThreads)
    read_all_kernel(const uint4* data, int64_t count, uint32_t* sinks) {
  const int64_t stride = all_threads();
  uint32_t mixed = 0;
  int64_t i = first_index();
  for (; i + (kLoads - 1) * stride < count; i += kLoads * stride) {
    uint4 words[kLoads];
    HEADRACE_UNROLL
    for (int j = 0; j < kLoads; ++j) words[j] = load_streamed(data + i + j * stride);
    HEADRACE_UNROLL
    for (int j = 0; j < kLoads; ++j) mixed ^= words[j].x ^ words[j].y ^ words[j].z ^ words[j].w;
  }
  for (; i < count; i += stride) {
    const uint4 words = load_streamed(data + i);
    mixed ^= words.x ^ words.y ^ words.z ^ words.w;
  }
  sinks[first_index()] = mixed;
}

__device__ inline uint32_t hash(uint64_t index, uint32_t seed) {
  uint32_t x = static_cast<uint32_t>(index) ^ static_cast<uint32_t>(index >> 32) * 0x9e3779b9u;
  x = (x ^ seed) * 0x85ebca6bu;
  x = (x ^ (x >> 15)) * 0xc2b2ae35u;
  x = (x ^ (x >> 13)) * 0x27d4eb2fu;
  return x ^ (x >> 16);
}

/// In [-1, 1).
__device__ inline float uniform(uint64_t index, uint32_t seed) {
  return static_cast<float>(hash(index, seed) >> 8) * 0x1p-23f - 1.0f;
}

__global__ void fill_uniform_kernel(Bf16* data, int64_t count, uint32_t seed) {
  for (int64_t i = first_index(); i < count; i += all_threads()) {
    data[i] = from_float<Bf16>(uniform(static_cast<uint64_t>(i), seed));
  }
}

// Twelve uniforms of variance 1/3 make a variance of 4.
__global__ void fill_bell_kernel(float* data, int64_t count, uint32_t seed, float deviation) {
  for (int64_t i = first_index(); i < count; i += all_threads()) {
    float sum = 0.0f;
    for (uint32_t j = 0; j < 12; ++j) {
      sum += uniform(static_cast<uint64_t>(i), seed + j * 0x9e3779b9u);  // or neighbours share some
    }
    data[i] = 0.5f * deviation * sum;
  }
}

unsigned fill_blocks(int64_t count) {
  return grid_size(least(divide_up<int64_t>(count, kFillThreads), kMostFillBlocks));
}

}  // namespace

void read_all(const ReadArgs& args, Stream stream) {
  HEADRACE_CHECK(args.bytes % 16 == 0 && args.blocks > 0, args.bytes);
  launch("read_all", read_all_kernel, {dim3{args.blocks}, kReadThreads}, stream,
         static_cast<const uint4*>(args.data), static_cast<int64_t>(args.bytes / 16), args.sinks);
}

void fill_uniform(uint16_t* data, int64_t count, uint32_t seed, Stream stream) {
  launch("fill_uniform", fill_uniform_kernel, {dim3{fill_blocks(count)}, kFillThreads}, stream,
         reinterpret_cast<Bf16*>(data), count, seed);
}

void fill_bell(float* data, int64_t count, uint32_t seed, float deviation, Stream stream) {
  launch("fill_bell", fill_bell_kernel, {dim3{fill_blocks(count)}, kFillThreads}, stream, data,
         count, seed, deviation);
}

}  // namespace headrace::bench
