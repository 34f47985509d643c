#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/config/config_reader.h"
#include "model/config/model_config.h"
#include "model/config/rope_keys.h"
#include "model/sources/model_sources.h"

namespace headrace {

/// What transformers takes for keys that a config.json leaves out.
struct FamilyDefaults {
  int32_t vocab_size = 32000;
  int32_t hidden_size = 4096;
  int32_t intermediate_size = 11008;
  int32_t num_layers = 32;
  int32_t num_heads = 32;
  int32_t num_kv_heads = 0;  ///< 0: as many as heads
  int32_t head_dim = 0;      ///< 0: hidden_size / num_heads
  int32_t max_position_embeddings = 32768;
  const char* norm_eps_key = "rms_norm_eps";
  double norm_eps = 1e-6;
  double rope_theta = 10000.0;
  bool tie_word_embeddings = false;
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  bool latent = false;  ///< head_dim is no key of attention, and read() sets it
};

/// Attention and a gated MLP as ModelConfig's flags say, with tensors named as Llama's are.
LayerSources list_llama_layer(const ModelConfig& config, const LayerNaming& naming);

/// What a family with pictures adds: its tower, and where its decoder's keys and tensors stand.
struct VisionFamily {
  /// Reads vision_config, and of the model's keys those that concern the tower. The decoder's shape
  /// is in `config` already.
  VisionConfig (*read)(ConfigReader& vision, ConfigReader& model,
                       const ModelConfig& config) = nullptr;
  /// What the tower reads; naming.vision as found among `prefixes`.
  VisionSources (*list)(const ModelConfig& config, const TensorNaming& naming) = nullptr;
  std::vector<const char*> text_prefixes;    ///< before the decoder's tensors; the usual first
  std::vector<const char*> prefixes;         ///< before the tower's, likewise
  std::vector<std::string_view> text_types;  ///< model_type that text_config may have
  std::vector<const char*> heads = {"lm_head.weight"};  ///< names that the head may have
  /// Whether tie_word_embeddings also counts within text_config.
  bool nested_tie = false;
  MropeDefaults mrope;
};

/// One model family: everything that sets it apart from the others.
struct Family {
  std::string_view model_type;                  ///< in config.json
  std::vector<std::string_view> architectures;  ///< that this build runs; the first is the usual
  FamilyDefaults defaults;
  RopeStyle rope_style = RopeStyle::kNeox;
  RopeRules rope = {};
  /// Layers with a window have a rotary embedding of their own.
  std::optional<SlidingRope> sliding_rope = {};
  bool has_paddle_layout = false;
  /// A head in the checkpoint is used and an embedding stands for one that isn't there, whatever
  /// tie_word_embeddings says.
  bool head_if_stored = false;
  /// Reads the family's own keys: biases, norms, windows. `config` has its shape already, and for
  /// each layer a layer_window of 0 and a layer_rope of 0.
  void (*read)(ConfigReader& reader, ModelConfig& config) = nullptr;
  /// What a layer reads, and so which blocks it is made of.
  LayerSources (*list_layer)(const ModelConfig& config,
                             const LayerNaming& naming) = list_llama_layer;
  /// Of ModelConfig::per_layer_input. Null: no model of the family has such inputs.
  PerLayerInputSources (*list_per_layer)(const ModelConfig& config,
                                         const TensorNaming& naming) = nullptr;
  /// Before the decoder's tensors, the usual first. Files of the body alone have none.
  std::vector<const char*> prefixes = {"model."};
  const char* embedding = "embed_tokens";  ///< the module of the tokens' embedding
  const char* final_norm = "norm";         ///< of the norm behind the last layer
  const char* layers = "layers.";          ///< before a layer's number, in tensors' names
  /// Of an encoder, which gives embeddings and no text: lists its embedding and its final norm.
  /// Null: they are as Llama's.
  void (*list_ends)(const ModelConfig& config, const TensorNaming& naming,
                    ModelSources& out) = nullptr;
  /// What the block that guesses tokens reads. Null: its checkpoints have none.
  MtpSources (*list_mtp)(const ModelConfig& config, const TensorNaming& naming) = nullptr;
  bool mtp_is_layer = false;  ///< checkpoints have the block as a layer behind the last
  /// Null: its models see no pictures.
  const VisionFamily* vision = nullptr;
  /// Keys of published configs that don't change what is computed ("fuse_*": a beginning).
  std::vector<std::string_view> harmless_keys;

