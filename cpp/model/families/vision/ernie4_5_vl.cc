// ERNIE-4.5-VL: ERNIE-4.5 MoE as decoder, with a group of experts for text and one for vision, and
// pairs that turn by height and width in turn, the last by time; a plain tower, whose rows a
// resampler joins by squares and by pairs of frames. Makers' configs are flat, transformers' nest.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "model/families/family.h"
#include "model/families/keys/ernie_keys.h"
#include "model/families/keys/expert_keys.h"
#include "model/families/moe_layer.h"
#include "model/families/vision/vision_block.h"
#include "model/families/vision/vision_keys.h"
#include "model/sources/vision_sources.h"

namespace headrace {

namespace {

constexpr size_t kGroups = 2;
constexpr int64_t kImagePatch = 100295;
constexpr int64_t kMaxToken = (int64_t{1} << 31) - 1;

int32_t read_expert_count(ConfigReader& reader) {
  const auto counts = read_each_group(reader, "moe_num_experts", 64, 1, kMaxExperts, kGroups);
  if (counts[0] != counts[1]) {
    reader.fail_unsupported("moe_num_experts", "both groups must have as many experts");
  }
  const int64_t same = reader.integer("num_experts", counts[0], 1, kMaxExperts);
  if (same != counts[0]) {
    reader.fail_value("num_experts", str_cat("must agree with \"moe_num_experts\" (", counts[0],
                                             "), which means the same"));
  }
  return static_cast<int32_t>(same);
}

void read_expert_widths(ConfigReader& reader, MoeConfig& moe) {
  constexpr const char* kKey = "moe_intermediate_size";
  moe.expert_width = 1536;
  moe.vision_width = 512;
  const JsonValue* widths = reader.find(kKey);
  if (widths == nullptr) return;
  const auto each = read_each_group(reader, kKey, 0, 1, kMaxIntermediate, kGroups);
  if (!widths->is_array() || std::ranges::find(each, 0) != each.end()) {
    reader.fail_value(kKey, "must list two widths, of text and of vision");
  }
  moe.expert_width = static_cast<int32_t>(each[0]);
  moe.vision_width = static_cast<int32_t>(each[1]);
}

/// transformers' mlp_layer_types, or the makers' start, end and interval.
std::vector<bool> read_sparse_layers(ConfigReader& reader, int32_t num_layers) {
  const std::vector<bool> sparse = read_ernie_sparse_layers(reader, num_layers, kGroups);
  const JsonValue* types = reader.find("mlp_layer_types");
  if (types == nullptr) return sparse;
  if (!types->is_array() || types->size() != static_cast<size_t>(num_layers)) {
    reader.fail_value("mlp_layer_types", "must list one type for each hidden layer");
  }
  std::vector<bool> out;
  for (const JsonValue& type : types->array()) {
    if (type != "dense" && type != "sparse") {
      reader.fail_unsupported("mlp_layer_types", "this build knows dense and sparse");
    }
    out.push_back(type == "sparse");
  }
  for (const char* key : {"moe_layer_interval", "moe_layer_start_index", "moe_layer_end_index"}) {
    if (out != sparse && reader.has_key(key)) {
      reader.fail_value(key, "must give the layers that mlp_layer_types calls sparse");
    }
  }
  return out;
}

/// The first token that goes to the experts of vision: that of an image's rows, behind all text.
int32_t read_first_vision_token(ConfigReader& reader, int32_t vocab_size) {
  const AliasedKey names{{"im_patch_id", "image_token_id", "max_text_id"}, kImagePatch};
  const int32_t out = read_aliased(reader, names, kMaxToken);
  if (out >= vocab_size) {
    const auto given = std::ranges::find_if(
        names.names, [&](std::string_view name) { return reader.has_key(name); });
    reader.fail_value(
        given == names.names.end() ? names.names.front() : *given,
        str_cat("must be the token of an image's rows, below vocab_size (", vocab_size, ")"));
  }
  for (const char* key : {"image_start_token_id", "image_end_token_id", "video_start_token_id",
                          "video_end_token_id", "video_token_id"}) {
    const auto id = reader.optional_integer(key, 0, kMaxToken);
    if (id && *id < out) {
      reader.fail_unsupported(key, str_cat("tokens of images and clips begin with the one of an "
                                           "image's rows, ",
                                           out, ", here"));
    }
  }
  return out;
}

void read_ernie_text(ConfigReader& reader, ModelConfig& config) {
  reader.require("use_bias", false);
  reader.require("rope_reorder", false);
  reader.require("rope_3d", true);
  require_plain_ernie(reader, config);
  MoeConfig& moe = config.moe;
  moe.router.num_experts = read_expert_count(reader);
  moe.router.top_k = read_top_k(reader, {{"moe_k", "num_experts_per_tok"}, 6}, moe.router);
  moe.sparse_layers = read_sparse_layers(reader, config.num_layers);
  read_expert_widths(reader, moe);
  read_ernie_router(reader, moe);
  moe.first_vision_token = read_first_vision_token(reader, config.vocab_size);
}

/// A number that the makers keep among the model's keys and transformers with the tower's.
void require_same(ConfigReader& model, std::string_view key, int64_t value) {
  const auto own = model.optional_integer(key, 1, kMaxTowerWidth);
  if (own && *own != value) {
    model.fail_value(key, str_cat("must agree with vision_config (", value, ")"));
  }
}

void read_ernie_mlp(ConfigReader& reader, VisionConfig& out) {
  const int64_t ratio = reader.integer("mlp_ratio", 4, 1, kMaxMlpRatio);
  const int64_t wide = reader.integer("intermediate_size", out.width * ratio, 1, kMaxTowerMlp);
  if (wide > kMaxTowerMlp || (reader.has_key("mlp_ratio") && wide != out.width * ratio)) {
    reader.fail_value("mlp_ratio", str_cat("must be that of the MLP's ", wide, " columns to ",
                                           out.width, ", at most ", kMaxTowerMlp));
  }
  out.mlp_width = static_cast<int32_t>(wide);
}

VisionConfig read_ernie_tower(ConfigReader& reader, ConfigReader& model,
                              const ModelConfig& config) {
  VisionConfig out;
  read_tower_shape(reader, {}, out);
  if (const auto width = reader.optional_integer("embed_dim", 1, kMaxTowerWidth);
      width && *width != out.width) {
    reader.fail_value("embed_dim", str_cat("must agree with \"hidden_size\" (", out.width, ")"));
  }
  read_ernie_mlp(reader, out);
  out.merge_size = read_side(reader, "spatial_merge_size", 2, kMaxMergeSize);
  reader.require("temporal_merge_size", 2);
  out.merge_grids = 2;
  require_same(model, "pixel_hidden_size", out.width);
  require_same(model, "spatial_conv_size", out.merge_size);
  require_same(model, "temporal_conv_size", out.merge_grids);
  model.require("use_temporal_conv", true);
  out.activation = read_activation(reader, "quick_gelu");
  out.norm_eps = static_cast<float>(reader.number("rms_norm_eps", 1e-6, 1e-12, 1.0));
  out.out_norm_eps = config.norm.eps;
  // How Paddle trained and runs it.
  std::vector<std::string_view> harmless =
      harmless_tower_keys({"spatial_patch_size", "attn_sep", "pp_data_balance", "vit_first_fwd_bsz",
                           "vit_num_recompute_layers"});
  const auto more = paddle_harmless_keys();
  harmless.insert(harmless.end(), more.begin(), more.end());
  reader.refuse_unknown_keys(harmless);
  return out;
}

LayerSources list_layer(const ModelConfig& config, const LayerNaming& naming) {
  return list_moe_layer(config, naming,
                        {.correction = "mlp.moe_statics.e_score_correction_bias",
                         .correction_is_row = true,
                         .gate_transposed = true,
                         .vision_gate = "mlp.gate.weight_1",
                         .shared = "mlp.shared_experts."});
}

VisionBlockSources list_ernie_block(const VisionConfig& config, const VisionNaming& naming) {
  const int64_t width = config.width, wide = config.mlp_width;
  VisionBlockSources out = list_fused_attention(config, naming);
  out.up = naming.linear("up", {{"mlp.fc1", wide}}, width, true);
  out.down = naming.linear("down", {{"mlp.fc2", width}}, wide, true);
  return out;
}

JoinSources list_join(const VisionNaming& naming, int64_t from, int64_t to) {
  return {.up = naming.linear("up", {{"0", to}}, from, true),
          .down = naming.linear("down", {{"2", to}}, to, true),
          .norm = naming.norm("norm", "3", to, true)};
}

/// "model." of the decoder's "model." and of its "model.language_model.".
std::string resampler_prefix(std::string prefix) {
  constexpr std::string_view kDecoder = "language_model.";
  if (prefix.ends_with(kDecoder)) prefix.resize(prefix.size() - kDecoder.size());
  return prefix + "resampler_model.";
}

VisionSources list_ernie_tower(const ModelConfig& config, const TensorNaming& names) {
  const VisionConfig& vision = *config.vision;
  const bool transposed = names.layout == CheckpointLayout::kPaddle;
  const VisionNaming naming(names.vision, transposed);
  const int64_t side = vision.patch_size, width = vision.width;
  VisionSources out;
  out.patches = naming.linear("patches", {{"patch_embed.proj", width}}, 3 * side * side, false);
  for (int32_t i = 0; i < vision.depth; ++i) {
    const std::string block = str_cat("blocks.", i, ".");
    out.blocks.push_back(list_ernie_block(vision, naming.within(block, block)));
  }
  out.last_norm = naming.norm("last_norm", "ln", width, true);
  const VisionNaming own(resampler_prefix(names.prefix), transposed, "vision.resampler.");
  const int64_t joined = width * vision.merge_size * vision.merge_size;
  ResamplerSources& resampler = out.resampler.emplace();
  resampler.square = list_join(own.within("spatial_linear.", "square."), joined, joined);
  resampler.grids = list_join(own.within("temporal_linear.", "grids."), 2 * joined, joined);
  resampler.out = own.linear("out", {{"mlp", config.hidden_size}}, joined, true);
  resampler.norm = own.norm("norm", "after_norm", config.hidden_size, false);
  return out;
}

std::vector<std::string_view> harmless_keys() {
  std::vector<std::string_view> out = ernie_moe_harmless_keys();
  for (const std::string_view key :
       {"modality_detach", "moe_use_size_all2all", "moe_layer_feed_fake_token", "fuse_attn_ffn",
        "multimodel_experts", "resampler_fuse_rms_norm", "add_tail_layers", "fp16_opt_level",
        "decoderlayer_act_offload_settings"}) {
    out.push_back(key);
  }
  return out;
}

Family family_of(std::string_view model_type) {
  static const VisionFamily kVision{
      .read = read_ernie_tower,
      .list = list_ernie_tower,
      .text_prefixes = {"model.", "model.language_model.", "ernie."},
      .prefixes = {"vision_model.", "model.vision_model.", "ernie.vision_model.",
                   "model.vision_tower."},
      .text_types = {"ernie4_5_vl_moe_text"},
      .mrope = {.sections = {20, 22, 22}, .order = MropeOrder::kTimeLast}};
  return {.model_type = model_type,
          .architectures = {"Ernie4_5_VLMoeForConditionalGeneration",
                            "Ernie4_5_VL_MoeForConditionalGeneration"},
          .defaults = {.vocab_size = 103424,
                       .hidden_size = 2560,
                       .intermediate_size = 12288,
                       .num_layers = 28,
                       .num_heads = 20,
                       .num_kv_heads = 4,
                       .max_position_embeddings = 131072,
                       .norm_eps = 1e-5,
                       .rope_theta = 500000.0,
                       .tie_word_embeddings = true},
          .rope_style = RopeStyle::kInterleaved,
          .has_paddle_layout = true,
          .head_if_stored = true,
          .read = read_ernie_text,
          .list_layer = list_layer,
          .vision = &kVision,
          .harmless_keys = harmless_keys()};
}

}  // namespace

const Family& ernie4_5_moe_vl_family() {
  static const Family kFamily = family_of("ernie4_5_moe_vl");
  return kFamily;
}

const Family& ernie4_5_vl_moe_family() {
  static const Family kFamily = family_of("ernie4_5_vl_moe");
  return kFamily;
}

}  // namespace headrace
