#include "model/families/keys/expert_keys.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "model/families/family.h"

namespace headrace {

namespace {

constexpr int64_t kMaxSparseStep = int64_t{1} << 30;
constexpr int64_t kMaxSharedExperts = 1024;
constexpr int64_t kMostDenseLayers = int64_t{1} << 30;

}  // namespace

int32_t read_aliased(ConfigReader& reader, const AliasedKey& key, int64_t max) {
  std::optional<int64_t> value;
  std::string_view first;
  for (const std::string_view name : key.names) {
    if (!reader.has_key(name)) continue;
    const int64_t own = reader.integer(name, key.fallback, 1, max);
    if (value && *value != own) {
      reader.fail_value(
          name, str_cat("must agree with \"", first, "\" (", *value, "), which means the same"));
    }
    value = own;
    first = name;
  }
  return static_cast<int32_t>(value.value_or(key.fallback));
}

int32_t read_top_k(ConfigReader& reader, const AliasedKey& key, const RouterSpec& router) {
  const int32_t out = read_aliased(reader, key, kMaxTopExperts);
  if (out <= router.num_experts) return out;
  const auto given = std::find_if(key.names.begin(), key.names.end(),
                                  [&](std::string_view name) { return reader.has_key(name); });
  reader.fail_value(given == key.names.end() ? key.names.front() : *given,
                    str_cat("must be at most the number of experts (", router.num_experts, ")"));
}

void read_expert_counts(ConfigReader& reader, const AliasedKey& num_experts,
                        const AliasedKey& top_k, ModelConfig& config) {
  RouterSpec& router = config.moe.router;
  router.num_experts = read_aliased(reader, num_experts, kMaxExperts);
  router.top_k = read_top_k(reader, top_k, router);
  config.moe.sparse_layers.assign(static_cast<size_t>(config.num_layers), true);
}

void read_qwen_sparse_layers(ConfigReader& reader, ModelConfig& config) {
  const int64_t step = reader.integer("decoder_sparse_step", 1, 1, kMaxSparseStep);
  std::vector<bool>& sparse = config.moe.sparse_layers;
  for (size_t layer = 0; layer < sparse.size(); ++layer) {
    sparse[layer] = static_cast<int64_t>(layer + 1) % step == 0;
  }
  const JsonValue* dense = reader.find("mlp_only_layers");
  if (dense == nullptr) return;
  const char* expected = "must list numbers of layers, counted from 0";
  if (!dense->is_array()) reader.fail_value("mlp_only_layers", expected);
  for (const JsonValue& layer : dense->array()) {
    if (!layer.is_unsigned() || layer.unsigned_integer() >= sparse.size()) {
      reader.fail_value("mlp_only_layers", expected);
    }
    sparse[layer.unsigned_integer()] = false;
  }
}

void read_expert_groups(ConfigReader& reader, RouterSpec& router, const GroupDefaults& defaults) {
  router.num_groups =
      static_cast<int32_t>(reader.integer("n_group", defaults.groups, 1, router.num_experts));
  if (router.num_experts % router.num_groups != 0) {
    reader.fail_value("n_group",
                      str_cat("must divide the number of experts (", router.num_experts, ")"));
  }
  const int32_t most = std::min(router.num_groups, kMaxTopExperts);
  router.top_groups =
      static_cast<int32_t>(reader.integer("topk_group", defaults.top_groups, 1, most));
  const int32_t kept = router.num_experts / router.num_groups * router.top_groups;
  if (kept >= router.top_k) return;
  reader.fail_value("topk_group", str_cat("must keep as many experts as a row goes to (",
                                          router.top_k, "), but its groups have ", kept));
}

void read_dense_layers(ConfigReader& reader, int32_t fallback, ModelConfig& config) {
  const int64_t dense = reader.integer("first_k_dense_replace", fallback, 0, kMostDenseLayers);
  std::fill_n(config.moe.sparse_layers.begin(), std::min<int64_t>(dense, config.num_layers), false);
}

void read_sigmoid_router(ConfigReader& reader, RouterSpec& router) {
  router.score = RouterSpec::Score::kSigmoid;
  router.normalize = reader.flag("norm_topk_prob", true);
  router.scale = static_cast<float>(reader.number("routed_scaling_factor", 1.0, 1e-6, 1e6));
}

void read_shared_experts(ConfigReader& reader, std::string_view key, int64_t fallback,
                         MoeConfig& moe) {
  const int64_t count = reader.integer(key, fallback, 0, kMaxSharedExperts);
  const int64_t width = count * moe.expert_width;
  if (width > kMaxIntermediate) {
    reader.fail_value(key, str_cat("must keep all shared experts together (", width,
                                   " columns) within ", kMaxIntermediate));
  }
  moe.shared_width = static_cast<int32_t>(width);
}

int32_t read_width(ConfigReader& reader, std::string_view key, int32_t fallback) {
  return static_cast<int32_t>(reader.integer(key, fallback, 1, kMaxIntermediate));
}

std::vector<std::string_view> with_router_training_keys(std::vector<std::string_view> keys) {
  for (const std::string_view key :
       {"output_router_logits", "router_aux_loss_coef", "router_jitter_noise"}) {
    keys.push_back(key);
  }
  return keys;
}

}  // namespace headrace
