#pragma once

// The kernels on their own, each against what the card gives at most or against a peer, in turns.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/cuda/device/bench_device.h"
#include "benchmarks/cuda/device/read_limit.h"
#include "benchmarks/cuda/kernels/cublaslt.h"
#include "benchmarks/cuda/report.h"
#include "benchmarks/cuda/work.h"

namespace headrace::bench {

struct KernelBenchOptions {
  ModelShape shape = model_shape("llama-3.1-8b");
  size_t read_bytes = size_t{4} << 30;  ///< of the buffer that the read bandwidth is measured on
  /// Weights, activations and caches together are at least this, so that none is in the L2 cache
  /// when its turn comes; 0 = four times the L2 cache.
  size_t cold_bytes = 0;
  std::vector<int64_t> few_rows = {1, 2, 4, 8, 16, 32, 64};
  std::vector<int64_t> some_rows = {128, 256, 512};  ///< decodes of many sequences, short prompts
  int64_t many_rows = 4096;
  std::vector<int64_t> plan_rows = {64, 96, 128, 192, 256, 384, 512, 768, 1024};  ///< by each plan
  int64_t quant_rows = 16;  ///< times int4 weights
  /// Times int4 and int8 weights, by each of their kernels.
  std::vector<int64_t> quant_row_counts = {1, 8, 16, 32, 64, 256, 2048, 4096};
  int64_t prefill_tokens = 16384;
  int64_t decode_sequences = 64, decode_context = 8192;
  TowerShape tower = tower_shape("qwen2.5-vl");
  int64_t tower_rows = 4096;  ///< patches of an image
  int64_t matrix_size = 8192;
  int32_t sample_rows = 128, sample_vocab = 151936;
  int rounds = 11;
  int least_turns = 16;    ///< of short kernels in a timed run
  std::string cublaslt{};  ///< path of the library, "" = wherever the linker finds it
  /// Of bench_kernels(): "attention", "segments", "sampling", "rows", "linears", "linear-plans",
  /// "quantized", "quantized-rows"; "" = all.
  std::string part{};
  bool profile = false;  ///< one run of each kernel is for a profiler (kernel_bench_main.cc)

  RaceOptions race(int turns) const { return {turns, rounds, profile}; }
};

/// What the kernels are held against.
struct Yardsticks {
  ReadLimit read;
  std::optional<CublasLt> peer{};
  std::string peer_missing{};  ///< why there is none
  double matrix_rate = 0;      ///< operations per second of the peer's large product; 0 = no peer
};

/// Operations per second of a square bfloat16 product as cuBLASLt has it.
double measure_matrix_rate(BenchDevice& device, const CublasLt& library, int64_t size);

/// Linears beside cuBLASLt.
void bench_linears(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
                   Report& report);
/// Linears by each plan of tiles and clusters that may be the fastest, beside cuBLASLt: the chosen
/// one first. On a card without wgmma nothing.
void bench_linear_plans(BenchDevice& device, const KernelBenchOptions& options,
                        const Yardsticks& held, Report& report);
/// int4 weights and FP8, beside cuBLASLt's bfloat16 and FP8.
void bench_quantized(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
                     Report& report);
/// int4 and int8 weights times many numbers of rows: each kernel, and bfloat16's linear beside.
void bench_quant_rows(BenchDevice& device, const KernelBenchOptions& options,
                      const Yardsticks& held, Report& report);
/// Prefill of a long prompt; decodes of many sequences.
void bench_attention(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
                     Report& report);
/// Attention of a vision tower: an image as a whole, and in windows.
void bench_segments(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
                    Report& report);
/// Norms and rotations of many rows; sampling.
void bench_rows(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
                Report& report);
void bench_sampling(BenchDevice& device, const KernelBenchOptions& options, const Yardsticks& held,
                    Report& report);

/// All of them, and the limits themselves. One that fails is reported as such, and the others
/// go on. Returns how many failed.
int bench_kernels(BenchDevice& device, const KernelBenchOptions& options, Report& report);

// --- for the above ------------------------------------------------------------------------------

/// Inputs of `bytes` each that are taken in turns.
int cold_turns(BenchDevice& device, const KernelBenchOptions& options, size_t bytes);

/// A contestant's and the reader's medians.
struct BesideReads {
  double seconds = 0;    ///< of one launch
  double read_rate = 0;  ///< bytes per second
};
BesideReads race_reads(BenchDevice& device, const Contestant& contestant, const ReadLimit& limit,
                       const RaceOptions& options);

}  // namespace headrace::bench
