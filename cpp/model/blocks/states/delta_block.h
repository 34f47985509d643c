#pragma once

#include <cstdint>

#include "backend/contract/state_ops.h"
#include "model/blocks/linear.h"
#include "model/sources/block_sources.h"

namespace headrace {

/// A mixer with the gated delta rule (Qwen3-Next, Qwen3.5). Of a row it computes q‖k‖v‖z and the
/// logits b‖a of its gates; q‖k‖v go through a convolution over time and the rule; what each head
/// reads is normalised and multiplied by silu(z). It keeps the last q‖k‖v and a matrix for each
/// head of v. Hv heads of v, U their numbers, K those of k, Q = 2 K + U.
struct DeltaSources final : MixerSources {
  DeltaSpec heads;
  int32_t kernel = 0;  ///< of the convolution
  float norm_eps = 1e-6f;
  LinearSource in;              ///< [Q + U, H]: q, k, v, z
  LinearSource gates;           ///< [2 Hv, H]: b, a; MatrixRole::kGates
  VectorSource conv;            ///< [kernel, Q], of list_taps()
  VectorSource a_log, dt_bias;  ///< [Hv]
  VectorSource norm;            ///< [value_dim], of all heads
  LinearSource out;             ///< [H, U]

  std::vector<MatrixSource*> matrices() override {
    return {&in.matrix, &gates.matrix, &out.matrix};
  }
  std::vector<VectorSource*> vectors() override { return {&conv, &a_log, &dt_bias, &norm}; }
  /// Divides heads among the ranks, by heads of k. Throws Error(kUnsupported) if these can't be
  /// shared equally.
  void share(const RankPlace& place) override;
  StateRows state() const override;
  void measure(const StepLimits& limits, Carver& carver) const override;
  std::unique_ptr<Mixer> load(WeightReader& reader, int32_t layer) const override;
  int64_t mixed_columns() const override { return heads.value_columns(); }
};

}  // namespace headrace
