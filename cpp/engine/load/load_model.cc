#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "engine/load/device.h"
#include "engine/load/loaded_model.h"
#include "engine/load/media_plan.h"
#include "engine/load/memory_plan.h"
#include "engine/load/weights.h"
#include "engine/loop/decoder_runner.h"
#include "engine/loop/reserve_steps.h"
#include "memory/mmap_allocator.h"
#include "model/decoder/decoder.h"
#include "model/lora/lora_adapter.h"
#include "model/weights/weight_sources.h"

namespace headrace::internal {

namespace {

// Bounds the logits' scratch memory; steps that want more rows read them in several calls, unless
// the backend records such steps as one (Backend::recorded_rows).
constexpr int32_t kMaxLogitRows = 128;
constexpr int32_t kGuessedLogitRows = 64;

struct Shapes {
  DecoderOptions decoder;
  KvCacheSpec cache;
};

/// The draft model of speculative decoding, about to be loaded.
struct Draft {
  ModelOptions options;
  ModelConfig config;
  std::unique_ptr<PackedFile> packed;
  Shapes shapes;
};

/// Rows of a request that an MTP block may leave unread: those of a step, and a text's that is read
/// for nothing.
int32_t most_unread(const ModelOptions& options) {
  return Speculator::kFreeRead + options.speculative.num_speculative_tokens;
}

Shapes choose_shapes(const ModelOptions& options, const ModelConfig& config, DType storage) {
  Shapes out;
  out.decoder.storage = storage;
  out.decoder.max_logit_rows = std::min(options.max_num_seqs, kMaxLogitRows);
  if (!options.speculative.method.empty()) {
    const int32_t rows = options.max_num_seqs * (1 + options.speculative.num_speculative_tokens);
    out.decoder.max_logit_rows =
        std::max(out.decoder.max_logit_rows, std::min(rows, kGuessedLogitRows));
  }
  out.decoder.max_loras = options.max_loras;
  out.decoder.max_lora_rank = options.max_lora_rank;
  out.decoder.dummy_weights = options.dummy_weights;
  out.decoder.max_kept_rows = config.uses_mtp ? options.max_num_seqs * most_unread(options) : 0;
  out.cache.num_layers = config.kv_layers();
  out.cache.num_kv_heads = config.num_kv_heads;
  out.cache.head_dim = config.head_dim;
  out.cache.block_size = options.block_size;
  out.cache.dtype = parse_kv_dtype(options.kv_cache_dtype, out.decoder.storage);
  return out;
}

/// What a step may hold depends on the device.
void fit_rows(const ModelOptions& options, const Backend& backend, DecoderOptions& decoder) {
  decoder.max_logit_rows =
      std::max(decoder.max_logit_rows, std::min(options.max_num_seqs, backend.recorded_rows()));
  decoder.max_rows = options.max_num_batched_tokens > 0
                         ? options.max_num_batched_tokens
                         : std::max(backend.device_info().busy_rows, options.max_num_seqs);
}

BackendNeeds needs_of(const ModelOptions& options, const ModelConfig& config,
                      const Shapes& shapes) {
  const StoredMethod stored = config.stored_quantization.method;
  std::string quantization = is_numbers(stored) ? "" : stored_method_name(stored);
  if (quantization.empty()) quantization = quantization_name(shapes.decoder.quantization);
  return {.storage = shapes.decoder.storage,
          .kv_dtype = shapes.cache.dtype,
          .head_dim = config.head_dim,
          .block_size = options.block_size,
          .quantization = quantization,
          .given_rows = config.vision.has_value(),
          .vision = config.vision.has_value(),
          .experts = config.moe.router.num_experts,
          .mtp = config.uses_mtp};
}

void check_speculative(const ModelOptions& options, const ModelConfig& config) {
  if (options.speculative.method.empty() || (config.causal && config.has_head)) return;
  throw_error(ErrorCode::kUnsupported, "speculative decoding is asked for, but ", options.path,
              " gives embeddings, no text: leave it out.");
}

std::optional<Draft> read_draft(const ModelOptions& options, const ModelConfig& target) {
  if (options.speculative.method != "draft_model") return std::nullopt;
  Draft out{options, load_model_config(options.speculative.model), nullptr, {}};
  out.options.path = options.speculative.model;
  if (options.packed_weights != kCachedWeights) out.options.packed_weights.clear();
  out.options.max_loras = 0;
  out.options.speculative = {};
  if (out.config.vocab_size != target.vocab_size) {
    throw_error(ErrorCode::kInvalidArgument, "the draft model ", out.options.path,
                " has a vocabulary of ", out.config.vocab_size, " ids, the model one of ",
                target.vocab_size, ": choose one with the same tokenizer.");
  }
  if (!out.config.causal) {
    throw_error(ErrorCode::kUnsupported, "the draft model ", out.options.path,
                " has bidirectional attention: it guesses no tokens.");
  }
  out.packed = open_packed(out.options);
  out.shapes = choose_shapes(out.options, out.config,
                             storage_dtype(out.options, out.config, out.packed.get()));
  out.shapes.decoder.quantization = quantization_of(out.options, out.config, out.packed.get());
  return out;
}

std::unique_ptr<DecoderRunner> load_runner(const CachedModel& model, const PackedFile* packed,
                                           const std::shared_ptr<Backend>& backend) {
  return std::make_unique<DecoderRunner>(backend, load_decoder(model, packed), model.shape);
}

std::unique_ptr<DecoderRunner> load_draft(const std::string& name, const Draft& draft,
                                          const std::shared_ptr<Backend>& backend, Logger& logger,
                                          LoadWatch& watch) {
  const auto& [options, config, packed, shapes] = draft;
  backend->require(needs_of(options, config, shapes));
  return load_runner({name, options, config, shapes.decoder, *backend, logger, watch}, packed.get(),
                     backend);
}

MemoryRequest memory_request(const ModelOptions& options, const ModelConfig& config,
                             const Shapes& shapes, const Backend& backend) {
  MemoryRequest request;
  const DeviceInfo device = backend.device_info();
  request.free_bytes = device.free_bytes;
  request.total_bytes = device.total_bytes;
  request.utilization = options.memory_utilization;
  request.total_ratio = options.total_memory_ratio;
  request.leftover_bytes = options.memory_leftover_bytes;
  request.weight_bytes =
      Decoder::plan_weight_bytes(config, shapes.decoder.storage, shapes.decoder.quantization);
  request.scratch_bytes = Decoder::plan_scratch_bytes(
      config, shapes.decoder, backend.activation_dtype(shapes.decoder.storage));
  request.lora_bytes = static_cast<size_t>(options.max_loras) *
                       plan_lora_bytes(config, shapes.decoder.storage, options.max_lora_rank);
  request.block_bytes = backend.kv_block_bytes(shapes.cache);
  request.block_size = options.block_size;
  request.max_num_seqs = options.max_num_seqs;
  request.model_max_len = config.max_position_embeddings;
  request.max_model_len = options.max_model_len;
  request.num_kv_blocks = options.num_kv_blocks;
  request.kv_cache_bytes = options.kv_cache_bytes;
  request.swap_space = options.swap_space;
  request.host_block_bytes = request.block_bytes;
  request.device_is_host = device.host_memory;
  const size_t untouched = untouched_mapped_bytes();
  const size_t host_free = host_memory_info().free_bytes;
  request.host_free_bytes = host_free - std::min(host_free, untouched);
  if (request.device_is_host) request.promised_bytes = untouched;
  return request;
}

/// A draft model's cache has as many blocks as the model's.
void add_draft(const Draft& draft, const Backend& backend, MemoryRequest& request) {
  const MemoryRequest own = memory_request(draft.options, draft.config, draft.shapes, backend);
  request.weight_bytes += own.weight_bytes;
  request.scratch_bytes += own.scratch_bytes;
  request.block_bytes += own.block_bytes;
}

SchedulerConfig scheduler_config(const ModelOptions& options, const Shapes& shapes,
                                 const MemoryPlan& plan) {
  SchedulerConfig out;
  out.max_num_seqs = options.max_num_seqs;
  out.max_num_batched_tokens = shapes.decoder.max_rows;
  out.max_prefill_chunk = options.max_prefill_chunk;
  out.max_model_len = plan.max_model_len;
  out.block_size = options.block_size;
  out.num_blocks = plan.num_kv_blocks;
  out.num_host_blocks = plan.num_host_blocks;
  out.enable_prefix_caching = options.enable_prefix_caching;
  out.out_of_blocks = options.out_of_blocks;
  return out;
}

/// A model's runner, and its draft model's.
struct Runners {
  std::unique_ptr<DecoderRunner> model, draft;  ///< draft: may be null

