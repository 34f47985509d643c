// Qwen3-Next: the layers of Qwen3.5, with the rows of each head of keys side by side.

#include "model/families/family.h"
#include "model/families/keys/expert_keys.h"
#include "model/families/state/qwen_state_layer.h"

namespace headrace {

namespace {

void read_qwen3_next(ConfigReader& reader, ModelConfig& config) {
  read_qwen_state_keys(reader, config);
  read_qwen_experts(reader, 512, 10, config);
  read_qwen_sparse_layers(reader, config);
  config.moe.router.normalize = reader.flag("norm_topk_prob", true);
}

/// The rows of `module`, which has so many of each role for each of `groups`, role by role.
std::vector<StoredPart> ungroup(const char* module, int64_t groups, int64_t hidden,
                                const std::vector<int64_t>& roles) {
  int64_t each = 0;
  for (const int64_t n : roles) each += n;
  std::vector<StoredPart> out;
  int64_t first = 0;
  for (const int64_t n : roles) {
    for (int64_t group = 0; group < groups; ++group) {
      StoredPart& part = out.emplace_back(StoredPart{module, n});
      part.shape = {groups * each, hidden};
      part.offset = (group * each + first) * hidden;
    }
    first += n;
  }
  return out;
}

LayerSources list_qwen3_next_layer(const ModelConfig& config, const LayerNaming& naming) {
  const DeltaSpec& heads = config.state.delta;
  const int64_t hidden = config.hidden_size, groups = heads.key_heads, k = heads.key_dim;
  const int64_t values = heads.value_heads / groups, v = values * heads.value_dim;
  return list_qwen_state_layer(
      config, naming,
      {.in = ungroup("linear_attn.in_proj_qkvz", groups, hidden, {k, k, v, v}),
       .gates = ungroup("linear_attn.in_proj_ba", groups, hidden, {values, values})});
}

}  // namespace

const Family& qwen3_next_family() {
  static const Family kFamily{
      .model_type = "qwen3_next",
      .architectures = {"Qwen3NextForCausalLM"},
      .defaults = {.vocab_size = 151936,
                   .hidden_size = 2048,
                   .intermediate_size = 5632,
                   .num_layers = 48,
                   .num_heads = 16,
                   .num_kv_heads = 2,
                   .head_dim = 256},
      .rope = {.partial_rotary = 0.25, .requires_theta = true},
      .read = read_qwen3_next,
      .list_layer = list_qwen3_next_layer,
      .list_mtp = list_qwen_mtp,
      .harmless_keys = with_router_training_keys({"mtp_*"}),
  };
  return kFamily;
}

}  // namespace headrace
