// Encoders' configs as published, and the tensors that they stand for.

#include <gtest/gtest.h>

#include <string>

#include "model/load/list_sources.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

ModelConfig parse(const std::string& json) { return parse_model_config(json, ""); }

// cross-encoder/ms-marco-MiniLM-L6-v2
constexpr const char* kMiniLm = R"({
  "architectures": ["BertForSequenceClassification"], "attention_probs_dropout_prob": 0.1,
  "classifier_dropout": null, "gradient_checkpointing": false, "hidden_act": "gelu",
  "hidden_dropout_prob": 0.1, "hidden_size": 384, "id2label": {"0": "LABEL_0"},
  "initializer_range": 0.02, "intermediate_size": 1536, "label2id": {"LABEL_0": 0},
  "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
  "num_attention_heads": 12, "num_hidden_layers": 6, "pad_token_id": 0,
  "position_embedding_type": "absolute", "torch_dtype": "float32", "type_vocab_size": 2,
  "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.1"},
  "transformers_version": "4.52.0", "use_cache": true, "vocab_size": 30522})";

// BAAI/bge-m3
constexpr const char* kBgeM3 = R"({
  "_name_or_path": "", "architectures": ["XLMRobertaModel"], "attention_probs_dropout_prob": 0.1,
  "bos_token_id": 0, "classifier_dropout": null, "eos_token_id": 2, "hidden_act": "gelu",
  "hidden_dropout_prob": 0.1, "hidden_size": 1024, "initializer_range": 0.02,
  "intermediate_size": 4096, "layer_norm_eps": 1e-05, "max_position_embeddings": 8194,
  "model_type": "xlm-roberta", "num_attention_heads": 16, "num_hidden_layers": 24,
  "output_past": true, "pad_token_id": 1, "position_embedding_type": "absolute",
  "torch_dtype": "float32", "transformers_version": "4.33.0", "type_vocab_size": 1,
  "use_cache": true, "vocab_size": 250002})";

// Alibaba-NLP/gte-modernbert-base
constexpr const char* kModernBert = R"({
  "architectures": ["ModernBertModel"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 50281, "classifier_activation": "gelu", "classifier_bias": false,
  "classifier_dropout": 0.0, "classifier_pooling": "mean", "cls_token_id": 50281,
  "decoder_bias": true, "deterministic_flash_attn": false, "embedding_dropout": 0.0,
  "eos_token_id": 50282, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
  "gradient_checkpointing": false, "hidden_activation": "gelu", "hidden_size": 768,
  "initializer_cutoff_factor": 2.0, "initializer_range": 0.02, "intermediate_size": 1152,
  "layer_norm_eps": 1e-05, "local_attention": 128, "local_rope_theta": 10000.0,
  "max_position_embeddings": 8192, "mlp_bias": false, "mlp_dropout": 0.0,
  "model_type": "modernbert", "norm_bias": false, "norm_eps": 1e-05, "num_attention_heads": 12,
  "num_hidden_layers": 22, "pad_token_id": 50283, "position_embedding_type": "absolute",
  "reference_compile": true, "repad_logits_with_grad": false, "sep_token_id": 50282,
  "sparse_pred_ignore_index": -100, "sparse_prediction": false, "torch_dtype": "float16",
  "transformers_version": "4.48.0", "vocab_size": 50368})";

// google/embeddinggemma-300m, with 6 of its 24 layers
constexpr const char* kGemma = R"({
  "_sliding_window_pattern": 6, "architectures": ["Gemma3TextModel"], "attention_bias": false,
  "attention_dropout": 0.0, "attn_logit_softcapping": null, "bos_token_id": 2, "dtype": "float32",
  "eos_token_id": 1, "final_logit_softcapping": null, "head_dim": 256,
  "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 768, "initializer_range": 0.02,
  "intermediate_size": 1152, "layer_types": ["sliding_attention", "sliding_attention",
  "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
  "max_position_embeddings": 2048, "model_type": "gemma3_text", "num_attention_heads": 3,
  "num_hidden_layers": 6, "num_key_value_heads": 1, "pad_token_id": 0,
  "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0,
  "rope_scaling": null, "rope_theta": 1000000.0, "sliding_window": 512,
  "transformers_version": "4.57.0", "use_bidirectional_attention": true, "use_cache": true,
  "vocab_size": 262144})";