  void make_caches(const Shapes& shapes, const std::optional<Draft>& drafts, int32_t num_blocks,
                   int32_t num_host_blocks) {
    model->make_cache(shapes.cache, num_blocks, num_host_blocks);
    if (draft) draft->make_cache(drafts->shapes.cache, num_blocks);
  }
};

std::unique_ptr<DraftModel> draft_model(const Draft& draft, const MemoryPlan& plan,
                                        std::unique_ptr<DecoderRunner> runner) {
  return std::make_unique<DraftModel>(
      std::move(runner), DraftModel::Limits{draft.shapes.decoder.max_rows, draft.options.block_size,
                                            plan.num_kv_blocks});
}

std::unique_ptr<MtpDrafter> mtp_drafter(const ModelOptions& options, const Shapes& shapes,
                                        DecoderRunner& runner) {
  return std::make_unique<MtpDrafter>(
      runner, MtpDrafter::Limits{shapes.decoder.max_rows, most_unread(options),
                                 shapes.decoder.max_kept_rows});
}

// A GPU's memory is divided by what the largest steps have taken of it. They compute nothing: a
// cache of one block will do.
MemoryPlan measure_and_plan(MemoryRequest request, const SchedulerConfig& config, Runners& runners,
                            const Shapes& shapes, const std::optional<Draft>& draft,
                            const Backend& backend) {
  runners.make_caches(shapes, draft, 1, 0);
  reserve_steps(*runners.model, config);
  if (runners.draft) reserve_steps(*runners.draft, config);
  request.taken_bytes = backend.bytes_held() + request.block_bytes;  // padding rows write there
  request.free_now = backend.device_info().free_bytes;
  return plan_memory(request);
}

void warn_about_length(const std::string& name, const ModelOptions& options,
                       const ModelConfig& config, Logger& logger) {
  if (options.max_model_len > config.max_position_embeddings) {
    logger.log(LogLevel::kWarning, "model '", name, "': max_model_len ", options.max_model_len,
               " is beyond the ", config.max_position_embeddings,
               " positions of its max_position_embeddings; text behind them may be poor.");
  }
}

void warn_about_kernels(const DeviceInfo& device, Logger& logger) {
  for (const std::string& replaced : device.replaced_kernels) {
    logger.log(LogLevel::kWarning, device.name, " (", device.description,
               "): kernels failed their trial and are replaced: ", replaced,
               ". Please report it with the driver's version.");
  }
}

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
  const ModelSources sources = list_sources(config, likely_naming(config));
  info.num_parameters = sources.num_parameters();
  info.num_active_parameters = sources.active_parameters();
  const int32_t groups = config.moe.vision_width > 0 ? 2 : 1;
  info.num_experts = config.moe.router.num_experts * groups;
  info.num_active_experts = config.moe.router.top_k;
  return info;
}

void describe_shapes(const ModelOptions& options, const Shapes& shapes,
                     const SchedulerConfig& scheduler, ModelInfo& info) {
  info.dtype = dtype_name(shapes.decoder.storage);
  if (info.quantization.empty()) info.quantization = quantization_name(shapes.decoder.quantization);
  info.kv_cache_dtype = dtype_name(shapes.cache.dtype);
  info.max_model_len = scheduler.max_model_len;
  info.max_num_seqs = scheduler.max_num_seqs;
  info.max_num_batched_tokens = scheduler.max_num_batched_tokens;
  info.block_size = scheduler.block_size;
  info.num_kv_blocks = scheduler.num_blocks;
  info.num_host_kv_blocks = scheduler.num_host_blocks;
  info.max_loras = options.max_loras;
  info.max_lora_rank = options.max_lora_rank;
}

void describe_device(const DeviceInfo& device, ModelInfo& info) {
  info.device = device.name;
  info.isa = device.isa;
  info.num_threads = device.num_threads;
  info.num_nodes = device.num_nodes;
  info.device_free_bytes = device.free_bytes;
  info.replaced_kernels = device.replaced_kernels;
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
  const Decoder& decoder = runner.decoder();
  info.token_weight_bytes = decoder.token_weight_bytes();
  info.weight_bytes = decoder.weight_bytes();
  info.mapped_weight_bytes = decoder.adopted_bytes();
  info.packed_weights = runner.packed_file();
  info.scratch_bytes = decoder.scratch_bytes();
  info.kv_cache_bytes = static_cast<size_t>(plan.num_kv_blocks) * request.block_bytes;
  info.host_kv_cache_bytes = static_cast<size_t>(plan.num_host_blocks) * request.host_block_bytes;
}

}  // namespace

