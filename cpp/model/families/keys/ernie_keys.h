#pragma once

// What the configs of ERNIE-4.5's families have in common.

#include <string_view>
#include <vector>

#include "model/config/config_reader.h"
#include "model/config/model_config.h"

namespace headrace {

/// Refuses what no published model has and this build doesn't compute.
void require_plain_ernie(ConfigReader& reader, const ModelConfig& config);

/// How Paddle trained and how it runs, not what it computes.
std::vector<std::string_view> paddle_harmless_keys();

/// Likewise of models with experts: also how routers were trained.
std::vector<std::string_view> ernie_moe_harmless_keys();

/// One number for each of `groups` groups of experts: the key holds a list of them or, where it
/// is the same for all, a number. null in place of a number gives `fallback`.
std::vector<int64_t> read_each_group(ConfigReader& reader, std::string_view key, int64_t fallback,
                                     int64_t min, int64_t max, size_t groups);

/// Which layers have experts: every moe_layer_interval-th of those from moe_layer_start_index to
/// moe_layer_end_index. Throws Error(kUnsupported) where groups have them in different layers.
std::vector<bool> read_ernie_sparse_layers(ConfigReader& reader, int32_t num_layers,
                                           size_t groups = 1);

/// How experts are chosen and weighed, and those that all rows share. REQUIRES: expert_width.
void read_ernie_router(ConfigReader& reader, MoeConfig& moe);

}  // namespace headrace
