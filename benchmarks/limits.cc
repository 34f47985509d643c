// This machine's limits, as one line of JSON: sustained read bandwidth and the peak rates of the
// multiply instructions that kernels use. limits [THREADS] [GIB]
//
// Each rate is the best of several repeats: a limit is what the machine can do, not what it did
// while a neighbour was busy. An instruction set that the machine lacks reports 0.

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace {

constexpr int kRepeats = 5;
constexpr int64_t kChains = 16;  // independent accumulators: latency x throughput, with room
constexpr int64_t kIterations = 20'000'000 / kChains;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds that `work(thread)` takes on all threads, started together.
double timed(int threads, const std::function<void(int)>& work) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      ready.fetch_add(1);
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      work(t);
    });
  }
  while (ready.load() != threads) std::this_thread::yield();
  const double start = seconds_now();
  go.store(true, std::memory_order_release);
  for (auto& thread : pool) thread.join();
  return seconds_now() - start;
}

double best_rate(int threads, double amount_per_thread, const std::function<void(int)>& work) {
  double best = 0;
  for (int i = 0; i < kRepeats; ++i) {
    best = std::max(best, amount_per_thread * threads / timed(threads, work));
  }
  return best;
}

__attribute__((target("avx2"))) uint64_t read_bytes(const char* data, size_t bytes) {
  __m256i sum[4] = {};
  for (size_t i = 0; i + 128 <= bytes; i += 128) {
    _mm_prefetch(data + i + 4096, _MM_HINT_T0);
    for (size_t j = 0; j < 4; ++j) {
      const auto* at = reinterpret_cast<const __m256i*>(data + i + 32 * j);
      sum[j] = _mm256_xor_si256(sum[j], _mm256_load_si256(at));
    }
  }
  const __m256i all =
      _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3]));
  return static_cast<uint64_t>(_mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 3));
}

volatile uint64_t sink;

double read_bandwidth(int threads, size_t total) {
  const size_t share = total / static_cast<size_t>(threads) / 4096 * 4096;
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::vector<std::unique_ptr<char, Free>> parts(static_cast<size_t>(threads));
  timed(threads, [&](int t) {
    auto& part = parts[static_cast<size_t>(t)];
    part.reset(static_cast<char*>(std::aligned_alloc(4096, share)));
    std::fill_n(part.get(), share, static_cast<char>(t + 1));
  });
  return best_rate(threads, static_cast<double>(share), [&](int t) {
    sink = sink ^ read_bytes(parts[static_cast<size_t>(t)].get(), share);
  });
}

__attribute__((target("avx2,fma"))) void fma_avx2(int) {
  __m256 acc[kChains];
  for (auto& a : acc) a = _mm256_set1_ps(1.0f);
  const __m256 x = _mm256_set1_ps(0.999f);
  for (int64_t i = 0; i < kIterations; ++i) {
    for (auto& a : acc) a = _mm256_fmadd_ps(a, x, x);
    for (auto& a : acc) asm volatile("" : "+x"(a));
  }
}

__attribute__((target("avx512f"))) void fma_avx512(int) {
  __m512 acc[kChains];
  for (auto& a : acc) a = _mm512_set1_ps(1.0f);
  const __m512 x = _mm512_set1_ps(0.999f);
  for (int64_t i = 0; i < kIterations; ++i) {
    for (auto& a : acc) a = _mm512_fmadd_ps(a, x, x);
    for (auto& a : acc) asm volatile("" : "+v"(a));
  }
}

__attribute__((target("avx512f,avx512bf16"))) void dot_bf16(int) {
  __m512 acc[kChains];
  for (auto& a : acc) a = _mm512_set1_ps(1.0f);
  const __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f));
  for (int64_t i = 0; i < kIterations; ++i) {
    for (auto& a : acc) a = _mm512_dpbf16_ps(a, x, x);
    for (auto& a : acc) asm volatile("" : "+v"(a));
  }
}

__attribute__((target("avx512f,avx512vnni"))) void dot_int8(int) {
  __m512i acc[kChains];
  for (auto& a : acc) a = _mm512_setzero_si512();
  const __m512i x = _mm512_set1_epi8(1);
  for (int64_t i = 0; i < kIterations; ++i) {
    for (auto& a : acc) a = _mm512_dpbusd_epi32(a, x, x);
    for (auto& a : acc) asm volatile("" : "+v"(a));
  }
}

// Operations (multiply and add counted apart) of one thread's run, by operations an instruction.
double operations(int per_instruction) {
  return static_cast<double>(kIterations) * kChains * per_instruction;
}

}  // namespace

int main(int argc, char** argv) {
  const int default_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : default_threads;
  const double gib = argc > 2 ? std::max(0.01, std::atof(argv[2])) : 4.0;
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f");
  const bool bf16 = __builtin_cpu_supports("avx512bf16");
  const bool vnni = __builtin_cpu_supports("avx512vnni");
  const double read = avx2 ? read_bandwidth(threads, static_cast<size_t>(gib * (1u << 30))) : 0;
  const double f32 = avx512 ? best_rate(threads, operations(32), fma_avx512)
                     : avx2 ? best_rate(threads, operations(16), fma_avx2)
                            : 0;
  const double dot = bf16 ? best_rate(threads, operations(64), dot_bf16) : 0;
  const double int8 = vnni ? best_rate(threads, operations(128), dot_int8) : 0;
  std::printf(
      "{\"threads\": %d, \"read_gb_s\": %.2f, \"f32_gflop_s\": %.1f, \"bf16_gflop_s\": %.1f, "
      "\"int8_gop_s\": %.1f}\n",
      threads, read * 1e-9, f32 * 1e-9, dot * 1e-9, int8 * 1e-9);
  return 0;
}
