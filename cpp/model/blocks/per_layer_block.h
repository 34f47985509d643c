#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/blocks/linear.h"
#include "model/sources/block_sources.h"

namespace headrace {

/// projection(f(gate(x)) * p), where p [P] is what the layer gets of the row's token beside the
/// residual x (StepRows::per_layer). Gemma 4 has it behind each layer's MLP. Every rank computes
/// all of it.
struct PerLayerSources final : FeedForwardSources {
  LinearSource gate;        ///< [P, H]
  LinearSource projection;  ///< [H, P]
  Activation activation = Activation::kGeluTanh;
  int32_t layer = 0;  ///< whose columns of StepRows::per_layer

  std::vector<MatrixSource*> matrices() override { return {&gate.matrix, &projection.matrix}; }
  std::vector<VectorSource*> vectors() override { return {}; }
  void share(const RankPlace&) override {}
  void measure(const StepLimits& limits, Carver& carver) const override;
  std::unique_ptr<FeedForward> load(WeightReader& reader) const override;
};

}  // namespace headrace
