#pragma once

// A block's linear: its weight, its bias, and what adapters add to it.

#include <cstdint>
#include <memory>

#include "model/blocks/block.h"
#include "model/weights/sources.h"
#include "model/weights/weight_reader.h"

namespace headrace {

struct Linear {
  std::unique_ptr<PackedWeight> weight;
  DeviceVector bias;
  int32_t site = kNoSite;
};

Linear load_linear(WeightReader& reader, const LinearSource& source);

/// out = linear(x), adapters included.
void run_linear(const BlockContext& context, const Linear& linear, const TensorView& x,
                const TensorView& out);

/// out [T, n / 2] = silu(gate) * up of a linear packed with kGateUp. What adapters add comes before
/// the SiLU. `gate_up` [T, n] is scratch where rows may use adapters, and empty elsewhere.
void run_silu_mul(const BlockContext& context, const Linear& linear, const TensorView& x,
                  const TensorView& gate_up, const TensorView& out);

/// residual += linear(x); normed = norm(residual).
void run_add_norm(const BlockContext& context, const Linear& linear, const TensorView& x,
                  const StepRows& step, const TensorView& norm);

}  // namespace headrace
