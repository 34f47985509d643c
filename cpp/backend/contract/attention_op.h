#pragma once

// What rope_kv_write() and attention() do to the heads of one layer (Backend, backend.h).

#include <cmath>
#include <cstdint>

#include "tensor/tensor_view.h"

namespace headrace {

/// What the RMS norm of queries and keys, with a weight, takes together, and when.
enum class QkNorm : uint8_t {
  kHead,           ///< each head, before RoPE (Qwen3, Gemma 3)
  kHeadAfterRope,  ///< each head, after RoPE (Hunyuan)
  kRow,            ///< all heads of a row, before RoPE (OLMo 2). Of a model on one rank only
};

/// What the queries of later positions are multiplied by (Ministral 3).
struct PositionFactor {
  float beta = 0.0f;     ///< 0: the factor is 1
  int32_t original = 0;  ///< positive, unless beta is 0

  /// 1 + beta * ln(1 + floor(position / original)).
  float at(int32_t position) const noexcept {
    if (beta == 0.0f) return 1.0f;
    return static_cast<float>(1.0 +
                              static_cast<double>(beta) * std::log(1.0 + position / original));
  }
};

/// Heads of one layer and what happens to queries, keys and values before attention.
struct QkvSpec {
  int32_t num_heads = 0;     ///< nq, a multiple of nkv
  int32_t num_kv_heads = 0;  ///< nkv
  int32_t head_dim = 0;      ///< d, a multiple of 16, at most kLargestHead
  /// Weights of the norm of q and of k, act dtype or kF32: [d], of QkNorm::kRow [nq*d] and [nkv*d];
  /// data == null: none.
  TensorView q_norm, k_norm;
  float norm_eps = 1e-6f;  ///< of all norms here
  QkNorm norm = QkNorm::kHead;
  bool v_norm = false;           ///< each head of v has an RMS norm without a weight (Gemma 4)
  PositionFactor q_factor = {};  ///< of q, at last
};

struct AttentionSpec {
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  float scale = 1.0f;  ///< multiplies q . k
  /// Row at position p sees keys at positions (p - window, p], or if bidirectional (p - window,
  /// p + window); 0: all of [0, p], or all. Block tables may lack the blocks behind it that
  /// PagedRows::window names.
  int32_t window = 0;
  /// A row within SeqSlice::both_ways sees keys behind it, too. False: all rows do. They see all
  /// keys of those that their sequence has after this step, so that what is to see each other must
  /// come in one step.
  bool causal = true;
  /// Scores l = scale * q . k become cap * tanh(l / cap) before the mask (Gemma 2); 0: they stay.
  float soft_cap = 0.0f;
  /// [nq] f32, or data == null: none. A score of each head that has no key and no value (gpt-oss):
  /// it is in the softmax's sum as it is, neither scaled nor capped.
  TensorView sinks = {};
};

/// Behind the last key that the row at `position` sees, of the sequence's `num_keys`. `seen`:
/// SightRun's.
constexpr int32_t attention_end(const AttentionSpec& spec, int32_t position, int32_t num_keys,
                                int32_t seen) {
  if (spec.causal) return seen > position ? seen : position + 1;
  return spec.window > 0 && spec.window < num_keys - position ? position + spec.window : num_keys;
}

}  // namespace headrace
