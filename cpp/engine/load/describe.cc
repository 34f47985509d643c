#include "engine/load/describe.h"

#include "engine/load/weights.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/sources/cache_layout.h"
#include "model/sources/model_sources.h"

namespace headrace::internal {

namespace {

// Of the rows that keep a device busy, one in so many is multiplied by the weights in the time that
// it takes to read them: 4 of a CPU, which is what 4-bit weights have there, and 32 of a GPU.
constexpr double kBusyPerReadRows = 128;

void describe_kept(const ModelSources& sources, ModelInfo& info) {
  for (const LayerKeeps& layer : list_kept(sources)) {
    if (layer.reads < 0 && layer.rows.num_kv_heads > 0) {
      info.kv_numbers[layer.rows.window] += layer.rows.numbers();
    }
    info.state_slot_bytes += layer.state.numbers() * sizeof(float);
  }
}

}  // namespace

ModelInfo describe_config(const std::string& name, const std::string& path,
                          const ModelConfig& config) {
  ModelInfo info;
  info.name = name;
  info.path = path;
  info.family = config.model_type;
  info.dtype = dtype_name(config.checkpoint_dtype);
  info.quantization = stored_method_name(config.stored_quantization.method);
  info.vocab_size = config.vocab_size;
  info.hidden_size = config.hidden_size;
  info.num_layers = config.num_layers;
  info.num_heads = config.num_heads;
  info.num_kv_heads = config.num_kv_heads;
  info.head_dim = config.head_dim;
  info.intermediate_size = config.intermediate_size;
  info.max_model_len = config.max_position_embeddings;
  info.eos_token_ids = config.eos_token_ids;
  info.causal = config.causal;
  info.generates = config.causal && config.has_head;
  if (!config.pool_head.layers.empty()) info.head_outputs = config.pool_head.layers.back().outputs;
  info.classifies = config.pool_head.classifies;
  if (config.pool_head.reads_mean) info.classifier_pooling = Pooling::kMean;
  info.tells_pairs = config.embedding.token_types > 1;
  const ModelSources sources = list_sources(config, likely_naming(config));
  info.num_parameters = sources.num_parameters();
  info.num_active_parameters = sources.active_parameters();
  describe_kept(sources, info);
  const int32_t groups = config.moe.vision_width > 0 ? 2 : 1;
  info.num_experts = config.moe.router.num_experts * groups;
  info.num_active_experts = config.moe.router.top_k;
  return info;
}

void describe_shapes(const ModelOptions& options, const DecoderOptions& decoder,
                     const CacheOptions& cache, const SchedulerConfig& scheduler, ModelInfo& info) {
  info.dtype = dtype_name(decoder.storage);
  if (info.quantization.empty()) info.quantization = quantization_name(decoder.quantization);
  info.kv_cache_dtype = kv_dtype_name(cache.dtype);
  info.max_model_len = scheduler.max_model_len;
  info.max_num_seqs = scheduler.max_num_seqs;
  info.max_num_batched_tokens = scheduler.max_num_batched_tokens;
  info.block_size = scheduler.block_size;
  info.num_kv_blocks = scheduler.num_blocks;
  info.num_host_kv_blocks = scheduler.num_host_blocks;
  info.num_kv_groups = static_cast<int32_t>(scheduler.windows.size());
  info.num_state_slots = scheduler.num_state_slots;
  info.num_host_state_slots = scheduler.num_host_state_slots;
  info.snapshot_interval = scheduler.num_state_slots > 0 ? scheduler.snapshot_interval : 0;
  info.max_loras = options.max_loras;
  info.max_lora_rank = options.max_lora_rank;
}

void describe_device(const RankedBackends& ranks, int32_t replicas, ModelInfo& info) {
  const DeviceInfo device = ranks.first().device_info();
  info.device = device.name;
  info.isa = device.isa;
  info.tensor_parallel_size = ranks.threads->count();
  const bool several = info.tensor_parallel_size * replicas > 1;
  for (const auto& backend : ranks.backends) {
    const DeviceInfo each = backend->device_info();
    info.num_threads += each.num_threads;
    info.num_nodes += each.num_nodes;
    info.device_free_bytes += each.free_bytes;
    for (const std::string& kernel : each.replaced_kernels) {
      info.replaced_kernels.push_back(several ? each.name + ": " + kernel : kernel);
    }
  }
  // Groups of threads that share a node, or GPUs.
  if (device.name != "cpu_numa") info.num_nodes = 1;
  if (device.host_memory) info.device_free_bytes = device.free_bytes;
}

void describe_media(const EncoderStage::Parts& encoder, ModelInfo& info) {
  info.takes_embeddings = encoder.limits.refusal.empty();
  info.vision = encoder.limits.tower != nullptr;
  if (!info.takes_embeddings) return;
  info.max_encoder_tokens = encoder.max_tokens;
  info.encoder_cache_bytes = encoder.limits.cache_bytes;
  if (info.vision) info.vision_weight_bytes = encoder.tower->weight_bytes();
}

void describe_memory(const DecoderRunner& runner, const MemoryRequest& request,
                     const MemoryPlan& plan, ModelInfo& info) {
  for (int32_t rank = 0; rank < runner.num_ranks(); ++rank) {
    const Decoder& decoder = runner.decoder(rank);
    info.token_weight_bytes += decoder.token_weight_bytes();
    info.weight_bytes += decoder.weight_bytes();
    info.mapped_weight_bytes += decoder.adopted_bytes();
    info.scratch_bytes += decoder.scratch_bytes();
  }
  info.packed_weights = runner.packed_file();
  info.state_slot_bytes = request.state_slot_bytes;
  info.kv_cache_bytes = static_cast<size_t>(plan.num_kv_blocks) * request.block_bytes;
  info.host_kv_cache_bytes = static_cast<size_t>(plan.num_host_blocks) * request.host_block_bytes;
}

StepCosts step_costs(const DeviceInfo& device, const ModelConfig& config,
                     const ModelConfig* draft) {
  const ModelSources sources = list_sources(config, likely_naming(config));
  const auto active = static_cast<double>(sources.active_parameters());
  StepCosts out{.read_rows = device.busy_rows / kBusyPerReadRows};
  for (const MatrixSource* source : sources.proper_matrices()) {
    if (source->active_experts == source->experts) continue;
    out.expert_share += static_cast<double>(source->active_numbers()) / active;
    out.experts_met = static_cast<double>(source->active_experts) / source->experts;
  }
  int64_t drafter = 0;
  if (draft != nullptr) {
    drafter = list_sources(*draft, likely_naming(*draft)).active_parameters();
  } else if (sources.mtp) {  // its guesses go through the model's head
    drafter = (sources.head.empty() ? sources.embedding : sources.head).numbers();
    for (const MatrixSource* source : sources.mtp->matrices()) drafter += source->active_numbers();
  }
  out.drafter = static_cast<double>(drafter) / active;
  return out;
}

}  // namespace headrace::internal

headrace::ModelInfo headrace::describe_model(const std::string& folder) {
  return internal::describe_config("", folder, load_model_config(folder));
}
