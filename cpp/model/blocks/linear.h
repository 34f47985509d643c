#pragma once

// A linear of a block: its weight, its bias, and the adapters' additions.

#include <cstdint>
#include <memory>

#include "model/blocks/block.h"
#include "model/sources/sources.h"
#include "model/weights/weight_reader.h"

namespace headrace {

/// Rows of a linear that gathers (LinearSource::gathers). K: all inputs, n: features of one rank.
/// Empty for other linears.
struct GatherScratch {
  TensorView whole;  // [T, K] the inputs from all ranks; other linears: [0, K]
  TensorView part;   // [T, n] this rank's result; other linears: [0, n]
};

GatherScratch place_gather(bool gathers, int64_t n, int64_t k, const StepLimits& limits,
                           Carver& carver);

struct Linear {
  std::unique_ptr<PackedWeight> weight;
  DeviceVector bias;
  int32_t site = kNoSite;
  bool gathers = false;
  GatherScratch gather = {};
};

Linear load_linear(WeightReader& reader, const LinearSource& source);

/// out = linear(x), with adapters. A linear that gathers takes each rank's columns of x, and gives
/// every rank all features.
void run_linear(const BlockContext& context, const Linear& linear, const TensorView& x,
                const TensorView& out);

/// out [T, n / 2] = what `gate` makes of gate and up of a linear packed with kGateUp. Adapters add
/// to both before. `gate_up` [T, n] is scratch if rows may use adapters, and otherwise empty.
void run_gate_mul(const BlockContext& context, const Linear& linear, const GateSpec& gate,
                  const TensorView& x, const TensorView& gate_up, const TensorView& out);

}  // namespace headrace
