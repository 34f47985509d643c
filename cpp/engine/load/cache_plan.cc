#include "engine/load/cache_plan.h"

#include "model/load/list_sources.h"
#include "model/sources/model_sources.h"

namespace headrace::internal {

CacheLayout rank_layout(const CacheOptions& options, const ModelConfig& config,
                        const RankPlace& rank) {
  ModelSources sources = list_sources(config, likely_naming(config));
  share_sources(rank, sources);
  return make_cache_layout(list_cache_rows(sources), options);
}

// Tiles that begin before a window lie in blocks that are needed, too.
std::vector<int32_t> group_windows(const CacheLayout& layout) {
  const int32_t before = layout.block_size % kCacheTile == 0 ? 0 : kCacheTile - 1;
  std::vector<int32_t> out;
  for (const CacheGroup& group : layout.groups) {
    out.push_back(group.rows.window > 0 ? group.rows.window + before : 0);
  }
  return out;
}

}  // namespace headrace::internal
