// This machine's limits (peaks.h), as one line of JSON. limits [THREADS] [GIB]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "peaks.h"

int main(int argc, char** argv) {
  using namespace headrace::bench;
  const int default_threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : default_threads;
  const double gib = argc > 2 ? std::max(0.01, std::atof(argv[2])) : 4.0;
  const double read = ReadProbe(threads, static_cast<size_t>(gib * (1u << 30))).bytes_per_second();
  std::printf(
      "{\"threads\": %d, \"read_gb_s\": %.2f, \"f32_gflop_s\": %.1f, \"bf16_gflop_s\": %.1f, "
      "\"int8_gop_s\": %.1f}\n",
      threads, read * 1e-9, f32_peak(threads) * 1e-9, bf16_peak(threads) * 1e-9,
      int8_peak(threads) * 1e-9);
  return 0;
}
