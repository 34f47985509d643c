// The text models of Qwen3.5, 3.6 and 3.8: dense, and with experts.

#include "model/families/family.h"
#include "model/families/keys/expert_keys.h"
#include "model/families/state/qwen_state_layer.h"

namespace headrace {

namespace {

void read_qwen3_5(ConfigReader& reader, ModelConfig& config) {
  read_qwen_state_keys(reader, config);
  if (const std::string gate = reader.text("output_gate_type", "swish");
      gate != "swish" && gate != "silu") {
    reader.fail_unsupported("output_gate_type", "this build knows swish");
  }
}

void read_qwen3_5_moe(ConfigReader& reader, ModelConfig& config) {
  read_qwen3_5(reader, config);
  read_qwen_experts(reader, 256, 8, config);
  reader.require("norm_topk_prob", true);
}

LayerSources list_qwen3_5_layer(const ModelConfig& config, const LayerNaming& naming) {
  const DeltaSpec& heads = config.state.delta;
  return list_qwen_state_layer(config, naming,
                               {.in = {{"linear_attn.in_proj_qkv", heads.qkv_columns()},
                                       {"linear_attn.in_proj_z", heads.value_columns()}},
                                .gates = {{"linear_attn.in_proj_b", heads.value_heads},
                                          {"linear_attn.in_proj_a", heads.value_heads}}});
}

/// The class's theta is no published model's.
constexpr RopeRules kRope{.partial_rotary = 0.25, .requires_theta = true, .has_mrope_keys = true};

}  // namespace

const Family& qwen3_5_text_family() {
  static const Family kFamily{
      .model_type = "qwen3_5_text",
      .architectures = {"Qwen3_5ForCausalLM"},
      .defaults = {.vocab_size = 248320,
                   .intermediate_size = 12288,
                   .num_heads = 16,
                   .num_kv_heads = 4,
                   .head_dim = 256},
      .rope = kRope,
      .read = read_qwen3_5,
      .list_layer = list_qwen3_5_layer,
      .list_mtp = list_qwen_mtp,
      .harmless_keys = {"mtp_*"},
  };
  return kFamily;
}

const Family& qwen3_5_moe_text_family() {
  static const Family kFamily{
      .model_type = "qwen3_5_moe_text",
      .architectures = {"Qwen3_5MoeForCausalLM"},
      .defaults = {.vocab_size = 248320,
                   .hidden_size = 2048,
                   .num_layers = 40,
                   .num_heads = 16,
                   .num_kv_heads = 2,
                   .head_dim = 256},
      .rope = kRope,
      .read = read_qwen3_5_moe,
      .list_layer = list_qwen3_5_layer,
      .list_mtp = list_qwen_mtp,
      .harmless_keys = with_router_training_keys({"mtp_*"}),
  };
  return kFamily;
}

}  // namespace headrace
