// BERT, RoBERTa and XLM-RoBERTa: layer norms of the residual itself, tables of positions and token
// types, MLPs without a gate.

#include <string>

#include "model/blocks/attention_block.h"
#include "model/blocks/plain_mlp.h"
#include "model/families/encoders/encoder_keys.h"
#include "model/families/family.h"
#include "model/families/llama_layer.h"

namespace headrace {

namespace {

constexpr int64_t kMaxTokenTypes = 1 << 16;

void read_encoder(ConfigReader& reader, ModelConfig& config) {
  config.causal = false;
  config.norm.kind = NormKind::kLayer;
  config.norm_bias = true;
  config.layer_rope.assign(config.layer_rope.size(), kNoRope);
  config.embedding.position_rows = config.max_position_embeddings;
  config.embedding.token_types =
      static_cast<int32_t>(reader.integer("type_vocab_size", 2, 1, kMaxTokenTypes));
  reader.require("position_embedding_type", "absolute");
  reader.require("is_decoder", false);
  reader.require("add_cross_attention", false);
}

/// Of a checkpoint that classifies texts: two layers, over the first token's row.
void read_classifier(ConfigReader& reader, HeadLayer dense, const char* out, ModelConfig& config) {
  const int32_t labels = read_labels(reader, config);
  if (labels == 0) return;
  dense.outputs = config.hidden_size;
  dense.activation = Activation::kTanh;
  config.pool_head = {.layers = {dense, {.module = out, .outputs = labels}}, .classifies = true};
}

void read_bert(ConfigReader& reader, ModelConfig& config) {
  read_encoder(reader, config);
  read_classifier(reader, {.module = "pooler.dense", .is_in_body = true}, "classifier", config);
}

// Positions count from the id of padding, which has a row of the table itself, plus 1.
void read_roberta(ConfigReader& reader, ModelConfig& config) {
  read_encoder(reader, config);
  const int64_t padding = reader.integer("pad_token_id", 1, 0, config.vocab_size - 1);
  if (padding + 1 >= config.max_position_embeddings) {
    reader.fail_value("max_position_embeddings",
                      "must be more than pad_token_id + 1, from where positions count");
  }
  config.embedding.first_position = static_cast<int32_t>(padding) + 1;
  config.max_position_embeddings -= config.embedding.first_position;
  read_classifier(reader, {.module = "classifier.dense"}, "classifier.out_proj", config);
}

LayerSources list_bert_layer(const ModelConfig& config, const LayerNaming& naming) {
  const int64_t hidden = config.hidden_size, wide = config.intermediate_size, d = config.head_dim;
  const int64_t q = config.num_heads * d, kv = config.num_kv_heads * d;
  LayerSources out;
  auto attention = plain_attention(config, naming.layer());
  attention->qkv = naming.linear(
      "qkv",
      {{"attention.self.query", q}, {"attention.self.key", kv}, {"attention.self.value", kv}},
      hidden, true);
  attention->o = naming.linear("o", {{"attention.output.dense", hidden}}, q, true);
  auto mlp = std::make_unique<PlainMlpSources>();
  mlp->up = naming.linear("up", {{"intermediate.dense", wide}}, hidden, true);
  mlp->down = naming.linear("down", {{"output.dense", hidden}}, wide, true);
  mlp->activation = config.gate.activation;
  out.mixer = std::move(attention);
  out.feed_forward = std::move(mlp);
  out.mixer_sum_norm =
      list_norm(config, naming, "mixer_sum_norm", "attention.output.LayerNorm", hidden);
  // The last one is the model's final norm.
  if (naming.layer() + 1 < config.num_layers) {
    out.feed_forward_sum_norm =
        list_norm(config, naming, "mlp_sum_norm", "output.LayerNorm", hidden);
  }
  return out;
}

/// A table's rows from `first` on.
VectorSource list_table(const char* name, const std::string& tensor, int64_t rows, int64_t first,
                        int64_t hidden) {
  return {.name = name,
          .parts = {{.name = tensor,
                     .n = (rows - first) * hidden,
                     .shape = {rows, hidden},
                     .offset = first * hidden}}};
}

void list_bert_ends(const ModelConfig& config, const TensorNaming& naming, ModelSources& out) {
  const int64_t hidden = config.hidden_size;
  const EmbeddingConfig& tables = config.embedding;
  const std::string stem = naming.prefix + "embeddings.";
  out.embedding.parts = {{stem + "word_embeddings.weight", config.vocab_size}};
  out.positions = list_table("positions", stem + "position_embeddings.weight", tables.position_rows,
                             tables.first_position, hidden);
  out.token_types = list_table("token_types", stem + "token_type_embeddings.weight",
                               tables.token_types, 0, hidden);
  out.embedding_norm = list_norm(config, LayerNaming(naming, "", "embeddings."), "embedding_norm",
                                 "LayerNorm", hidden);
  out.final_norm = list_norm(config, LayerNaming(naming, config.num_layers - 1), "mlp_sum_norm",
                             "output.LayerNorm", hidden);
  // A pooler that nothing reads, heads of training, and numbers that follow from the config.
  if (config.pool_head.layers.empty()) out.ignored.push_back(naming.prefix + "pooler.");
  for (const char* name : {"position_ids", "token_type_ids"}) out.ignored.push_back(stem + name);
  for (const char* head : {"cls.", "lm_head."}) out.ignored.emplace_back(head);
}

Family make_family(const char* model_type, const std::vector<std::string_view>& architectures) {
  return {.model_type = model_type,
          .architectures = architectures,
          .defaults = {.vocab_size = 30522,
                       .hidden_size = 768,
                       .intermediate_size = 3072,
                       .num_layers = 12,
                       .num_heads = 12,
                       .max_position_embeddings = 512,
                       .norm_eps_key = "layer_norm_eps",
                       .norm_eps = 1e-12,
                       .tie_word_embeddings = true,
                       .activation = "gelu"},
          .read = read_roberta,
          .list_layer = list_bert_layer,
          .prefixes = {"roberta.", ""},
          .layers = "encoder.layer.",
          .list_ends = list_bert_ends,
          .harmless_keys = {"pooler_*", "directionality"}};
}

}  // namespace

const Family& bert_family() {
  static const Family kFamily = [] {
    Family out = make_family("bert", {"BertModel", "BertForSequenceClassification",
                                      "BertForMaskedLM", "BertForPreTraining"});
    out.read = read_bert;
    out.prefixes = {"bert.", ""};
    return out;
  }();
  return kFamily;
}

const Family& roberta_family() {
  static const Family kFamily = [] {
    Family out = make_family(
        "roberta", {"RobertaModel", "RobertaForSequenceClassification", "RobertaForMaskedLM"});
    out.defaults.vocab_size = 50265;
    return out;
  }();
  return kFamily;
}

const Family& xlm_roberta_family() {
  static const Family kFamily = make_family(
      "xlm-roberta",
      {"XLMRobertaModel", "XLMRobertaForSequenceClassification", "XLMRobertaForMaskedLM"});
  return kFamily;
}

}  // namespace headrace
