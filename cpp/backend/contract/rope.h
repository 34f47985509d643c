#pragma once

// Rotary position embedding: which angles. How they turn a vector is the backend's rope op.

#include <cstdint>
#include <vector>

namespace headrace {

/// Pairing of the rotated elements of a head.
enum class RopeStyle : uint8_t {
  kNeox,         ///< element i pairs with i + rotary_dim / 2 (Llama, Qwen)
  kInterleaved,  ///< element 2i pairs with 2i + 1 (ERNIE-4.5, GLM)
};

/// Angles of a model. The angle of pair i at position p is p * inv_freq[i], in float32, and the
/// cosine and sine are multiplied by `attention_factor` (YaRN's mscale; 1 elsewhere). p is the
/// row's position, or of models that see images that on the pair's axis: time, height or width.
struct RopeSpec {
  RopeStyle style = RopeStyle::kNeox;
  int32_t rotary_dim = 0;  ///< even, <= head_dim; elements beyond it are left alone
  float attention_factor = 1.0f;
  std::vector<float> inv_freq;  ///< [rotary_dim / 2], all scaling but by length applied
  /// [rotary_dim / 2] 0, 1 or 2: which of StepBatch::rope_positions each pair goes by. Empty: 0.
  std::vector<uint8_t> axes = {};

  /// Dynamic NTK scaling: a row whose rope_len exceeds dynamic_original_max uses frequencies of
  ///   base' = base * (factor * rope_len / original_max - (factor - 1)) ^ (dim / (dim - 2)).
  /// 0 turns it off. The engine sets rope_len to the prompt's length for prompt tokens and to
  /// position + 1 for generated ones, which is what transformers' generate computes, and keeps
  /// it a property of the token: chunking and preemption don't change it.
  int32_t dynamic_original_max = 0;
  double dynamic_base = 0.0;
  double dynamic_factor = 1.0;
  /// [rotary_dim / 2], or empty. LongRoPE: these are the frequencies of a row whose rope_len
  /// exceeds dynamic_original_max, in place of dynamic NTK scaling's.
  std::vector<float> long_inv_freq = {};
};

}  // namespace headrace
