#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/contract/activation.h"
#include "backend/contract/attention_op.h"
#include "backend/contract/rope.h"
#include "base/checked_math.h"
#include "model/config/moe_config.h"
#include "model/config/state_config.h"
#include "model/config/stored_quantization.h"
#include "model/config/vision_config.h"
#include "tensor/dtype.h"

namespace headrace {

/// Layout of a checkpoint's tensors.
enum class CheckpointLayout : uint8_t {
  kTorch,   ///< [out, in], separate q/k/v and gate/up
  kPaddle,  ///< [in, out], fused qkv_proj and up_gate_proj
};

enum class NormKind : uint8_t {
  kRms,    ///< x / sqrt(mean(x^2) + eps) * w
  kLayer,  ///< (x - mean(x)) / sqrt(var(x) + eps) * w, perhaps + b
};

/// The norms of a model's rows.
struct NormSpec {
  NormKind kind = NormKind::kRms;
  float eps = 1e-6f;
  bool operator==(const NormSpec&) const = default;
};

/// Latent attention (LatentSources). rank 0: the model has none.
struct LatentConfig {
  int32_t q_rank = 0;  ///< 0: queries have no vector of their own
  int32_t rank = 0, nope_dim = 0, rope_dim = 0, value_dim = 0;

  int32_t row_dim() const noexcept { return round_up(rank + rope_dim, 16); }
};

/// Keys and values of a layer.
struct LayerHeads {
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;          ///< of queries, too
  bool values_are_keys = false;  ///< v_proj is k_proj
  /// The layer whose keys and values it reads instead of its own; -1: none.
  int32_t reads = -1;
};

/// Most rotary embeddings that a model's layers choose among.
inline constexpr size_t kMaxRopes = 2;
/// In place of a rotary embedding's number: the layer has none.
inline constexpr int32_t kNoRope = -1;

/// What a token's embedding has beside the vocabulary's row (BERT).
struct EmbeddingConfig {
  /// Rows of a table of positions, of which `first_position` is position 0's; 0: there is none.
  int32_t position_rows = 0, first_position = 0;
  int32_t token_types = 0;  ///< rows of a table of token types; 0: there is none
  bool operator==(const EmbeddingConfig&) const = default;
};

/// A layer behind pooling: of a classifier, or a Dense module of sentence-transformers.
struct HeadLayer {
  std::string module;       ///< in the checkpoint
  bool is_in_body = false;  ///< the prefix of the model's other tensors stands before it
  int32_t outputs = 0;
  bool bias = true;
  std::optional<Activation> activation = {};
  std::string norm = {};  ///< the module of a norm of the model's kind behind it; "": none
  bool operator==(const HeadLayer&) const = default;
};

/// What is made of the row that a prompt is pooled to.
struct PoolHeadConfig {
  std::vector<HeadLayer> layers;  ///< in their order; empty: there is no such head
  /// Of a classifier: whether it reads the mean of all rows; else the first token's.
  bool classifies = false, reads_mean = false;
};

/// A decoder's shape and mathematics, from config.json. Every field is range-checked.
struct ModelConfig {
  std::string model_type;  ///< e.g. "qwen3"
  /// model_type of the model with pictures that this is the text model of (wrapper.h); else empty.
  std::string wrapper;
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
  NormSpec norm;
  /// Added to the weights of norms, in float32: 1 where the checkpoint has them as differences.
  float norm_offset = 0.0f;
  float embedding_scale = 1.0f;     ///< of the tokens' embeddings
  float residual_scale = 1.0f;      ///< of what blocks add to the residual
  float feed_forward_scale = 1.0f;  ///< of what feed-forward blocks add, besides
  float logit_scale = 1.0f;
  float logit_cap = 0.0f;  ///< logits are cap * tanh(logit / cap), after the scale; 0: as they are
  bool tie_word_embeddings = false;
  bool qkv_bias = false, o_bias = false, mlp_bias = false, norm_bias = false;
  bool qk_norm = false;
  bool v_norm = false;  ///< QkvSpec::v_norm
  QkNorm qk_norm_kind = QkNorm::kHead;
  float attention_scale = 0.0f;  ///< 0: 1 / sqrt(head_dim)
  float attention_cap = 0.0f;    ///< AttentionSpec::soft_cap
  bool attention_gate = false;   ///< q_proj gives each head's queries, and gates of its result
  PositionFactor q_factor;
  GateSpec gate;  ///< of MLPs; of those without a gate its activation
  /// [num_layers]; empty: num_kv_heads and head_dim are each layer's.
  std::vector<LayerHeads> layer_heads;
  std::vector<int32_t> layer_mlp;  ///< [num_layers] intermediate sizes; empty: all alike
  /// Numbers that each layer gets of each token beside the residual (per_layer_inputs.h), 0: none;
  /// and of how many tokens their table is.
  int32_t per_layer_input = 0, per_layer_vocab = 0;
  bool layer_scalars = false;  ///< each layer multiplies the residual by a number, at last
  MoeConfig moe;
  StateConfig state;
  LatentConfig latent;
  std::vector<RopeSpec> ropes;         ///< up to kMaxRopes; none, if no layer has one
  std::vector<int32_t> layer_rope;     ///< [num_layers] index in `ropes`, or kNoRope
  std::optional<VisionConfig> vision;  ///< of a model that sees pictures
  /// False: tokens see those behind them, too: within a layer's window, or all.
  bool causal = true;
  EmbeddingConfig embedding;
  PoolHeadConfig pool_head;
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

  /// Numbers of a head's key in the cache, or of a latent row.
  int32_t key_dim() const noexcept { return latent.rank > 0 ? latent.row_dim() : head_dim; }
  LayerHeads heads_of(int32_t layer) const {
    if (layer_heads.empty()) return {num_kv_heads, head_dim};
    return layer_heads[static_cast<size_t>(layer)];
  }
};

}  // namespace headrace
