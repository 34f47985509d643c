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

}  // namespace headrace
