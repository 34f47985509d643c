// Granite 4: Mamba-2 layers between layers of attention, most of these without RoPE; MLPs, and
// experts beside them.

#include <memory>

#include "model/families/family.h"
#include "model/families/keys/expert_keys.h"
#include "model/families/keys/layer_keys.h"
#include "model/families/keys/state_keys.h"
#include "model/families/llama_layer.h"
#include "model/families/moe_layer.h"
#include "model/families/state/scan_layer.h"

namespace headrace {

namespace {

void read_granite_scan(ConfigReader& reader, ModelConfig& config) {
  const int64_t wide = reader.integer("mamba_expand", 2, 1, 64) * config.hidden_size;
  read_mamba_heads(reader, wide, {.columns_from = "mamba_expand * hidden_size"}, config);
  config.state.scan_in_bias = config.state.scan_out_bias = reader.flag("mamba_proj_bias", false);
}

void read_rope_kind(ConfigReader& reader, ModelConfig& config) {
  const std::string kind = reader.text("position_embedding_type", "nope");
  if (kind != "rope" && kind != "nope") {
    reader.fail_unsupported("position_embedding_type", "this build knows rope and nope");
  }
  if (kind == "nope") config.layer_rope.assign(config.layer_rope.size(), kNoRope);
}

void read_granite_hybrid(ConfigReader& reader, ModelConfig& config) {
  read_attention_bias(reader, config);
  read_granite_factors(reader, config);
  reader.require("hidden_act", "silu");
  read_rope_kind(reader, config);
  read_state_layers(reader, {"mamba", "linear_attention"}, [](int32_t) { return true; }, config);
  read_granite_scan(reader, config);
  const int32_t shared = read_width(reader, "shared_intermediate_size", 1024);
  if (reader.integer("num_local_experts", 8, 0, kMaxExperts) == 0) {
    reader.find("num_experts_per_tok");
    config.intermediate_size = shared;
    return;
  }
  read_expert_counts(reader, {{"num_local_experts"}, 8}, {{"num_experts_per_tok"}, 2}, config);
  config.moe.expert_width = config.intermediate_size;
  config.moe.shared_width = shared;
  config.moe.router.score = RouterSpec::Score::kSoftmaxAfterTopK;
  config.moe.router.normalize = false;
}

std::unique_ptr<FeedForwardSources> list_granite_feed_forward(const ModelConfig& config,
                                                              const LayerNaming& naming) {
  GatedMlpNames shared{.name = "",
                       .stem = "shared_mlp.",
                       .width = config.intermediate_size,
                       .fused = true,
                       .gate_up_proj = "input_linear",
                       .down_proj = "output_linear"};
  if (!has_experts(config, naming.layer())) {
    auto out = std::make_unique<GatedMlpSources>();
    list_gated_mlp(config, naming, shared, *out);
    return out;
  }
  auto out = list_experts(config, naming,
                          {.gate = "block_sparse_moe.router.layer",
                           .fused_gate_up = "block_sparse_moe.input_linear.weight",
                           .fused_down = "block_sparse_moe.output_linear.weight",
                           .layout = ExpertLayout::kFused});
  shared.name = "shared_";
  shared.width = config.moe.shared_width;
  list_gated_mlp(config, naming, shared, *out->shared);
  return out;
}

LayerSources list_granite_layer(const ModelConfig& config, const LayerNaming& naming) {
  LayerSources out = list_norms(config, naming);
  if (config.state.has(naming.layer())) {
    out.mixer = list_scan(config, naming, "mamba.");
  } else {
    out.mixer = list_attention(config, naming);
  }
  out.feed_forward = list_granite_feed_forward(config, naming);
  return out;
}

}  // namespace

const Family& granitemoehybrid_family() {
  static const Family kFamily{
      .model_type = "granitemoehybrid",
      .architectures = {"GraniteMoeHybridForCausalLM"},
      .defaults = {.max_position_embeddings = 2048},
      .read = read_granite_hybrid,
      .list_layer = list_granite_layer,
      .harmless_keys = with_router_training_keys(
          {"mamba_chunk_size", "init_method", "normalization_function", "logits_to_keep"}),
  };
  return kFamily;
}

}  // namespace headrace
