#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/contract/state_ops.h"

namespace headrace {

/// The layers of a decoder that keep a state instead of keys and values, from config.json.
struct StateConfig {
  std::vector<bool> layers;  ///< [num_layers] those with a state; empty: none has
  int32_t conv_kernel = 0;   ///< rows that their convolution over time reads
  bool conv_bias = false;    ///< of that convolution and of the linears around it
  DeltaSpec delta;           ///< heads of the gated delta rule
  ScanSpec scan;             ///< heads of Mamba-2's scan

  bool has(int32_t layer) const { return !layers.empty() && layers[static_cast<size_t>(layer)]; }
};

}  // namespace headrace
