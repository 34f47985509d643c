#include "engine/replica/sums.h"

#include <algorithm>
#include <array>

namespace headrace::internal {

ModelInfo sum_info(const std::vector<LoadedModel>& replicas) {
  ModelInfo sum = replicas.front().info;
  sum.data_parallel_size = static_cast<int32_t>(replicas.size());
  for (size_t i = 1; i < replicas.size(); ++i) {
    const ModelInfo& each = replicas[i].info;
    sum.max_model_len = std::min(sum.max_model_len, each.max_model_len);
    sum.num_kv_blocks += each.num_kv_blocks;
    sum.num_host_kv_blocks += each.num_host_kv_blocks;
    sum.num_threads += each.num_threads;
    for (size_t ModelInfo::* bytes :
         {&ModelInfo::encoder_cache_bytes, &ModelInfo::vision_weight_bytes,
          &ModelInfo::weight_bytes, &ModelInfo::kv_cache_bytes, &ModelInfo::scratch_bytes,
          &ModelInfo::reserved_bytes, &ModelInfo::host_kv_cache_bytes,
          &ModelInfo::mapped_weight_bytes}) {
      sum.*bytes += each.*bytes;
    }
    // GPUs have memories of their own, with kernels of their own trials.
    if (each.device == sum.device) {
      sum.device_free_bytes = each.device_free_bytes;
      continue;
    }
    sum.device_free_bytes += each.device_free_bytes;
    for (const std::string& kernel : each.replaced_kernels) {
      sum.replaced_kernels.push_back(each.device + ": " + kernel);
    }
  }
  return sum;
}

ModelState common_state(const std::vector<ModelState>& states) {
  for (const ModelState state : {ModelState::kRunning, ModelState::kStopping, ModelState::kStopped,
                                 ModelState::kInstalled}) {
    if (std::ranges::find(states, state) != states.end()) return state;
  }
  return ModelState::kFailed;
}

void add_stats(const ModelStats& replica, ModelStats& sum) {
  for (int32_t ModelStats::* gauge :
       {&ModelStats::running_replicas, &ModelStats::waiting_requests, &ModelStats::running_requests,
        &ModelStats::total_kv_blocks, &ModelStats::free_kv_blocks, &ModelStats::cached_kv_blocks,
        &ModelStats::cached_host_kv_blocks}) {
    sum.*gauge += replica.*gauge;
  }
  for (uint64_t ModelStats::* counter :
       {&ModelStats::finished_requests, &ModelStats::preemptions, &ModelStats::interruptions,
        &ModelStats::steps, &ModelStats::prompt_tokens, &ModelStats::generated_tokens,
        &ModelStats::prefix_hit_tokens, &ModelStats::prefix_miss_tokens,
        &ModelStats::prefix_host_hit_tokens, &ModelStats::kv_blocks_to_host,
        &ModelStats::kv_blocks_from_host, &ModelStats::drafted_tokens, &ModelStats::accepted_tokens,
        &ModelStats::encoded_tokens, &ModelStats::encoder_hit_tokens}) {
    sum.*counter += replica.*counter;
  }
  for (size_t ModelStats::* bytes : {&ModelStats::memory_bytes, &ModelStats::memory_pool_bytes,
                                     &ModelStats::mapped_bytes, &ModelStats::encoder_cache_bytes}) {
    sum.*bytes += replica.*bytes;
  }
  sum.busy_seconds += replica.busy_seconds;
  sum.mask_wait_seconds += replica.mask_wait_seconds;
}

}  // namespace headrace::internal
