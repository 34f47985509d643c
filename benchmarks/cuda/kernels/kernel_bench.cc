#include "benchmarks/cuda/kernels/kernel_bench.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <stdexcept>

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
  using Part = void(BenchDevice&, const KernelBenchOptions&, const Yardsticks&, Report&);
  struct Named {
    const char* name;
    Part* run;
  };
  constexpr std::array kParts = {
      Named{"attention", bench_attention}, Named{"segments", bench_segments},
      Named{"sampling", bench_sampling},   Named{"rows", bench_rows},
      Named{"linears", bench_linears},     Named{"linear-plans", bench_linear_plans},
      Named{"quantized", bench_quantized}, Named{"quantized-rows", bench_quant_rows}};
  const auto wanted = [&](const Named& part) {
    return options.part.empty() || options.part == part.name;
  };
  if (std::none_of(kParts.begin(), kParts.end(), wanted)) {
    throw std::invalid_argument("there is no part " + options.part);
  }
  Yardsticks held{.read = ReadLimit(device, options.read_bytes)};
  const auto report_reads = [&](const char* number) {
    report.add(
        rate_row(number, "a buffer that is only read", 1e-9 * held.read.measure(), "GB/s", 0, ""));
  };
  report_reads("read-bandwidth");
  int failed = 0;
  const auto guarded = [&](const char* name, const auto& work) {
    try {
      work();
    } catch (const std::exception& e) {
      ++failed;
      report.missing(name, e.what());
    }
  };
  try {
    held.peer.emplace(options.cublaslt);
  } catch (const std::exception& e) {
    held.peer_missing = e.what();
  }
  if (held.peer) {
    guarded("matrix-rate", [&] {
      held.matrix_rate = measure_matrix_rate(device, *held.peer, options.matrix_size);
      report.add(rate_row("matrix-rate", held.peer->name() + ", square, bf16",
                          1e-12 * held.matrix_rate, "TFLOP/s", 0, ""));
    });
  }
  for (const Named& part : kParts) {
    if (!wanted(part)) continue;
    guarded(part.name, [&] { part.run(device, options, held, report); });
  }
  report_reads("read-bandwidth-after");
  return failed;
}

}  // namespace headrace::bench
