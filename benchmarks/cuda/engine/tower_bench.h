#pragma once

// Whole vision towers with random weights, through the public API: from an image's pixels to the
// first token of a decoder that is next to nothing.

#include <cstdint>
#include <string>

#include "benchmarks/cuda/report.h"
#include "benchmarks/cuda/work.h"
#include "headrace/engine.h"

namespace headrace::bench {

struct TowerBenchOptions {
  TowerShape shape;
  std::string device = "cuda";
  std::string number;         ///< of the row
  int32_t side = 64;          ///< patches of the image, each way: a multiple of the tower's merging
  int32_t images = 9;         ///< each of other pixels; the median counts
  int32_t num_kv_blocks = 0;  ///< 0 = as many as fit
  double memory_utilization = 0.85;  ///< of what is free
};

/// Loads the model, measures, and releases it. Throws what the engine throws, and
/// std::runtime_error for a request that ended with an error.
void bench_tower(Engine& engine, const TowerBenchOptions& options, Report& report);

}  // namespace headrace::bench