TEST(EncoderFamilies, Bert) {
  const ModelConfig c = parse(kMiniLm);
  EXPECT_FALSE(c.causal);
  EXPECT_FALSE(c.has_head);
  EXPECT_EQ(c.head_dim, 32);
  EXPECT_TRUE(c.ropes.empty());
  EXPECT_EQ(c.embedding, (EmbeddingConfig{512, 0, 2}));
  ASSERT_EQ(c.pool_head.layers.size(), 2u);
  EXPECT_EQ(c.pool_head.layers[1].outputs, 1);
  const ModelSources sources = list_sources(c, likely_naming(c));
  EXPECT_EQ(sources.embedding.parts[0].name, "bert.embeddings.word_embeddings.weight");
  EXPECT_EQ(sources.positions.n(), 512 * 384);
  const LayerSources& first = sources.layers.front();
  EXPECT_TRUE(first.mixer_norm.empty());
  EXPECT_EQ(first.feed_forward_sum_norm.bias.parts[0].name,
            "bert.encoder.layer.0.output.LayerNorm.bias");
  EXPECT_TRUE(sources.layers.back().feed_forward_sum_norm.empty());
  EXPECT_EQ(sources.final_norm.weight.parts[0].name,
            "bert.encoder.layer.5.output.LayerNorm.weight");
  EXPECT_EQ(sources.pool_head[0].linear.matrix.parts[0].name, "bert.pooler.dense.weight");
  EXPECT_EQ(sources.pool_head[1].linear.matrix.parts[0].name, "classifier.weight");
}

TEST(EncoderFamilies, XlmRoberta) {
  const ModelConfig c = parse(kBgeM3);
  EXPECT_EQ(c.max_position_embeddings, 8192);
  EXPECT_EQ(c.embedding, (EmbeddingConfig{8194, 2, 1}));
  const ModelSources sources = list_sources(c, likely_naming(c));
  EXPECT_EQ(sources.positions.n(), int64_t{8192} * 1024);
  EXPECT_EQ(sources.positions.parts[0].offset, 2 * 1024);
  EXPECT_TRUE(sources.pool_head.empty());
}

TEST(EncoderFamilies, ModernBert) {
  const ModelConfig c = parse(kModernBert);
  EXPECT_EQ(c.layer_window[0], 0);
  EXPECT_EQ(c.layer_window[1], 65);
  EXPECT_EQ(c.layer_window[21], 0);
  EXPECT_EQ(c.layer_rope[1], 1);
  EXPECT_EQ(c.embedding, EmbeddingConfig{});
  const ModelSources sources = list_sources(c, likely_naming(c));
  EXPECT_TRUE(sources.layers[0].mixer_norm.empty());
  EXPECT_EQ(sources.layers[1].mixer_norm.weight.parts[0].name, "model.layers.1.attn_norm.weight");
  EXPECT_TRUE(sources.layers[1].mixer_norm.bias.empty());
  EXPECT_EQ(sources.layers[0].matrices()[0]->parts[0].name, "model.layers.0.attn.Wqkv.weight");
}

TEST(EncoderFamilies, EmbeddingGemma) {
  const ModelConfig c = parse(kGemma);
  EXPECT_FALSE(c.causal);
  EXPECT_EQ(c.layer_window[0], 257);
  EXPECT_EQ(c.layer_window[5], 0);
  // What is read in the step that writes it gives no block back.
  EXPECT_EQ(list_sources(c, likely_naming(c)).layers[0].mixer->cache_rows().window, 0);
}

}  // namespace
}  // namespace headrace
