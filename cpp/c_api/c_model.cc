#include <memory>
#include <utility>
#include <vector>

#include "c_api/c_handles.h"
#include "c_api/c_options.h"
#include "c_api/c_struct.h"
#include "headrace/pack.h"

using namespace headrace;
using namespace headrace::c_api;

namespace {

/// What the public struct points into.
struct OwnedInfo : headrace_model_info {
  explicit OwnedInfo(ModelInfo from) : headrace_model_info{}, data(std::move(from)) {
    struct_size = sizeof(headrace_model_info);
    name = data.name.c_str();
    path = data.path.c_str();
    family = data.family.c_str();
    device = data.device.c_str();
    isa = data.isa.c_str();
    dtype = data.dtype.c_str();
    kv_cache_dtype = data.kv_cache_dtype.c_str();
    eos_token_ids = data.eos_token_ids.data();
    num_eos_token_ids = data.eos_token_ids.size();
    weight_bytes = data.weight_bytes;
    mapped_weight_bytes = data.mapped_weight_bytes;
    kv_cache_bytes = data.kv_cache_bytes;
    scratch_bytes = data.scratch_bytes;
    reserved_bytes = data.reserved_bytes;
    device_free_bytes = data.device_free_bytes;
    num_parameters = data.num_parameters;
    load_seconds = data.load_seconds;
    vocab_size = data.vocab_size;
    hidden_size = data.hidden_size;
    num_layers = data.num_layers;
    num_heads = data.num_heads;
    num_kv_heads = data.num_kv_heads;
    head_dim = data.head_dim;
    intermediate_size = data.intermediate_size;
    max_model_len = data.max_model_len;
    max_num_seqs = data.max_num_seqs;
    max_num_batched_tokens = data.max_num_batched_tokens;
    block_size = data.block_size;
    num_kv_blocks = data.num_kv_blocks;
    num_threads = data.num_threads;
    max_loras = data.max_loras;
    max_lora_rank = data.max_lora_rank;
    num_nodes = data.num_nodes;
    quantization = data.quantization.c_str();
    packed_weights = data.packed_weights.c_str();
    host_kv_cache_bytes = data.host_kv_cache_bytes;
    num_host_kv_blocks = data.num_host_kv_blocks;
    num_kv_groups = data.num_kv_groups;
    state_slot_bytes = data.state_slot_bytes;
    num_state_slots = data.num_state_slots;
    num_host_state_slots = data.num_host_state_slots;
    snapshot_interval = data.snapshot_interval;
    tensor_parallel_size = data.tensor_parallel_size;
    data_parallel_size = data.data_parallel_size;
    num_active_parameters = data.num_active_parameters;
    token_weight_bytes = data.token_weight_bytes;
    num_experts = data.num_experts;
    num_active_experts = data.num_active_experts;
    causal = data.causal;
    generates = data.generates;
    head_outputs = data.head_outputs;
    classifies = data.classifies;
    classifier_pooling = static_cast<int32_t>(data.classifier_pooling);
    tells_pairs = data.tells_pairs;
    vision = data.vision;
    takes_embeddings = data.takes_embeddings;
    max_encoder_tokens = data.max_encoder_tokens;
    encoder_cache_bytes = data.encoder_cache_bytes;
    vision_weight_bytes = data.vision_weight_bytes;
    for (const auto& [window, count] : data.kv_numbers) {
      windows.push_back(window);
      numbers.push_back(count);
    }
    kv_windows = windows.data();
    kv_numbers = numbers.data();
    num_kv_windows = windows.size();
  }

  const ModelInfo data;
  std::vector<int32_t> windows;
  std::vector<int64_t> numbers;
};

struct OwnedNames : headrace_model_names {
  explicit OwnedNames(std::vector<std::string> from)
      : headrace_model_names{}, data(std::move(from)) {
    for (const std::string& each : data) pointers.push_back(each.c_str());
    struct_size = sizeof(headrace_model_names);
    count = pointers.size();
    names = pointers.data();
  }

