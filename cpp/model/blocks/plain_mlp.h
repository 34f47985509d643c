#pragma once

#include "model/blocks/linear.h"
#include "model/sources/block_sources.h"

namespace headrace {

/// down(activation(up(x))), without a gate; I is the intermediate size.
struct PlainMlpSources final : FeedForwardSources {
  LinearSource up;    ///< [I, H]
  LinearSource down;  ///< [H, I]
  Activation activation = Activation::kGeluErf;

  std::vector<MatrixSource*> matrices() override { return {&up.matrix, &down.matrix}; }
  std::vector<VectorSource*> vectors() override { return {&up.bias, &down.bias}; }
  void share(const RankPlace& place) override;
  void measure(const StepLimits& limits, Carver& carver) const override;
  std::unique_ptr<FeedForward> load(WeightReader& reader) const override;
};

}  // namespace headrace
