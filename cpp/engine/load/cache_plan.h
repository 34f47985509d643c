#pragma once

#include <cstdint>
#include <vector>

#include "model/config/model_config.h"
#include "model/sources/cache_layout.h"

namespace headrace::internal {

/// What a rank keeps: of key/value heads that there are fewer of than ranks, several keep the same.
CacheLayout rank_layout(const CacheOptions& options, const ModelConfig& config,
                        const RankPlace& rank);

/// KvGroups::windows.
std::vector<int32_t> group_windows(const CacheLayout& layout);

}  // namespace headrace::internal