  const std::vector<std::string> data;
  std::vector<const char*> pointers;
};

headrace_model_stats to_c(const ModelStats& from) {
  headrace_model_stats out{};
  out.finished_requests = from.finished_requests;
  out.preemptions = from.preemptions;
  out.interruptions = from.interruptions;
  out.steps = from.steps;
  out.prompt_tokens = from.prompt_tokens;
  out.generated_tokens = from.generated_tokens;
  out.prefix_hit_tokens = from.prefix_hit_tokens;
  out.prefix_miss_tokens = from.prefix_miss_tokens;
  out.memory_bytes = from.memory_bytes;
  out.memory_pool_bytes = from.memory_pool_bytes;
  out.mapped_bytes = from.mapped_bytes;
  out.busy_seconds = from.busy_seconds;
  out.mask_wait_seconds = from.mask_wait_seconds;
  out.state = static_cast<int32_t>(from.state);
  out.running_replicas = from.running_replicas;
  out.waiting_requests = from.waiting_requests;
  out.running_requests = from.running_requests;
  out.total_kv_blocks = from.total_kv_blocks;
  out.free_kv_blocks = from.free_kv_blocks;
  out.cached_kv_blocks = from.cached_kv_blocks;
  out.drafted_tokens = from.drafted_tokens;
  out.accepted_tokens = from.accepted_tokens;
  out.encoded_tokens = from.encoded_tokens;
  out.encoder_hit_tokens = from.encoder_hit_tokens;
  out.encoder_cache_bytes = from.encoder_cache_bytes;
  out.prefix_host_hit_tokens = from.prefix_host_hit_tokens;
  out.kv_blocks_to_host = from.kv_blocks_to_host;
  out.kv_blocks_from_host = from.kv_blocks_from_host;
  out.cached_host_kv_blocks = from.cached_host_kv_blocks;
  out.total_state_slots = from.total_state_slots;
  out.free_state_slots = from.free_state_slots;
  out.cached_state_slots = from.cached_state_slots;
  out.cached_host_state_slots = from.cached_host_state_slots;
  out.snapshots_saved = from.snapshots_saved;
  out.snapshots_evicted = from.snapshots_evicted;
  out.snapshots_restored = from.snapshots_restored;
  out.prefix_unused_tokens = from.prefix_unused_tokens;
  return out;
}

static_assert(HEADRACE_MODEL_FAILED == static_cast<int>(ModelState::kFailed));

}  // namespace

headrace_code headrace_pack_model(const headrace_model_options* options, const char* file) {
  return guarded([&] { pack_model(to_model_options(options), or_empty(file)); });
}

headrace_code headrace_engine_model_stats(headrace_engine* engine, const char* name,
                                          headrace_model_stats* stats) {
  return guarded([&] {
    const size_t size = deref(stats, "stats").struct_size;
    check_struct_size(size, "stats");
    write_struct(stats, size, to_c(deref(engine, "engine").engine.model_stats(or_empty(name))));
  });
}

headrace_code headrace_engine_model_info(headrace_engine* engine, const char* name,
                                         headrace_model_info** info) {
  return guarded([&] {
    headrace_model_info*& out = deref(info, "info");
    out = new OwnedInfo(deref(engine, "engine").engine.model_info(or_empty(name)));
  });
}

void headrace_model_info_release(headrace_model_info* info) {
  delete static_cast<OwnedInfo*>(info);
}

headrace_code headrace_engine_model_names(headrace_engine* engine, headrace_model_names** names) {
  return guarded([&] {
    headrace_model_names*& out = deref(names, "names");
    out = new OwnedNames(deref(engine, "engine").engine.models());
  });
}

void headrace_model_names_release(headrace_model_names* names) {
  delete static_cast<OwnedNames*>(names);
}
