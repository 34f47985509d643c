#pragma once

#include <cstdint>
#include <memory>

#include "backend/contract/experts_op.h"
#include "model/blocks/gated_mlp.h"
#include "model/sources/block_sources.h"

namespace headrace {

/// Experts that have a router in common. E experts, I the width of one.
struct ExpertGroup {
  RouterSpec router;
  MatrixSource gate;        ///< [E, H]
  VectorSource correction;  ///< [E]; may be empty
  MatrixSource gate_up;     ///< [2 I, H] of each expert
  MatrixSource down;        ///< [H, I] of each
  int32_t first = -1;       ///< Experts::first
};

/// A mixture of experts: each row goes through `router.top_k` gated MLPs of many, and through one
/// that all rows share, if there is one.
struct ExpertSources final : FeedForwardSources {
  ExpertGroup experts;
  /// Not null: where the rows of vision (StepBatch::modalities) go, and those of text to `experts`.
  std::unique_ptr<ExpertGroup> vision;
  /// Null: none.
  std::unique_ptr<GatedMlpSources> shared;
  VectorSource shared_gate;  ///< [H]: what the shared MLP gives counts sigmoid(x . gate); or empty

  std::vector<MatrixSource*> matrices() override;
  std::vector<VectorSource*> vectors() override;
  /// Of each expert some of its inner features, or some experts; routers are everywhere.
  void share(const RankPlace& place) override;
  void fold_orders() override;
  void measure(const StepLimits& limits, Carver& carver) const override;
  std::unique_ptr<FeedForward> load(WeightReader& reader) const override;
};

}  // namespace headrace