  bool is_encoder() const noexcept { return list_ends != nullptr; }
  /// In torch's layout, with that prefix.
  TensorNaming torch_naming(const char* prefix) const {
    return {.layout = CheckpointLayout::kTorch, .prefix = prefix, .layers = layers};
  }
};

/// All families of this build.
std::span<const Family* const> all_families();
/// Null if there is none of that model_type.
const Family* find_family(std::string_view model_type);

const Family& llama_family();
const Family& mistral_family();
const Family& qwen2_family();
const Family& qwen3_family();
const Family& ernie4_5_family();
const Family& ernie4_5_moe_family();
const Family& mixtral_family();
const Family& gemma2_family();
const Family& gemma3_text_family();
const Family& gemma4_text_family();
const Family& smollm3_family();
const Family& olmo2_family();
const Family& olmo3_family();
const Family& phi3_family();
const Family& granite_family();
const Family& exaone4_family();
const Family& glm4_family();
const Family& seed_oss_family();
const Family& ministral3_family();
const Family& cohere2_family();
const Family& hunyuan_v1_dense_family();
const Family& qwen2_moe_family();
const Family& qwen3_moe_family();
const Family& glm4_moe_family();
const Family& gpt_oss_family();
const Family& lfm2_family();
const Family& lfm2_moe_family();
const Family& qwen3_5_text_family();
const Family& qwen3_5_moe_text_family();
const Family& qwen3_next_family();
const Family& granitemoehybrid_family();
const Family& nemotron_h_family();
const Family& falcon_h1_family();
const Family& qwen2_vl_family();
const Family& qwen2_5_vl_family();
const Family& smolvlm_family();
const Family& idefics3_family();
const Family& qwen3_vl_family();
const Family& qwen3_vl_moe_family();
const Family& qwen3_5_family();
const Family& qwen3_5_moe_family();
const Family& gemma3_family();
const Family& ernie4_5_moe_vl_family();
const Family& ernie4_5_vl_moe_family();
const Family& bert_family();
const Family& roberta_family();
const Family& xlm_roberta_family();
const Family& modernbert_family();

/// Throws Error(kUnsupported) for heads that no backend runs.
void check_head_dim(const ConfigReader& reader, const char* key, int64_t head_dim);

/// Most heads of a layer accepted.
inline constexpr int64_t kMaxHeads = 4096;

/// Widest MLP accepted.
inline constexpr int64_t kMaxIntermediate = 1 << 22;

/// Longest sliding window accepted.
inline constexpr int64_t kMaxWindow = int64_t{1} << 30;

/// use_sliding_window, sliding_window, max_window_layers and layer_types as Qwen means them.
void read_qwen_windows(ConfigReader& reader, ModelConfig& config);

/// Names that layer_types has for a kind of layer.
using TypeNames = std::vector<std::string_view>;

/// Per layer whether it is `special`, not `usual`, from layer_types; nullopt if the key is absent.
std::optional<std::vector<bool>> read_layer_types(ConfigReader& reader, int32_t num_layers,
                                                  const TypeNames& special = {"sliding_attention"},
                                                  const TypeNames& usual = {"full_attention"});

/// For families that ignore layer_types: refuses a list that contradicts config.layer_window.
void require_agreeing_layer_types(ConfigReader& reader, const ModelConfig& config);

}  // namespace headrace
