#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/contract/state_ops.h"

namespace headrace {

/// What a layer of one block is.
enum class LayerBlock : uint8_t { kScan, kAttention, kMlp, kExperts };

/// Factors of what a mixer reads and gives.
struct BranchScales {
  float in = 1.0f, out = 1.0f;
};

/// The layers of a decoder that keep a state instead of keys and values, or beside them, from
/// config.json.
struct StateConfig {
  std::vector<bool> layers;  ///< [num_layers] those with a state; empty: none has
  int32_t conv_kernel = 0;   ///< rows that their convolution over time reads
  bool conv_bias = false;    ///< of that convolution and of the linears around it
  DeltaSpec delta;           ///< heads of the gated delta rule
  ScanSpec scan;             ///< heads of Mamba-2's scan
  bool scan_in_bias = false, scan_out_bias = false;     ///< of its linears
  bool scan_norm = true;                                ///< whether its result is normalised
  bool gate_first = true;                               ///< GatedNormSpec's, of that norm
  std::array<float, 5> scan_factors = {1, 1, 1, 1, 1};  ///< of z, x, B, C, dt
  BranchScales attention_branch, scan_branch;           ///< of layers that have both
  std::vector<LayerBlock> blocks;  ///< [num_layers] of a model whose layers have one; else empty

  bool has(int32_t layer) const { return !layers.empty() && layers[static_cast<size_t>(layer)]; }
};

}  // namespace headrace
