// gpt-oss: experts with biases and a clamped gate, and attention with sinks.

#include <memory>
#include <utility>

#include "model/families/family.h"
#include "model/families/keys/expert_keys.h"
#include "model/families/keys/layer_keys.h"
#include "model/families/llama_layer.h"
#include "model/families/moe_layer.h"

namespace headrace {

namespace {

/// A gate is clamped, which has no meaning for other activations.
void read_gate(ConfigReader& reader, GateSpec& gate) {
  constexpr double kLeast = 1e-3, kMost = 1e6;
  reader.require("hidden_act", "silu");
  gate.limit = static_cast<float>(reader.number("swiglu_limit", 7.0, kLeast, kMost));
  gate.alpha = static_cast<float>(reader.number("swiglu_alpha", 1.702, kLeast, kMost));
}

void read_gpt_oss(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = config.o_bias = reader.flag("attention_bias", true);
  read_windows(reader, read_window(reader, 128), all_but_last_of(2), config);
  read_gate(reader, config.gate);
  read_expert_counts(reader, {{"num_local_experts", "num_experts"}, 128},
                     {{"num_experts_per_tok", "experts_per_token"}, 4}, config);
  config.moe.router.score = RouterSpec::Score::kSoftmaxAfterTopK;
  config.moe.router.normalize = false;
  config.moe.expert_width = config.intermediate_size;
}

LayerSources list_gpt_oss_layer(const ModelConfig& config, const LayerNaming& naming) {
  const bool blocks = config.stored_quantization.method == StoredMethod::kMxfp4Blocks;
  LayerSources out = list_norms(config, naming);
  auto attention = list_attention(config, naming);
  attention->sinks = {.name = naming.own("sinks"),
                      .parts = {{naming.stored("self_attn.sinks"), config.num_heads}},
                      .is_float = true};
  out.mixer = std::move(attention);
  out.feed_forward =
      list_experts(config, naming,
                   {.gate = "mlp.router",
                    .layout = blocks ? ExpertLayout::kFused : ExpertLayout::kFusedTransposed,
                    .take_turns = true,
                    .fused_biases = true,
                    .gate_bias = true});
  return out;
}

/// What transformers takes where a config has no rope_parameters.
const JsonValue& usual_rope() {
  static const JsonValue kRope{JsonValue::Object{{"rope_type", "yarn"},
                                                 {"factor", 32.0},
                                                 {"beta_fast", 32.0},
                                                 {"beta_slow", 1.0},
                                                 {"truncate", false},
                                                 {"original_max_position_embeddings", 4096}}};
  return kRope;
}

}  // namespace

const Family& gpt_oss_family() {
  static const Family kFamily{
      .model_type = "gpt_oss",
      .architectures = {"GptOssForCausalLM"},
      .defaults = {.vocab_size = 201088,
                   .hidden_size = 2880,
                   .intermediate_size = 2880,
                   .num_layers = 36,
                   .num_heads = 64,
                   .num_kv_heads = 8,
                   .head_dim = 64,
                   .max_position_embeddings = 131072,
                   .norm_eps = 1e-5,
                   .rope_theta = 150000.0},
      .rope = {.usual = &usual_rope()},
      .read = read_gpt_oss,
      .list_layer = list_gpt_oss_layer,
      // The length of training, which the rope's parameters have, too.
      .harmless_keys = with_router_training_keys({"initial_context_length"}),
  };
  return kFamily;
}

}  // namespace headrace
