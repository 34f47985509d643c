#pragma once

// Whole steps and whole runs of a model with random weights, through the public API: what a program
// that embeds the engine gets.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/cuda/report.h"
#include "benchmarks/cuda/work.h"
#include "headrace/engine.h"

namespace headrace::bench {

/// Sequences that decode together, `context` tokens each at first.
struct DecodeWork {
  std::string number;  ///< of the row
  int32_t sequences = 1, context = 1024;
};

struct EngineBenchOptions {
  ModelShape shape;
  std::string device = "cuda";
  std::string quantization;  ///< as ModelOptions has it: "", "wint4" or "fp8"
  std::vector<DecodeWork> decodes;
  int32_t decode_tokens = 96;    ///< of each sequence, at least
  std::vector<int32_t> prompts;  ///< tokens of prompts that run alone
  std::string prompt_number;     ///< of their rows, behind which that number comes
  std::string serving_number;    ///< "" = no requests
  int32_t requests = 1000;       ///< sharegpt_like(), all there from the beginning
  int32_t shrink = 1;            ///< their lengths are divided by this
  int32_t longest_output = 0;    ///< of a request; 0 = as it comes
  int32_t max_num_seqs = 256;
  int32_t num_kv_blocks = 0;         ///< 0 = as many as fit
  double memory_utilization = 0.85;  ///< of what is free
  int32_t gpus = 1;                  ///< that the model is spread over (tensor_parallel_size)
  /// Bytes per second that the device reads now; empty = shares are not reported.
  std::function<double()> read_bandwidth{};
};

/// Loads the model, measures, and releases it. Throws what the engine throws, and
/// std::runtime_error for a request that ended with an error.
void bench_engine(Engine& engine, const EngineBenchOptions& options, Report& report);

/// The steps of `options.decodes` on one GPU and on `options.gpus`: how many times as fast the
/// latter are. Throws what bench_engine() throws.
void bench_ranks(Engine& engine, const EngineBenchOptions& options, Report& report);

}  // namespace headrace::bench