LoadedModel load_model(const std::string& name, const ModelOptions& options, Logger& logger) {
  return load_model_on(open_device, name, options, logger);
}

LoadedModel load_model_on(const DeviceOpener& open, const std::string& name,
                          const ModelOptions& options, Logger& logger) {
  const auto start = std::chrono::steady_clock::now();
  validate_model_options(options);
  LoadWatch watch(options);
  watch.enter(LoadStage::kOpening);
  ModelConfig config = read_model_config(options);
  const auto packed = open_packed(options);
  if (!options.dummy_weights) find_head(options.path, packed.get(), config);
  check_speculative(options, config);
  Shapes shapes = choose_shapes(options, config, storage_dtype(options, config, packed.get()));
  shapes.decoder.quantization = quantization_of(options, config, packed.get());
  warn_about_length(name, options, config, logger);

  const std::shared_ptr<Backend> backend =
      open(options, packed != nullptr, needs_of(options, config, shapes), logger);
  warn_about_kernels(backend->device_info(), logger);
  fit_rows(options, *backend, shapes.decoder);
  std::optional<Draft> draft = read_draft(options, config);
  if (draft) fit_rows(options, *backend, draft->shapes.decoder);
  MemoryRequest request = memory_request(options, config, shapes, *backend);
  EncoderStage::Parts encoder =
      plan_media(options, config, shapes.decoder, *backend, needs_of(options, config, shapes));
  request.media_bytes = encoder.limits.cache_bytes;
  if (draft) add_draft(*draft, *backend, request);
  MemoryPlan plan = plan_memory(request);
  watch.expect(LoadStage::kWeights, request.weight_bytes);
  Runners runners{load_runner({name, options, config, shapes.decoder, *backend, logger, watch},
                              packed.get(), backend),
                  draft ? load_draft(name, *draft, backend, logger, watch) : nullptr};
  watch.finish();
  watch.enter(LoadStage::kReserving);
  if (auto tower = runners.model->take_tower()) {
    add_tower(std::move(tower), *config.vision, options, plan.max_model_len,
              backend->device_info().total_bytes, encoder);
    request.media_bytes = encoder.limits.cache_bytes + encoder.limits.most_scratch;
    plan = plan_memory(request);
  }
  if (backend->device_info().measured_memory) {
    plan = measure_and_plan(request, scheduler_config(options, shapes, plan), runners, shapes,
                            draft, *backend);
  }
  const size_t held_bytes = backend->bytes_held();
  runners.make_caches(shapes, draft, plan.num_kv_blocks, plan.num_host_blocks);

  LoadedModel out;
  out.scheduler = scheduler_config(options, shapes, plan);
  out.dynamic_rope_max = config.rope.dynamic_original_max;
  out.has_head = config.has_head;
  out.first_vision_token = config.moe.first_vision_token;
  // Keys and values of bidirectional attention depend on what comes behind them.
  out.scheduler.enable_prefix_caching = out.scheduler.enable_prefix_caching && config.causal;
  ModelInfo& info = out.info = describe_config(name, options.path, config);
  describe_shapes(options, shapes, out.scheduler, info);
  describe_device(backend->device_info(), info);
  describe_memory(*runners.model, request, plan, info);
  describe_media(encoder, info);
  out.encoder = std::move(encoder);
  if (backend->device_info().measured_memory) {
    info.reserved_bytes = held_bytes - info.weight_bytes - info.scratch_bytes + request.lora_bytes +
                          request.media_bytes;
  }
  if (options.max_loras > 0) {
    out.load_lora = [backend, config, storage = shapes.decoder.storage,
                     max_rank = options.max_lora_rank](const std::string& path) {
      return load_lora_adapter(backend, config, storage, max_rank, path);
    };
  }
  if (!options.speculative.method.empty()) {
    out.speculator = std::make_unique<Speculator>(
        options.speculative, draft ? draft_model(*draft, plan, std::move(runners.draft)) : nullptr,
        config.uses_mtp ? mtp_drafter(options, shapes, *runners.model) : nullptr);
  }
  out.runner = std::move(runners.model);
  info.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

}  // namespace headrace::internal

headrace::ModelInfo headrace::describe_model(const std::string& folder) {
  return internal::describe_config("", folder, load_model_config(folder));
}
