#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/contract/rope.h"
#include "model/config/moe_config.h"
#include "model/config/stored_quantization.h"
#include "model/config/vision_config.h"
#include "tensor/dtype.h"

namespace headrace {

/// Layout of a checkpoint's tensors.
enum class CheckpointLayout : uint8_t {
  kTorch,   ///< [out, in], separate q/k/v and gate/up
  kPaddle,  ///< [in, out], fused qkv_proj and up_gate_proj
};

/// A decoder's shape and mathematics, from config.json. Every field is range-checked.
struct ModelConfig {
  std::string model_type;    ///< e.g. "qwen3"
  std::string architecture;  ///< e.g. "Qwen3ForCausalLM"
  /// What the config alone suggests; a checkpoint's tensor names decide (load/list_sources.h).
  CheckpointLayout layout = CheckpointLayout::kTorch;

  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t intermediate_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-6f;
  bool tie_word_embeddings = false;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool qk_norm = false;
  MoeConfig moe;
  RopeSpec rope;
  std::optional<VisionConfig> vision;  ///< of a model that sees pictures
  bool causal = true;  ///< false: every token sees all others; then no layer has a window
  /// False: the checkpoint has no head, and the embedding stands for it, so that steps can be tried
  /// (engine/load/weights.h). Nobody wants its logits.
  bool has_head = true;
  std::vector<int32_t> layer_window;  ///< [num_layers] sliding window, 0 = full attention
  DType checkpoint_dtype = DType::kF32;
  StoredQuantization stored_quantization;  ///< of a checkpoint that comes quantized
  /// Not of config.json: the block that guesses tokens is loaded, too (MtpSources). Only for a
  /// family that has_mtp().
  bool uses_mtp = false;
  /// Of config.json and generation_config.json, unique; ids behind the vocabulary left out.
  std::vector<int32_t> eos_token_ids;
};

}  // namespace headrace
