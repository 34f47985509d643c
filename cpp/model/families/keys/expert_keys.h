#pragma once

// Keys of config.json that several families with experts share.

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/config/config_reader.h"
#include "model/config/model_config.h"

namespace headrace {

/// The names under which configs hold one number, and what it is where none is there.
struct AliasedKey {
  std::vector<std::string_view> names;
  int64_t fallback = 0;
};

/// The number that any of the names gives. Throws Error(kCorruptFile) for names that disagree.
int32_t read_aliased(ConfigReader& reader, const AliasedKey& key, int64_t max);

/// How many experts a row goes to. Throws Error(kCorruptFile) for more than there are.
int32_t read_top_k(ConfigReader& reader, const AliasedKey& key, const RouterSpec& router);

/// Fills in config.moe.router.num_experts and top_k, and one sparse layer per layer. Throws
/// Error(kCorruptFile) for names that disagree, and for more experts per token than there are.
void read_expert_counts(ConfigReader& reader, const AliasedKey& num_experts,
                        const AliasedKey& top_k, ModelConfig& config);

/// decoder_sparse_step (1: every layer) and mlp_only_layers, layers without experts, as Qwen means
/// them.
void read_qwen_sparse_layers(ConfigReader& reader, ModelConfig& config);

/// What is taken where n_group or topk_group is absent.
struct GroupDefaults {
  int32_t groups = 1, top_groups = 1;
};

/// n_group and topk_group: of how many groups of experts a row's must be. Throws
/// Error(kCorruptFile) for groups that aren't equally large, and for a choice that holds too few
/// experts. REQUIRES: num_experts and top_k.
void read_expert_groups(ConfigReader& reader, RouterSpec& router,
                        const GroupDefaults& defaults = {});

/// first_k_dense_replace: so many layers, or all, have an MLP.
void read_dense_layers(ConfigReader& reader, int32_t fallback, ModelConfig& config);

/// A router whose scores are sigmoids: norm_topk_prob (true) and routed_scaling_factor.
void read_sigmoid_router(ConfigReader& reader, RouterSpec& router);

/// Experts that all rows go through, as one MLP. REQUIRES: expert_width.
void read_shared_experts(ConfigReader& reader, std::string_view key, int64_t fallback,
                         MoeConfig& moe);

/// Columns of an MLP.
int32_t read_width(ConfigReader& reader, std::string_view key, int32_t fallback);

/// `keys` and those that say how routers were trained.
std::vector<std::string_view> with_router_training_keys(std::vector<std::string_view> keys);

}  // namespace headrace
