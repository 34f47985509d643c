#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/contract/backend.h"
#include "model/blocks/linear.h"
#include "model/sources/block_sources.h"

namespace headrace {

/// Latent attention (DeepSeek-V2) in its absorbed form: queries are taken to the latent vectors'
/// space, and what heads gather there is taken back, so that one row of each token serves all heads
/// and every row of a step is computed alike. R rank, Dn and Dr the parts of a query that stay and
/// turn, Dv a head's result.
struct LatentSources final : MixerSources {
  LatentSpec spec;     ///< without the norm
  float scale = 1.0f;  ///< of scores
  int32_t value_dim = 0;
  RopeSpec rope;
  int32_t rope_index = 0;  ///< of its table among ModelConfig::ropes

  LinearSource q_down;    ///< [Q, H], or empty: q reads the block's input
  VectorSource q_norm;    ///< [Q], with q_down
  LinearSource q;         ///< [nq (Dn + Dr), Q or H]
  LinearSource kv_down;   ///< [R + Dr, H]
  VectorSource kv_norm;   ///< [R]
  MatrixSource key_up;    ///< nq of [R, Dn]
  MatrixSource value_up;  ///< nq of [Dv, R]
  LinearSource o;         ///< [H, nq Dv]

  std::vector<MatrixSource*> matrices() override {
    return {&q_down.matrix, &q.matrix, &kv_down.matrix, &key_up, &value_up, &o.matrix};
  }
  std::vector<VectorSource*> vectors() override {
    return {&q_down.bias, &q_norm, &q.bias, &kv_down.bias, &kv_norm, &o.bias};
  }
  /// Divides heads among the ranks; each has all latent rows.
  void share(const RankPlace& place) override;
  PagedRows cache_rows() const override { return latent_rows(spec.row_dim(), DType::kF32); }
  void measure(const StepLimits& limits, Carver& carver) const override;
  std::unique_ptr<Mixer> load(WeightReader& reader, int32_t layer) const override;
  int64_t mixed_columns() const override { return int64_t{spec.num_heads} * value_dim; }
};

}  // namespace headrace
