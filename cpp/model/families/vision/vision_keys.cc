#include "model/families/vision/vision_keys.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace headrace {

namespace {

constexpr int64_t kMaxTowerHeads = 1024;
constexpr int32_t kMaxTowerHeadDim = 128, kTowerHeadDimStep = 8;

/// Rope of towers has no parameters: 10000, by height and width.
void require_axial_rope(ConfigReader& reader) {
  const JsonValue* rope = reader.find("rope_parameters");
  if (rope == nullptr) return;
  if (!rope->is_object()) reader.fail_value("rope_parameters", "must be an object");
  ConfigReader parameters(*rope, reader.origin() + ": rope_parameters");
  parameters.require("rope_type", "axial");
  const double theta = parameters.number("rope_theta", 10000.0, 1.0, 1e15);
  if (theta != 10000.0) parameters.fail_unsupported("rope_theta", "only 10000 is supported");
  parameters.refuse_unknown_keys({});
}

}  // namespace

void read_tower_shape(ConfigReader& reader, const TowerKeys& keys, VisionConfig& out) {
  const auto size = [&reader](std::string_view key, int32_t fallback, int64_t max) {
    return static_cast<int32_t>(reader.integer(key, fallback, 1, max));
  };
  out.width = size(keys.width, keys.default_width, kMaxTowerWidth);
  out.depth = size(keys.depth, keys.default_depth, kMaxTowerDepth);
  out.num_heads = size(keys.heads, keys.default_heads, kMaxTowerHeads);
  if (out.width % out.num_heads != 0) {
    reader.fail_value(keys.width,
                      str_cat("must be a multiple of ", keys.heads, " (", out.num_heads, ")"));
  }
  out.head_dim = out.width / out.num_heads;
  if (out.head_dim % kTowerHeadDimStep != 0 || out.head_dim > kMaxTowerHeadDim) {
    throw_error(ErrorCode::kUnsupported, reader.origin(), ": heads of ", out.head_dim, " numbers (",
                keys.width, " / ", keys.heads, "): this build runs towers with multiples of ",
                kTowerHeadDimStep, " up to ", kMaxTowerHeadDim, ".");
  }
  out.patch_size = read_side(reader, "patch_size", keys.default_patch, kMaxPatchSize);
  for (const char* key : {"in_channels", "in_chans", "num_channels"}) reader.require(key, 3);
  out.rope = keys.rope;
  if (out.rope) require_axial_rope(reader);
}

int32_t read_side(ConfigReader& reader, std::string_view key, int32_t fallback, int64_t max,
                  size_t count) {
  const JsonValue* value = reader.find(key);
  if (value == nullptr || !value->is_array()) {
    return static_cast<int32_t>(reader.integer(key, fallback, 1, max));
  }
  if (value->empty() || value->size() > count) {
    reader.fail_value(key, "must be a whole number, or a list of equal ones");
  }
  const JsonValue& side = value->array().front();
  const JsonValue holder{JsonValue::Object{{std::string(key), side}}};
  ConfigReader first(holder, reader.origin());
  if (std::ranges::any_of(value->array(), [&side](const JsonValue& x) { return x != side; })) {
    reader.fail_unsupported(key, "only equal sides are supported");
  }
  return static_cast<int32_t>(first.integer(key, fallback, 1, max));
}

int32_t read_tower_width(ConfigReader& reader, std::string_view key, int32_t fallback) {
  return static_cast<int32_t>(reader.integer(key, fallback, 1, kMaxTowerMlp));
}

void require_out_size(ConfigReader& reader, std::string_view key, int32_t fallback,
                      int32_t hidden_size) {
  if (reader.integer(key, fallback, 1, kMaxTowerWidth) != hidden_size) {
    reader.fail_value(key, str_cat("must be the decoder's hidden_size (", hidden_size, ")"));
  }
}

Activation read_activation(ConfigReader& reader, const std::string& fallback) {
  constexpr std::array<std::pair<std::string_view, Activation>, 6> kKinds{{
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu},
      {"gelu", Activation::kGeluErf},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"gelu_new", Activation::kGeluTanh},
      {"quick_gelu", Activation::kQuickGelu},
  }};
  const std::string name = reader.text("hidden_act", fallback);
  for (const auto& [key, kind] : kKinds) {
    if (key == name) return kind;
  }
  reader.fail_unsupported("hidden_act",
                          "towers have silu, gelu, gelu_pytorch_tanh or quick_gelu here");
}

std::vector<int32_t> read_blocks(ConfigReader& reader, std::string_view key,
                                 const std::vector<int32_t>& fallback, int32_t depth) {
  const JsonValue* value = reader.find(key);
  std::vector<int32_t> out;
  const std::string expected =
      str_cat("must list different numbers of blocks, from 0 to ", depth - 1);
  if (value == nullptr) {
    out = fallback;
  } else {
    if (!value->is_array() || value->size() > static_cast<size_t>(depth)) {
      reader.fail_value(key, expected);
    }
    for (const JsonValue& block : value->array()) {
      if (!block.is_unsigned() || block.unsigned_integer() >= static_cast<uint64_t>(depth)) {
        reader.fail_value(key, expected);
      }
      out.push_back(static_cast<int32_t>(block.integer()));
    }
  }
  std::vector<int32_t> sorted = out;
  std::ranges::sort(sorted);
  const bool twice = std::ranges::adjacent_find(sorted) != sorted.end();
  if (twice || (!sorted.empty() && sorted.back() >= depth)) reader.fail_value(key, expected);
  return out;
}

std::vector<std::string_view> harmless_tower_keys(const std::vector<std::string_view>& more) {
  std::vector<std::string_view> out{"_*",
                                    "model_type",
                                    "initializer_range",
                                    "initializer_factor",
                                    "attention_dropout",
                                    "dtype",
                                    "torch_dtype",
                                    "transformers_version",
                                    "architectures",
                                    "id2label",
                                    "label2id",
                                    "output_attentions",
                                    "output_hidden_states",
                                    "return_dict",
                                    "problem_type",
                                    "chunk_size_feed_forward",
                                    "use_cache",
                                    "attn_implementation"};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

std::vector<std::string_view> harmless_picture_keys(const std::vector<std::string_view>& more) {
  std::vector<std::string_view> out{"image_token_id",        "video_token_id",
                                    "vision_start_token_id", "vision_end_token_id",
                                    "vision_token_id",       "image_seq_len"};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

}  // namespace headrace
