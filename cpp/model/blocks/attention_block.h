#pragma once

#include <cstdint>

#include "backend/contract/backend.h"
#include "model/blocks/linear.h"
#include "model/sources/block_sources.h"

namespace headrace {

/// Softmax attention over a KV cache, with at most as many key/value heads as query heads.
struct AttentionSources final : MixerSources {
  AttentionSpec attention;
  RopeSpec rope;           ///< of no rotary_dim: the layer has none
  int32_t rope_index = 0;  ///< of its table among ModelConfig::ropes; -1: none
  float norm_eps = 1e-6f;  ///< for q_norm and k_norm
  QkNorm qk_norm = QkNorm::kHead;
  bool v_norm = false;  ///< QkvSpec's
  /// The layer whose keys and values it reads: qkv has the queries' rows alone. -1: its own.
  int32_t reads = -1;
  int32_t whole_kv_heads = 0;   ///< of a rank's sources; 0: they are the whole
  VectorSource q_norm, k_norm;  ///< QkvSpec's; may be empty
  PositionFactor q_factor;
  /// Behind q, k and v the rows of qkv give as many numbers as q has: attention's result is
  /// multiplied by their sigmoid.
  bool gate = false;
  LinearSource qkv;    ///< [(nq + 2 nkv) d, H], with a gate [(2 nq + 2 nkv) d, H]; or [nq d, H]
  LinearSource o;      ///< [H, nq d]
  VectorSource sinks;  ///< AttentionSpec's; may be empty

  std::vector<MatrixSource*> matrices() override { return {&qkv.matrix, &o.matrix}; }
  std::vector<VectorSource*> vectors() override {
    return {&q_norm, &k_norm, &qkv.bias, &o.bias, &sinks};
  }
  /// Divides heads among the ranks. If there are fewer key/value heads than ranks, some ranks hold
  /// copies of the same head.
  void share(const RankPlace& place) override;
  PagedRows cache_rows() const override;
  PagedRows whole_cache_rows() const override;
  int32_t reads_rows_of() const override { return reads; }
  void measure(const StepLimits& limits, Carver& carver) const override;
  std::unique_ptr<Mixer> load(WeightReader& reader, int32_t layer) const override;
  int64_t mixed_columns() const override {
    return int64_t{attention.num_heads} * attention.head_dim;
  }
};

}  // namespace headrace
