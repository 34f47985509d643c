// Granite 4: Mamba-2 layers between layers of attention, most of these without RoPE; MLPs, and
// experts beside them.

#include <limits>
#include <memory>

#include "base/check.h"
#include "model/blocks/states/scan_block.h"
#include "model/families/family.h"
#include "model/families/keys/expert_keys.h"
#include "model/families/keys/layer_keys.h"
#include "model/families/keys/state_keys.h"
#include "model/families/llama_layer.h"
#include "model/families/moe_layer.h"

namespace headrace {

namespace {

/// Bounds of steps: two numbers, the second of which may be infinity.
void read_step_limits(ConfigReader& reader, ScanSpec& scan) {
  scan.dt_max = std::numeric_limits<float>::infinity();
  const JsonValue* limits = reader.find("time_step_limit");
  if (limits == nullptr) return;
  const bool fits = limits->is_array() && limits->size() == 2 && limits->array()[0].is_number() &&
                    limits->array()[1].is_number();
  if (fits) {
    scan.dt_min = static_cast<float>(limits->array()[0].number());
    scan.dt_max = static_cast<float>(limits->array()[1].number());
  }
  if (!fits || !(scan.dt_min >= 0.0f) || !(scan.dt_min <= scan.dt_max)) {
    reader.fail_value("time_step_limit", "must be two numbers, 0 or more, in ascending order");
  }
}

void read_scan(ConfigReader& reader, ModelConfig& config) {
  ScanSpec& scan = config.state.scan;
  scan.heads = read_state_heads(reader, "mamba_n_heads", 128);
  scan.groups = read_state_heads(reader, "mamba_n_groups", 1);
  if (scan.heads % scan.groups != 0) {
    reader.fail_value("mamba_n_heads",
                      str_cat("must be a multiple of mamba_n_groups (", scan.groups, ")"));
  }
  scan.state_dim = read_state_dim(reader, "mamba_d_state", 256);
  const int64_t wide = reader.integer("mamba_expand", 2, 1, 64) * config.hidden_size;
  const JsonValue* dim = reader.find("mamba_d_head");
  const auto usual = static_cast<int32_t>(wide / scan.heads);
  const bool is_usual = dim == nullptr || *dim == "auto";
  scan.head_dim = is_usual ? usual : read_state_dim(reader, "mamba_d_head", usual);
  if (scan.x_columns() != wide) {
    reader.fail_value("mamba_n_heads",
                      str_cat("must give, with heads of mamba_d_head (", scan.head_dim,
                              "), mamba_expand * hidden_size (", wide, ")"));
  }
  read_step_limits(reader, scan);
  config.state.conv_kernel = read_conv_kernel(reader, "mamba_d_conv", 4);
  config.state.conv_bias = reader.flag("mamba_conv_bias", true);
  reader.require("mamba_proj_bias", false);
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
  read_scan(reader, config);
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

std::unique_ptr<ScanSources> list_scan(const ModelConfig& config, const LayerNaming& naming) {
  const ScanSpec& heads = config.state.scan;
  const int64_t hidden = config.hidden_size, kernel = config.state.conv_kernel;
  const int64_t x = heads.x_columns(), xbc = heads.xbc_columns();
  const auto numbers = [&](const char* name, const char* tensor, int64_t n) {
    return VectorSource{
        .name = naming.own(name), .parts = {{naming.stored(tensor), n}}, .is_float = true};
  };
  auto out = std::make_unique<ScanSources>();
  out->heads = heads;
  out->kernel = config.state.conv_kernel;
  out->norm_eps = config.norm.eps;
  out->in = naming.linear("scan_in", {{"mamba.in_proj", x + xbc + heads.heads}}, hidden, false);
  out->conv = numbers("scan_conv", "mamba.conv1d.weight", xbc * kernel);
  out->conv.parts.front().shape = {xbc, 1, kernel};
  if (config.state.conv_bias) {
    out->conv_bias = numbers("scan_conv_bias", "mamba.conv1d.bias", xbc);
  }
  out->a_log = numbers("scan_a_log", "mamba.A_log", heads.heads);
  out->dt_bias = numbers("scan_dt_bias", "mamba.dt_bias", heads.heads);
  out->skip = numbers("scan_skip", "mamba.D", heads.heads);
  out->norm = numbers("scan_norm", "mamba.norm.weight", x);
  out->norm.is_norm = true;
  out->out = naming.linear("scan_out", {{"mamba.out_proj", hidden}}, x, false);
  return out;
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
    out.mixer = list_scan(config, naming);
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
