#include "peaks.h"

#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

namespace headrace::bench {

namespace {

constexpr int kRepeats = 5;
constexpr int64_t kChains = 16;  // independent accumulators: latency x throughput, with room
// Loops over the chains are unrolled, or the compiler keeps them in memory.
constexpr int64_t kIterations = 20'000'000 / kChains;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds that `work(thread)` takes on all threads, started together.
double timed(int threads, const std::function<void(int)>& work) {
  std::latch ready(threads), go(1);
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      ready.count_down();
      go.wait();
      work(t);
    });
  }
  ready.wait();
  const double start = seconds_now();
  go.count_down();
  for (auto& thread : pool) thread.join();
  return seconds_now() - start;
}

double best_rate(int threads, double amount_per_thread, int repeats,
                 const std::function<void(int)>& work) {
  double best = 0;
  for (int i = 0; i < repeats; ++i) {
    best = std::max(best, amount_per_thread * threads / timed(threads, work));
  }
  return best;
}

// Prefetches of its own only slow this loop down; the hardware's see one sequential stream.
__attribute__((target("avx2"))) uint64_t read_bytes(const char* data, size_t bytes) {
  __m256i sum[8] = {};
  for (size_t i = 0; i + 256 <= bytes; i += 256) {
    for (size_t j = 0; j < 8; ++j) {
      const auto* at = reinterpret_cast<const __m256i*>(data + i + 32 * j);
      sum[j] = _mm256_add_epi64(sum[j], _mm256_load_si256(at));
    }
  }
  __m256i all = sum[0];
  for (size_t j = 1; j < 8; ++j) all = _mm256_add_epi64(all, sum[j]);
  return static_cast<uint64_t>(_mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 3));
}

volatile uint64_t sink;

__attribute__((target("avx2,fma"))) void fma_avx2(int) {
  __m256 acc[kChains];
#pragma GCC unroll 16
  for (auto& a : acc) a = _mm256_set1_ps(1.0f);
  const __m256 x = _mm256_set1_ps(0.999f);
  for (int64_t i = 0; i < kIterations; ++i) {
#pragma GCC unroll 16
    for (auto& a : acc) a = _mm256_fmadd_ps(a, x, x);
#pragma GCC unroll 16
    for (auto& a : acc) asm volatile("" : "+x"(a));
  }
}

__attribute__((target("avx512f"))) void fma_avx512(int) {
  __m512 acc[kChains];
#pragma GCC unroll 16
  for (auto& a : acc) a = _mm512_set1_ps(1.0f);
  const __m512 x = _mm512_set1_ps(0.999f);
  for (int64_t i = 0; i < kIterations; ++i) {
#pragma GCC unroll 16
    for (auto& a : acc) a = _mm512_fmadd_ps(a, x, x);
#pragma GCC unroll 16
    for (auto& a : acc) asm volatile("" : "+v"(a));
  }
}

__attribute__((target("avx512f,avx512bf16"))) void dot_bf16(int) {
  __m512 acc[kChains];
#pragma GCC unroll 16
  for (auto& a : acc) a = _mm512_set1_ps(1.0f);
  const __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f));
  for (int64_t i = 0; i < kIterations; ++i) {
#pragma GCC unroll 16
    for (auto& a : acc) a = _mm512_dpbf16_ps(a, x, x);
#pragma GCC unroll 16
    for (auto& a : acc) asm volatile("" : "+v"(a));
  }
}

__attribute__((target("avx512f,avx512vnni"))) void dot_int8(int) {
  __m512i acc[kChains];
#pragma GCC unroll 16
  for (auto& a : acc) a = _mm512_set1_epi32(1);
  const __m512i x = _mm512_set1_epi8(1);
  for (int64_t i = 0; i < kIterations; ++i) {
#pragma GCC unroll 16
    for (auto& a : acc) a = _mm512_dpbusd_epi32(a, x, x);
#pragma GCC unroll 16
    for (auto& a : acc) asm volatile("" : "+v"(a));
  }
}

// Operations (multiply and add counted apart) of one thread's run, by operations an instruction.
double operations(int per_instruction) {
  return static_cast<double>(kIterations) * kChains * per_instruction;
}

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

}  // namespace

ReadProbe::ReadProbe(int threads, size_t bytes)
    : share_(bytes / static_cast<size_t>(threads) / 4096 * 4096),
      parts_(static_cast<size_t>(threads)) {
  timed(threads, [&](int t) {
    auto& part = parts_[static_cast<size_t>(t)];
    part.reset(static_cast<char*>(std::aligned_alloc(size_t{2} << 20, share_)));
    ::madvise(part.get(), share_, MADV_HUGEPAGE);
    std::fill_n(part.get(), share_, static_cast<char>(t + 1));
  });
}

double ReadProbe::bytes_per_second(int repeats) {
  if (!has_avx2()) return 0;
  const auto threads = static_cast<int>(parts_.size());
  return best_rate(threads, static_cast<double>(share_), repeats, [&](int t) {
    sink = sink ^ read_bytes(parts_[static_cast<size_t>(t)].get(), share_);
  });
}

double f32_peak(int threads) {
  if (__builtin_cpu_supports("avx512f")) {
    return best_rate(threads, operations(32), kRepeats, fma_avx512);
  }
  return has_avx2() ? best_rate(threads, operations(16), kRepeats, fma_avx2) : 0;
}

double bf16_peak(int threads) {
  return __builtin_cpu_supports("avx512bf16")
             ? best_rate(threads, operations(64), kRepeats, dot_bf16)
             : 0;
}

double int8_peak(int threads) {
  return __builtin_cpu_supports("avx512vnni")
             ? best_rate(threads, operations(128), kRepeats, dot_int8)
             : 0;
}

}  // namespace headrace::bench
