#pragma once

#include <cstdint>

#include "model/blocks/linear.h"
#include "model/sources/block_sources.h"

namespace headrace {

/// down(gated(x)), where GateSpec makes gated(x) of gate(x) and up(x); I is the intermediate size.
/// Without a gate the activation of up(x) stands for gated(x).
struct GatedMlpSources final : FeedForwardSources {
  LinearSource gate_up;  ///< [2 I, H] of use kGateUp; without a gate [I, H] of use kLinear
  LinearSource down;     ///< [H, I]
  GateSpec gate;

  bool gated() const noexcept { return gate_up.matrix.use == WeightUse::kGateUp; }
  int64_t width() const noexcept { return gate_up.matrix.n() / (gated() ? 2 : 1); }

  std::vector<MatrixSource*> matrices() override { return {&gate_up.matrix, &down.matrix}; }
  std::vector<VectorSource*> vectors() override { return {&gate_up.bias, &down.bias}; }
  void share(const RankPlace& place) override;
  void measure(const StepLimits& limits, Carver& carver) const override;
  std::unique_ptr<FeedForward> load(WeightReader& reader) const override;
};

/// The MLP's weights and scratch, for a whole block or a part of one.
class GatedMlp {
 public:
  GatedMlp(const GatedMlpSources& sources, WeightReader& reader);

  const PackedWeight& first_weight() const { return *gate_up_.weight; }
  const Linear& down() const { return down_; }
  void place(const StepLimits& limits, Carver& carver);
  /// gated(x) [T, I], in the scratch.
  TensorView gate_and_up(const BlockContext& context, const TensorView& x) const;

 private:
  Linear gate_up_, down_;
  GateSpec gate_;
  bool has_gate_;
  int64_t width_;
  TensorView gated_;         // [T, I]
  TensorView gate_up_rows_;  // [T, 2 I]; without adapters or a gate [0, 2 I]
};

}  // namespace headrace
