#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/contract/experts_op.h"
#include "model/blocks/gated_mlp.h"
#include "model/sources/block_sources.h"

namespace headrace {

/// Experts with a common router. E experts, I the width of one expert, L the columns of their rows:
/// H, unless ExpertSources says otherwise.
struct ExpertGroup {
  RouterSpec router;
  MatrixSource gate;  ///< [E, H]
  /// [E] each, of the router's scores; may be empty.
  VectorSource logit_bias, correction;
  VectorSource factors;  ///< [E] RouterSpec's; may be empty
  MatrixSource gate_up;  ///< [2 I, L] for each expert; without gates [I, L] of use kLinear
  MatrixSource down;     ///< [L, I] for each expert
  /// [2 I] and [L] for each expert; may be empty.
  VectorSource gate_up_bias, down_bias;
  GateSpec activation;  ///< of each expert
  int32_t first = -1;   ///< Experts::first

  std::vector<MatrixSource*> matrices() { return {&gate, &gate_up, &down}; }
  std::vector<VectorSource*> vectors() {
    return {&logit_bias, &correction, &factors, &gate_up_bias, &down_bias};
  }
};

/// Norms of a block in which experts stand beside an MLP (Gemma 4): the MLP reads what the block
/// reads, the others norms of the residual of their own.
struct BesideNorms {
  VectorSource router;        ///< [H]; what the router reads is multiplied by router_scale, too
  VectorSource experts;       ///< [H]
  VectorSource experts_post;  ///< [H] of what the experts give
  VectorSource shared_post;   ///< [H] of what the MLP gives
  float router_scale = 1.0f;

  bool empty() const noexcept { return router.empty(); }
  std::vector<VectorSource*> vectors() { return {&router, &experts, &experts_post, &shared_post}; }
};

/// A mixture of experts. Each row goes through `router.top_k` of many gated MLPs, and through the
/// shared MLP, if there is one.
struct ExpertSources final : FeedForwardSources {
  ExpertGroup experts;
  /// [L, H] and [H, L]: the experts work on what the first makes of a row, and the second makes a
  /// row of their sum. Empty: L is H.
  LinearSource latent_in, latent_out;
  /// If not null, vision rows (StepBatch::modalities) go to `vision`, and text rows to `experts`.
  std::unique_ptr<ExpertGroup> vision;
  /// Null: there is no shared MLP.
  std::unique_ptr<GatedMlpSources> shared;
  VectorSource shared_gate;  ///< [H] sigmoid(x . gate) scales the shared MLP's result; or empty
  BesideNorms norms;         ///< or empty. REQUIRES: a shared MLP, no `vision`

  std::vector<MatrixSource*> matrices() override;
  std::vector<VectorSource*> vectors() override;
  /// A rank gets some inner features of each expert, or some whole experts. All ranks have the
  /// routers.
  void share(const RankPlace& place) override;
  void fold_orders() override;
  void measure(const StepLimits& limits, Carver& carver) const override;
  std::unique_ptr<FeedForward> load(WeightReader& reader) const override;
};

}  // namespace headrace
