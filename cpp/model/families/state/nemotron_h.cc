// Nemotron-H and its successors (Nano v2, Nemotron 3): each layer is one block behind a norm:
// Mamba-2, attention without RoPE, an MLP with relu^2, or such experts.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "model/families/family.h"
#include "model/families/keys/expert_keys.h"
#include "model/families/keys/state_keys.h"
#include "model/families/llama_layer.h"
#include "model/families/moe_layer.h"
#include "model/families/state/scan_layer.h"

namespace headrace {

namespace {

constexpr const char* kTypesKey = "layers_block_type";
constexpr const char* kPatternKey = "hybrid_override_pattern";
constexpr size_t kMostLayers = 1024;

/// What a layer's block is called: in hybrid_override_pattern, and in lists of types.
struct BlockName {
  LayerBlock block;
  char letter;
  TypeNames types;
};

const std::vector<BlockName>& block_names() {
  static const std::vector<BlockName> kNames = {
      {LayerBlock::kScan, 'M', {"linear_attention", "mamba"}},
      {LayerBlock::kAttention, '*', {"full_attention", "attention"}},
      {LayerBlock::kMlp, '-', {"mlp"}},
      {LayerBlock::kExperts, 'E', {"moe"}}};
  return kNames;
}

std::vector<LayerBlock> read_block_types(ConfigReader& reader, const char* key,
                                         const JsonValue& types) {
  if (!types.is_array()) reader.fail_value(key, "must list the types of layers");
  std::vector<LayerBlock> out;
  for (const JsonValue& type : types.array()) {
    const std::string_view name = type.is_string() ? std::string_view(type.text()) : "";
    const auto found = std::ranges::find_if(block_names(), [&](const BlockName& known) {
      return std::ranges::find(known.types, name) != known.types.end();
    });
    if (found == block_names().end()) {
      reader.fail_unsupported(key,
                              "this build knows linear_attention, full_attention, mlp and moe");
    }
    out.push_back(found->block);
  }
  return out;
}

std::vector<LayerBlock> read_block_pattern(ConfigReader& reader) {
  std::vector<LayerBlock> out;
  for (const char letter : reader.text(kPatternKey, "")) {
    const auto found = std::ranges::find(block_names(), letter, &BlockName::letter);
    if (found == block_names().end()) {
      reader.fail_unsupported(kPatternKey,
                              "this build knows M (Mamba-2), * (attention), - (MLP) "
                              "and E (experts)");
    }
    out.push_back(found->block);
  }
  return out;
}

/// By the list of types under either name, or else by the pattern; where several are there they
/// must agree.
std::vector<LayerBlock> read_blocks(ConfigReader& reader) {
  std::optional<std::vector<LayerBlock>> blocks;
  const auto take = [&](const char* key, std::vector<LayerBlock> found) {
    if (blocks && *blocks != found) {
      reader.fail_value(key, "must agree with the other key that lists layers");
    }
    blocks = std::move(found);
  };
  for (const char* key : {kTypesKey, "layer_types"}) {
    if (const JsonValue* types = reader.find(key)) take(key, read_block_types(reader, key, *types));
  }
  if (reader.find(kPatternKey) != nullptr) take(kPatternKey, read_block_pattern(reader));
  const char* key = reader.has_key(kPatternKey) ? kPatternKey : kTypesKey;
  if (!blocks || blocks->empty() || blocks->size() > kMostLayers) {
    reader.fail_value(key, str_cat("must list 1 to ", kMostLayers, " layers"));
  }
  if (std::ranges::find(*blocks, LayerBlock::kAttention) == blocks->end()) {
    reader.fail_unsupported(key, "this build runs models with attention in some layer");
  }
  return *blocks;
}

/// How many layers there are: the lists say so, and num_hidden_layers must agree with them.
void read_nemotron_layers(ConfigReader& reader, ModelConfig& config) {
  config.state.blocks = read_blocks(reader);
  const size_t count = config.state.blocks.size();
  const auto said = reader.optional_integer("num_hidden_layers", 1, kMostLayers);
  if (said && static_cast<size_t>(*said) != count) {
    reader.fail_value("num_hidden_layers",
                      str_cat("must be the number of listed layers (", count, ")"));
  }
  config.num_layers = static_cast<int32_t>(count);
  config.layer_window.assign(count, 0);
  config.layer_rope.assign(count, kNoRope);
}

void read_nemotron_scan(ConfigReader& reader, ModelConfig& config) {
  StateConfig& state = config.state;
  reader.require("mamba_hidden_act", "silu");
  reader.require("mamba_proj_bias", false);
  state.scan.heads = read_state_heads(reader, "mamba_num_heads", 128);
  state.scan.groups = read_state_heads(reader, "n_groups", 8);
  check_scan_groups(reader, state.scan, "mamba_num_heads", "n_groups");
  state.scan.head_dim = read_state_dim(reader, "mamba_head_dim", 64);
  state.scan.state_dim = read_state_dim(reader, "ssm_state_size", 128);
  read_step_limits(reader, state.scan);
  state.conv_kernel = read_conv_kernel(reader, "conv_kernel", 4);
  state.conv_bias = reader.flag("use_conv_bias", true);
  state.scan_in_bias = state.scan_out_bias = reader.flag("use_bias", false);
}

void read_nemotron_experts(ConfigReader& reader, ModelConfig& config) {
  read_expert_counts(reader, {{"n_routed_experts", "num_local_experts"}, 8},
                     {{"num_experts_per_tok"}, 2}, config);
  MoeConfig& moe = config.moe;
  moe.expert_width = read_width(reader, "moe_intermediate_size", 7688);
  moe.shared_width = read_width(reader, "moe_shared_expert_intermediate_size", 7688);
  const auto latent = reader.optional_integer("moe_latent_size", 1, kMaxIntermediate);
  moe.latent_width = static_cast<int32_t>(latent.value_or(0));
  moe.has_correction = true;
  moe.router.score = RouterSpec::Score::kSigmoid;
  moe.router.normalize = reader.flag("norm_topk_prob", true);
  moe.router.norm_eps = 1e-20f;
  moe.router.scale = static_cast<float>(reader.number("routed_scaling_factor", 1.0, 1e-6, 1e6));
  read_expert_groups(reader, moe.router);
  const std::vector<LayerBlock>& blocks = config.state.blocks;
  if (std::ranges::find(blocks, LayerBlock::kExperts) == blocks.end()) moe = {};
}

void read_nemotron_h(ConfigReader& reader, ModelConfig& config) {
  read_nemotron_layers(reader, config);
  reader.require("attention_bias", false);
  reader.require("attention_head_dim", config.head_dim);
  reader.require("sliding_window", JsonValue());
  reader.require("mlp_hidden_act", "relu2");
  config.mlp_bias = reader.flag("mlp_bias", false);
  read_nemotron_scan(reader, config);
  read_nemotron_experts(reader, config);
}

std::unique_ptr<AttentionSources> list_nemotron_attention(const ModelConfig& config,
                                                          const LayerNaming& naming) {
  const int64_t hidden = config.hidden_size, d = config.head_dim;
  const int64_t q = config.num_heads * d, kv = config.num_kv_heads * d;
  auto out = plain_attention(config, naming.layer());
  out->qkv = naming.linear("qkv", {{"mixer.q_proj", q}, {"mixer.k_proj", kv}, {"mixer.v_proj", kv}},
                           hidden, false);
  out->o = naming.linear("o", {{"mixer.o_proj", hidden}}, q, false);
  return out;
}

std::unique_ptr<FeedForwardSources> list_nemotron_feed_forward(const ModelConfig& config,
                                                               const LayerNaming& naming,
                                                               LayerBlock block) {
  if (block == LayerBlock::kExperts) {
    return list_experts(config, naming,
                        {.gate = "mixer.gate",
                         .experts = "mixer.experts.",
                         .gate_proj = nullptr,
                         .correction = "mixer.gate.e_score_correction_bias",
                         .shared = "mixer.shared_experts.",
                         .latent_in = "mixer.fc1_latent_proj",
                         .latent_out = "mixer.fc2_latent_proj"});
  }
  auto out = std::make_unique<GatedMlpSources>();
  list_gated_mlp(config, naming,
                 {.name = "",
                  .stem = "mixer.",
                  .width = config.intermediate_size,
                  .bias = config.mlp_bias,
                  .gate_proj = nullptr},
                 *out);
  return out;
}

LayerSources list_nemotron_layer(const ModelConfig& config, const LayerNaming& naming) {
  LayerSources out;
  const LayerBlock block = config.state.blocks[static_cast<size_t>(naming.layer())];
  NormSource norm = list_norm(config, naming, "norm", "norm", config.hidden_size);
  if (block == LayerBlock::kMlp || block == LayerBlock::kExperts) {
    out.feed_forward_norm = std::move(norm);
    out.feed_forward = list_nemotron_feed_forward(config, naming, block);
    return out;
  }
  out.mixer_norm = std::move(norm);
  if (block == LayerBlock::kScan) {
    out.mixer = list_scan(config, naming, "mixer.");
  } else {
    out.mixer = list_nemotron_attention(config, naming);
  }
  return out;
}

}  // namespace

// time_step_min, _max and _floor are for drawing initial weights.
const Family& nemotron_h_family() {
  static const Family kFamily{
      .model_type = "nemotron_h",
      .architectures = {"NemotronHForCausalLM"},
      .defaults = {.vocab_size = 131072,
                   .intermediate_size = 21504,
                   .num_kv_heads = 8,
                   .head_dim = 128,
                   .max_position_embeddings = 4096,
                   .norm_eps_key = "layer_norm_epsilon",
                   .norm_eps = 1e-5},
      .read = read_nemotron_h,
      .list_layer = list_nemotron_layer,
      .prefixes = {"backbone.", "model."},
      .embedding = "embeddings",
      .final_norm = "norm_f",
      .harmless_keys = with_router_training_keys(
          {"chunk_size", "expand", "hidden_act", "mamba_ssm_cache_dtype",
           "moe_shared_expert_overlap", "mtp_*", "n_shared_experts", "norm_eps",
           "num_logits_to_keep", "num_nextn_predict_layers", "rescale_prenorm_residual",
           "residual_in_fp32", "rms_norm_eps", "time_step_floor", "time_step_max", "time_step_min",
           "time_step_rank", "use_mamba_kernels"}),
  };
  return kFamily;
}

}  // namespace headrace
