#pragma once

#include <cstdint>

#include "backend/contract/backend.h"
#include "model/blocks/linear.h"
#include "model/sources/block_sources.h"

namespace headrace {

/// Softmax attention over a KV cache, with as many key/value heads as queries or fewer.
struct AttentionSources final : MixerSources {
  AttentionSpec attention;
  RopeSpec rope;
  float norm_eps = 1e-6f;       ///< of the heads' norms
  VectorSource q_norm, k_norm;  ///< [d] norms of each head before RoPE; may be empty
  LinearSource qkv;             ///< [(nq + 2 nkv) d, H]
  LinearSource o;               ///< [H, nq d]

  std::vector<MatrixSource*> matrices() override { return {&qkv.matrix, &o.matrix}; }
  std::vector<VectorSource*> vectors() override { return {&q_norm, &k_norm, &qkv.bias, &o.bias}; }
  /// Heads by rank. Fewer key/value heads than ranks are on several of them.
  void share(const RankPlace& place) override;
  void measure(const StepLimits& limits, Carver& carver) const override;
  std::unique_ptr<Mixer> load(WeightReader& reader, int32_t layer) const override;
  int64_t mixed_columns() const override {
    return int64_t{attention.num_heads} * attention.head_dim;
  }
};

}  // namespace headrace
