// The CUDA kernels on their own:
//
//   gpu_kernel_bench [--part PART] [--rows FILE] [--cublaslt LIBRARY] [--read-gib N] [--limits]
//                    [--profile]
//
// Every number is a median of interleaved runs, with inputs that are not in the L2 cache, beside
// what it is held against. PART: attention, segments, sampling, rows, linears, linear-plans,
// quantized or quantized-rows; without it all. --rows appends the numbers to FILE as JSON
// (table.py). --limits prints the card's read bandwidth and cuBLASLt's rate of a large product and
// nothing else, as JSON. --profile is for ncu with --profile-from-start off and --graph-profiling
// graph: it sees one recorded run of each kernel, in the order of the rows, whose times mean
// nothing then. Exits with 2 where there is no usable GPU.

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

#include "benchmarks/cuda/device/gpu_main.h"
#include "benchmarks/cuda/kernels/kernel_bench.h"

namespace headrace::bench {
namespace {

struct Arguments {
  KernelBenchOptions options;
  std::string rows;
  bool limits = false;
};

Arguments parse(int argc, char** argv) {
  Arguments out;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--limits") {
      out.limits = true;
      continue;
    }
    if (name == "--profile") {
      out.options.profile = true;
      out.options.rounds = 1;
      continue;
    }
    if (i + 1 == argc) throw std::invalid_argument(name + " is unknown or lacks its value");
    const std::string value = argv[++i];
    if (name == "--rows") {
      out.rows = value;
    } else if (name == "--part") {
      out.options.part = value;
    } else if (name == "--cublaslt") {
      out.options.cublaslt = value;
    } else if (name == "--read-gib") {
      out.options.read_bytes = static_cast<size_t>(positive(value) * 0x1p30) / 16 * 16;
    } else {
      throw std::invalid_argument(name + " " + value + " means nothing here");
    }
  }
  return out;
}

int run(const Arguments& arguments) {
  const std::unique_ptr<BenchDevice> device = make_gpu_device();
  if (arguments.limits) {
    const CublasLt library(arguments.options.cublaslt);
    const double matrices = measure_matrix_rate(*device, library, arguments.options.matrix_size);
    ReadLimit reads(*device, arguments.options.read_bytes);
    std::printf("{\"device\": \"%s\", \"read_gb_s\": %.1f, \"bf16_gflop_s\": %.1f}\n",
                device->traits().name.c_str(), 1e-9 * reads.measure(), 1e-9 * matrices);
    return 0;
  }
  std::printf("%s\n", device->traits().name.c_str());
  Report report(arguments.rows);
  return bench_kernels(*device, arguments.options, report) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  using namespace headrace::bench;  // NOLINT: this program's own
  return gpu_main([&] { return run(parse(argc, argv)); });
}
