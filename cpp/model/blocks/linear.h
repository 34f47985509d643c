#pragma once

// A block's linear: its weight, its bias, and what adapters add to it.

#include <cstdint>
#include <memory>

#include "model/blocks/block.h"
#include "model/sources/sources.h"
#include "model/weights/weight_reader.h"

namespace headrace {

/// Where a linear that gathers (LinearSource::gathers) has its rows; K all inputs, n a rank's
/// features.
struct GatherScratch {
  TensorView whole;  // [T, K] what all ranks give it; of another linear [0, K]
  TensorView part;   // [T, n] what this rank makes of it; [0, n]
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

/// out = linear(x), adapters included. One that gathers takes each rank's columns of x, and gives
/// every rank all features.
void run_linear(const BlockContext& context, const Linear& linear, const TensorView& x,
                const TensorView& out);

/// out [T, n / 2] = silu(gate) * up of a linear packed with kGateUp. What adapters add comes before
/// the SiLU. `gate_up` [T, n] is scratch where rows may use adapters, and empty elsewhere.
void run_silu_mul(const BlockContext& context, const Linear& linear, const TensorView& x,
                  const TensorView& gate_up, const TensorView& out);

/// residual += delta, of all ranks; normed = norm(residual).
void run_add_norm(const BlockContext& context, const StepRows& step, const TensorView& norm);

/// residual += linear(x), of all ranks; normed = norm(residual).
void run_add_norm(const BlockContext& context, const Linear& linear, const TensorView& x,
                  const StepRows& step, const TensorView& norm);

}  // namespace headrace
