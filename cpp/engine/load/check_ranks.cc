#include "engine/load/check_ranks.h"

#include "engine/devices/device_names.h"
#include "engine/load/weights.h"
#include "model/load/list_sources.h"
#include "model/sources/model_sources.h"

namespace headrace::internal {

void check_ranks(const ModelOptions& options, const ModelConfig& config, const PackedFile* packed) {
  if (packed != nullptr) check_packed_ranks(*packed, options);
  const int32_t count = num_ranks(options);
  if (count == 1) return;
  check_expert_parallel(options, config);
  const RankPlace last = rank_place(options, count - 1);
  share_config(last, config);
  ModelSources sources = list_sources(config, likely_naming(config));
  share_sources(last, sources);
}

}  // namespace headrace::internal
