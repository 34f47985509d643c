// ModernBERT: norms in front of the blocks, gated MLPs, and windows that look both ways in all
// layers but each so-manieth.

#include "model/families/encoders/encoder_keys.h"
#include "model/families/family.h"
#include "model/families/keys/layer_keys.h"
#include "model/families/llama_layer.h"

namespace headrace {

namespace {

void read_modernbert_classifier(ConfigReader& reader, ModelConfig& config) {
  const std::string pooling = reader.text("classifier_pooling", "cls");
  const Activation activation = read_activation(reader, "classifier_activation", "gelu");
  const bool bias = reader.flag("classifier_bias", false);
  const int32_t labels = read_labels(reader, config);
  if (labels == 0) return;
  if (pooling != "cls" && pooling != "mean") {
    reader.fail_unsupported("classifier_pooling", "this build knows cls and mean");
  }
  config.pool_head = {.layers = {{.module = "head.dense",
                                  .outputs = config.hidden_size,
                                  .bias = bias,
                                  .activation = activation,
                                  .norm = "head.norm"},
                                 {.module = "classifier", .outputs = labels}},
                      .classifies = true,
                      .reads_mean = pooling == "mean"};
}

void read_modernbert(ConfigReader& reader, ModelConfig& config) {
  config.causal = false;
  config.norm.kind = NormKind::kLayer;
  config.norm_bias = reader.flag("norm_bias", false);
  config.mlp_bias = reader.flag("mlp_bias", false);
  read_attention_bias(reader, config);
  const int64_t period = reader.integer("global_attn_every_n_layers", 3, 1, kMaxWindow);
  // Half of it to each side, and the row itself.
  const int64_t window = reader.integer("local_attention", 128, 1, kMaxWindow) / 2 + 1;
  read_windows(
      reader, static_cast<int32_t>(window), [period](int32_t layer) { return layer % period != 0; },
      config);
  reader.require("rope_scaling", JsonValue());
  read_modernbert_classifier(reader, config);
}

LayerSources list_modernbert_layer(const ModelConfig& config, const LayerNaming& naming) {
  const int64_t hidden = config.hidden_size, d = config.head_dim;
  const int64_t q = config.num_heads * d, kv = config.num_kv_heads * d;
  LayerSources out;
  if (naming.layer() > 0) {
    out.mixer_norm = list_norm(config, naming, "input_norm", "attn_norm", hidden);
  }
  out.feed_forward_norm = list_norm(config, naming, "mlp_norm", "mlp_norm", hidden);
  auto attention = plain_attention(config, naming.layer());
  attention->qkv = naming.linear("qkv", {{"attn.Wqkv", q + 2 * kv}}, hidden, config.qkv_bias);
  attention->o = naming.linear("o", {{"attn.Wo", hidden}}, q, config.o_bias);
  auto mlp = std::make_unique<GatedMlpSources>();
  list_gated_mlp(config, naming,
                 {.name = "",
                  .stem = "mlp.",
                  .width = config.intermediate_size,
                  .bias = config.mlp_bias,
                  .fused = true,
                  .gate_up_proj = "Wi",
                  .down_proj = "Wo"},
                 *mlp);
  out.mixer = std::move(attention);
  out.feed_forward = std::move(mlp);
  return out;
}

void list_modernbert_ends(const ModelConfig& config, const TensorNaming& naming,
                          ModelSources& out) {
  const int64_t hidden = config.hidden_size;
  out.embedding.parts = {{naming.prefix + "embeddings.tok_embeddings.weight", config.vocab_size}};
  out.embedding_norm =
      list_norm(config, LayerNaming(naming, "", "embeddings."), "embedding_norm", "norm", hidden);
  out.final_norm =
      list_norm(config, LayerNaming(naming, "", ""), "final_norm", "final_norm", hidden);
  if (config.pool_head.layers.empty()) out.ignored.emplace_back("head.");
  out.ignored.emplace_back("decoder.");
}

}  // namespace

const Family& modernbert_family() {
  static const Family kFamily{
      .model_type = "modernbert",
      .architectures = {"ModernBertModel", "ModernBertForSequenceClassification",
                        "ModernBertForMaskedLM"},
      .defaults = {.vocab_size = 50368,
                   .hidden_size = 768,
                   .intermediate_size = 1152,
                   .num_layers = 22,
                   .num_heads = 12,
                   .max_position_embeddings = 8192,
                   .norm_eps_key = "norm_eps",
                   .norm_eps = 1e-5,
                   .rope_theta = 160000.0,
                   .tie_word_embeddings = true,
                   .activation_key = "hidden_activation",
                   .activation = "gelu"},
      .sliding_rope = SlidingRope{1e4, "local_rope_theta", "global_rope_theta"},
      .read = read_modernbert,
      .list_layer = list_modernbert_layer,
      .prefixes = {"model.", ""},
      .list_ends = list_modernbert_ends,
      .harmless_keys = {"decoder_bias", "embedding_dropout", "mlp_dropout",
                        "deterministic_flash_attn", "reference_compile", "repad_logits_with_grad",
                        "sparse_*", "initializer_cutoff_factor", "position_embedding_type",
                        "layer_norm_eps", "hidden_act"},
  };
  return kFamily;
}

}  // namespace headrace
