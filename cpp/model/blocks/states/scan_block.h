#pragma once

#include <cstdint>

#include "backend/contract/state_ops.h"
#include "model/blocks/linear.h"
#include "model/sources/block_sources.h"

namespace headrace {

/// A mixer with Mamba-2's scan. Of a row it computes z‖x‖B‖C‖dt; x‖B‖C go through a convolution
/// over time and the scan, whose result is multiplied by silu(z) and normalised in groups. It keeps
/// the last x‖B‖C and a matrix for each head. X numbers of x, Q of x‖B‖C.
struct ScanSources final : MixerSources {
  ScanSpec heads;
  int32_t kernel = 0;  ///< of the convolution
  float norm_eps = 1e-6f;
  LinearSource in;                    ///< [X + Q + heads, H]: z, x, B, C, dt
  VectorSource conv;                  ///< [Q, kernel]
  VectorSource conv_bias;             ///< [Q]; may be empty
  VectorSource a_log, dt_bias, skip;  ///< [heads]
  VectorSource norm;                  ///< [X]
  LinearSource out;                   ///< [H, X]

  std::vector<MatrixSource*> matrices() override { return {&in.matrix, &out.matrix}; }
  std::vector<VectorSource*> vectors() override {
    return {&conv, &conv_bias, &a_log, &dt_bias, &skip, &norm};
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
