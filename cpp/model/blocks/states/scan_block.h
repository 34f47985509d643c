#pragma once

#include <array>
#include <cstdint>

#include "backend/contract/state_ops.h"
#include "model/blocks/linear.h"
#include "model/sources/block_sources.h"

namespace headrace {

/// A mixer with Mamba-2's scan. Of a row it computes z‖x‖B‖C‖dt; x‖B‖C go through a convolution
/// over time and the scan, whose result is multiplied by silu(z) and normalised in groups, before
/// or behind, or not at all. It keeps the last x‖B‖C and a matrix for each head. X numbers of x, Q
/// of x‖B‖C.
struct ScanSources final : MixerSources {
  ScanSpec heads;
  std::array<float, 5> factors = {1, 1, 1, 1, 1};  ///< of z, x, B, C, dt
  bool gate_first = true;                          ///< GatedNormSpec::gate_first
  int32_t kernel = 0;                              ///< of the convolution
  float norm_eps = 1e-6f;
  LinearSource in;                    ///< [X + Q + heads, H]: z, x, B, C, dt
  VectorSource conv;                  ///< [kernel, Q], of list_taps()
  VectorSource conv_bias;             ///< [Q]; may be empty
  VectorSource a_log, dt_bias, skip;  ///< [heads]
  VectorSource norm;                  ///< [X]; empty: nothing is normalised
  LinearSource out;                   ///< [H, X]

  std::vector<MatrixSource*> matrices() override { return {&in.matrix, &out.matrix}; }
  std::vector<VectorSource*> vectors() override {
    return {&conv, &conv_bias, &a_log, &dt_bias, &skip, &norm, &in.bias, &out.bias};
  }
  /// Divides heads among the ranks, by groups. Throws Error(kUnsupported) if these can't be shared
  /// equally.
  void share(const RankPlace& place) override;
  StateRows state() const override;
  void measure(const StepLimits& limits, Carver& carver) const override;
  std::unique_ptr<Mixer> load(WeightReader& reader, int32_t layer) const override;
  int64_t mixed_columns() const override { return heads.x_columns(); }
};

}  // namespace headrace
