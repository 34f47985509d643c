#include "kernel_bench.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>

namespace headrace::bench {

namespace {

constexpr int kMostTurns = 64;

}  // namespace

int cold_turns(BenchDevice& device, const KernelBenchOptions& options, size_t bytes) {
  const size_t cold = options.cold_bytes > 0 ? options.cold_bytes : 4 * device.traits().l2_bytes;
  return static_cast<int>(std::clamp<size_t>((cold + bytes - 1) / bytes, 1, kMostTurns));
}

BesideReads race_reads(BenchDevice& device, const Contestant& contestant, const ReadLimit& limit,
                       const RaceOptions& options) {
  Contestant reads = limit.contestant();
  // One buffer's worth for all turns.
  reads.launch = [launch = reads.launch](int turn) {
    if (turn == 0) launch(turn);
  };
  const auto seconds = race(device, {contestant, reads}, options);
  return {seconds[0], static_cast<double>(limit.bytes()) / (seconds[1] * options.turns)};
}

int bench_kernels(BenchDevice& device, const KernelBenchOptions& options, Report& report) {
  using Part = void(BenchDevice&, const KernelBenchOptions&, const ReadLimit&, Report&);
  struct Named {
    const char* name;
    Part* run;
  };
  constexpr std::array kParts = {Named{"attention", bench_attention},
                                 Named{"sampling", bench_sampling}, Named{"rows", bench_rows},
                                 Named{"linears", bench_linears}};
  ReadLimit limit(device, options.read_bytes);
  report.add(rate_row("read-bandwidth", "a buffer that is only read", 1e-9 * limit.measure(),
                      "GB/s", 0, ""));
  int failed = 0;
  for (const Named& part : kParts) {
    try {
      part.run(device, options, limit, report);
    } catch (const std::exception& e) {
      ++failed;
      report.missing(part.name, e.what());
    }
  }
  report.add(rate_row("read-bandwidth-after", "the same once more", 1e-9 * limit.measure(), "GB/s",
                      0, ""));
  return failed;
}

}  // namespace headrace::bench
