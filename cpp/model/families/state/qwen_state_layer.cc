#include "model/families/state/qwen_state_layer.h"

#include <memory>

#include "base/check.h"
#include "model/blocks/states/conv_block.h"
#include "model/blocks/states/delta_block.h"
#include "model/families/family.h"
#include "model/families/keys/expert_keys.h"
#include "model/families/keys/layer_keys.h"
#include "model/families/keys/state_keys.h"
#include "model/families/llama_layer.h"
#include "model/families/moe_layer.h"
#include "model/families/mtp_layer.h"

namespace headrace {

namespace {

void read_delta_heads(ConfigReader& reader, DeltaSpec& heads) {
  heads.key_heads = read_state_heads(reader, "linear_num_key_heads", 16);
  heads.value_heads = read_state_heads(reader, "linear_num_value_heads", 32);
  heads.key_dim = read_state_dim(reader, "linear_key_head_dim", 128);
  heads.value_dim = read_state_dim(reader, "linear_value_head_dim", 128);
  if (heads.value_heads % heads.key_heads != 0) {
    reader.fail_value("linear_num_value_heads", str_cat("must be a multiple of "
                                                        "linear_num_key_heads (",
                                                        heads.key_heads, ")"));
  }
}

std::unique_ptr<DeltaSources> list_delta(const ModelConfig& config, const LayerNaming& naming,
                                         const DeltaParts& parts) {
  const DeltaSpec& heads = config.state.delta;
  const int64_t hidden = config.hidden_size;
  const int64_t columns = heads.qkv_columns();
  const auto numbers = [&](const char* name, const char* tensor, int64_t n) {
    return VectorSource{
        .name = naming.own(name), .parts = {{naming.stored(tensor), n}}, .is_float = true};
  };
  auto out = std::make_unique<DeltaSources>();
  out->heads = heads;
  out->kernel = config.state.conv_kernel;
  out->norm_eps = config.norm.eps;
  out->in = naming.linear("delta_in", parts.in, hidden, false);
  out->gates = naming.linear("delta_gates", parts.gates, hidden, false);
  out->gates.matrix.role = MatrixRole::kGates;
  out->conv = list_taps(naming.own("delta_taps"), naming.stored("linear_attn.conv1d.weight"),
                        columns, config.state.conv_kernel);
  out->a_log = numbers("delta_a_log", "linear_attn.A_log", heads.value_heads);
  out->dt_bias = numbers("delta_dt_bias", "linear_attn.dt_bias", heads.value_heads);
  out->norm = numbers("delta_norm", "linear_attn.norm.weight", heads.value_dim);
  out->norm.is_norm = true;
  out->out =
      naming.linear("delta_out", {{"linear_attn.out_proj", hidden}}, heads.value_columns(), false);
  return out;
}

}  // namespace

void read_qwen_state_keys(ConfigReader& reader, ModelConfig& config) {
  config.norm_offset = 1.0f;
  config.qk_norm = true;
  config.attention_gate = true;
  reader.require("attn_output_gate", true);
  reader.require("attention_bias", false);
  reader.require("hidden_act", "silu");
  reader.require("mamba_ssm_dtype", "float32");
  const int64_t interval = reader.integer("full_attention_interval", 4, 1, kMaxWindow);
  read_state_layers(reader, {"linear_attention"}, all_but_last_of(interval), config);
  config.state.conv_kernel = read_conv_kernel(reader, "linear_conv_kernel_dim", 4);
  read_delta_heads(reader, config.state.delta);
}

void read_qwen_experts(ConfigReader& reader, int32_t num_experts, int32_t top_k,
                       ModelConfig& config) {
  read_expert_counts(reader, {{"num_experts"}, num_experts}, {{"num_experts_per_tok"}, top_k},
                     config);
  config.moe.expert_width = read_width(reader, "moe_intermediate_size", 512);
  config.moe.shared_width = read_width(reader, "shared_expert_intermediate_size", 512);
  config.moe.shared_gate = true;
}

LayerSources list_qwen_state_layer(const ModelConfig& config, const LayerNaming& naming,
                                   const DeltaParts& parts) {
  LayerSources out = list_norms(config, naming);
  if (config.state.has(naming.layer())) {
    out.mixer = list_delta(config, naming, parts);
  } else {
    out.mixer = list_attention(config, naming);
  }
  out.feed_forward = list_experts_or_mlp(config, naming, {});
  return out;
}

MtpSources list_qwen_mtp(const ModelConfig& config, const TensorNaming& naming) {
  TensorNaming whole = naming;
  whole.prefix.clear();
  MtpSources out = list_mtp_block(config, LayerNaming(whole, "mtp.", "mtp."),
                                  {.embedding_norm = "pre_fc_norm_embedding",
                                   .hidden_norm = "pre_fc_norm_hidden",
                                   .join = "fc",
                                   .final_norm = "norm"});
  const LayerNaming layer(whole, "mtp.", "mtp.layers.0.");
  out.layer = list_norms(config, layer);
  out.layer.mixer = list_attention(config, layer);
  if (config.moe.router.num_experts > 0) {
    out.layer.feed_forward = list_experts(config, layer, {});
  } else {
    out.layer.feed_forward = list_mlp(config, layer);
  }
  return out;
}

}  // namespace headrace
