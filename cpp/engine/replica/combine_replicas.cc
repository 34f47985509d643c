#include "engine/replica/combine_replicas.h"

#include <algorithm>
#include <array>
#include <limits>

namespace headrace::internal {

ModelInfo sum_info(const std::vector<LoadedModel>& replicas) {
  ModelInfo sum = replicas.front().info;
  sum.data_parallel_size = static_cast<int32_t>(replicas.size());
  for (size_t i = 1; i < replicas.size(); ++i) {
    const ModelInfo& each = replicas[i].info;
    for (int32_t ModelInfo::* limit :
         {&ModelInfo::max_model_len, &ModelInfo::max_num_batched_tokens,
          &ModelInfo::max_encoder_tokens}) {
      sum.*limit = std::min(sum.*limit, each.*limit);
    }
    sum.takes_embeddings = sum.takes_embeddings && each.takes_embeddings;
    // Groups of threads that share a node, or GPUs, have one in common.
    if (sum.device == "cpu_numa") sum.num_nodes += each.num_nodes;
    sum.num_kv_blocks += each.num_kv_blocks;
    sum.num_host_kv_blocks += each.num_host_kv_blocks;
    sum.num_state_slots += each.num_state_slots;
    sum.num_host_state_slots += each.num_host_state_slots;
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
    sum.replaced_kernels.insert(sum.replaced_kernels.end(), each.replaced_kernels.begin(),
                                each.replaced_kernels.end());
  }
  return sum;
}

namespace {

void keep_common(const MediaLimits& other, MediaLimits& limits) {
  if (limits.refusal.empty()) limits.refusal = other.refusal;
  limits.cache_bytes = std::min(limits.cache_bytes, other.cache_bytes);
  limits.most_scratch = std::min(limits.most_scratch, other.most_scratch);
  limits.most_run = std::min(limits.most_run, other.most_run);
}

}  // namespace

RequestLimits common_limits(const std::vector<LoadedModel>& replicas) {
  const LoadedModel& first = replicas.front();
  RequestLimits limits;
  limits.vocab_size = first.info.vocab_size;
  limits.hidden_size = first.info.hidden_size;
  limits.max_num_batched_tokens = first.scheduler.max_num_batched_tokens;
  limits.max_prefill_chunk = first.scheduler.max_prefill_chunk;
  limits.causal = first.info.causal;
  limits.generates = first.info.generates;
  limits.head_outputs = first.info.head_outputs;
  limits.tells_pairs = first.info.tells_pairs;
  limits.has_head = first.has_head;
  limits.max_model_len = first.scheduler.max_model_len;
  limits.num_kv_blocks = first.scheduler.num_blocks;
  limits.num_kv_groups = static_cast<int32_t>(first.scheduler.windows.size());
  limits.block_size = first.scheduler.block_size;
  limits.kv_tokens = std::numeric_limits<int64_t>::max();
  limits.dynamic_rope_max = first.dynamic_rope_max;
  limits.eos_token_ids = first.info.eos_token_ids;
  limits.media = first.encoder.limits;
  for (const LoadedModel& each : replicas) {
    const SchedulerConfig& own = each.scheduler;
    limits.max_num_batched_tokens =
        std::min(limits.max_num_batched_tokens, own.max_num_batched_tokens);
    limits.max_model_len = std::min(limits.max_model_len, own.max_model_len);
    limits.num_kv_blocks = std::min(limits.num_kv_blocks, own.num_blocks);
    limits.kv_tokens = std::min(limits.kv_tokens, kv_groups(own).most_tokens(own.num_blocks));
    keep_common(each.encoder.limits, limits.media);
  }
  return limits;
}

ModelState common_state(const std::vector<ModelState>& states) {
  for (const ModelState state : {ModelState::kRunning, ModelState::kStopping, ModelState::kStopped,
                                 ModelState::kInstalled}) {
    if (std::ranges::find(states, state) != states.end()) return state;
  }
  return ModelState::kFailed;
}

void drop_blocks(ModelStats& replica) {
  replica.total_kv_blocks = replica.free_kv_blocks = 0;
  replica.cached_kv_blocks = replica.cached_host_kv_blocks = 0;
  replica.total_state_slots = replica.free_state_slots = 0;
  replica.cached_state_slots = replica.cached_host_state_slots = 0;
}

void add_stats(const ModelStats& replica, ModelStats& sum) {
  for (int32_t ModelStats::* gauge :
       {&ModelStats::running_replicas, &ModelStats::waiting_requests, &ModelStats::running_requests,
        &ModelStats::total_kv_blocks, &ModelStats::free_kv_blocks, &ModelStats::cached_kv_blocks,
        &ModelStats::cached_host_kv_blocks, &ModelStats::total_state_slots,
        &ModelStats::free_state_slots, &ModelStats::cached_state_slots,
        &ModelStats::cached_host_state_slots}) {
    sum.*gauge += replica.*gauge;
  }
  for (uint64_t ModelStats::* counter :
       {&ModelStats::finished_requests, &ModelStats::preemptions, &ModelStats::interruptions,
        &ModelStats::steps, &ModelStats::prompt_tokens, &ModelStats::generated_tokens,
        &ModelStats::prefix_hit_tokens, &ModelStats::prefix_miss_tokens,
        &ModelStats::prefix_host_hit_tokens, &ModelStats::kv_blocks_to_host,
        &ModelStats::kv_blocks_from_host, &ModelStats::snapshots_saved,
        &ModelStats::snapshots_evicted, &ModelStats::snapshots_restored,
        &ModelStats::prefix_unused_tokens, &ModelStats::drafted_tokens,
        &ModelStats::accepted_tokens, &ModelStats::encoded_tokens,
        &ModelStats::encoder_hit_tokens}) {
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
