#include "engine/load/load_model.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "engine/cache/weight_cache.h"
#include "engine/devices/device_names.h"
#include "engine/devices/open_device.h"
#include "engine/load/check_ranks.h"
#include "engine/load/describe.h"
#include "engine/load/media_plan.h"
#include "engine/load/memory_plan.h"
#include "engine/load/shapes.h"
#include "engine/load/weights.h"
#include "engine/loop/reserve_steps.h"
#include "engine/ranks/decoder_runner.h"
#include "memory/mmap_allocator.h"
#include "model/decoder/decoder.h"
#include "model/load/load_config.h"
#include "model/load/load_lora_adapter.h"
#include "model/load/make_decoder.h"
#include "model/sources/cache_layout.h"

namespace headrace::internal {

namespace {

/// What is loaded, but for where.
struct ModelParts {
  const std::string& name;
  const ReplicaPlace& replica;
  const ModelOptions& options;
  const ModelConfig& config;
  const Shapes& shapes;
  const PackedFile* packed;
};

/// Each rank reads its part on its own thread. What ends one of them ends the others.
std::unique_ptr<DecoderRunner> load_runner(const ModelParts& model, const RankedBackends& ranks,
                                           Logger& logger, LoadWatch& watch) {
  if (model.packed != nullptr) {
    check_packed_file(*model.packed, model.options, model.config, ranks.first(), watch);
  }
  std::vector<LoadedWeights> weights(ranks.backends.size());
  ranks.threads->run([&](int32_t rank) {
    try {
      Backend& backend = *ranks.backends[static_cast<size_t>(rank)];
      if (rank > 0) backend.enter_thread();
      DecoderOptions shape = model.shapes.decoder;
      shape.rank = {rank, ranks.threads->count(), model.options.enable_expert_parallel};
      weights[static_cast<size_t>(rank)] = load_decoder(
          {model.name, model.options, model.config, shape, backend, logger, watch}, model.packed);
    } catch (...) {
      watch.fail();
      throw;
    }
  });
  // One file is enough for all.
  if (model.replica.index > 0) {
    for (LoadedWeights& own : weights) own.writer.reset();
  }
  return std::make_unique<DecoderRunner>(ranks, std::move(weights), model.shapes.decoder);
}

/// On the first rank alone: a draft is small, and others would only wait for each other.
std::unique_ptr<DecoderRunner> load_draft(const std::string& name, const ReplicaPlace& replica,
                                          const Draft& draft, const RankedBackends& ranks,
                                          Logger& logger, LoadWatch& watch) {
  const auto& [options, config, packed, shapes] = draft;
  ranks.first().require(needs_of(options, config, shapes));
  const RankedBackends own = {std::make_shared<RankThreads>(1), {ranks.backends.front()}};
  return load_runner({name, replica, options, config, shapes, packed.get()}, own, logger, watch);
}

SchedulerConfig scheduler_config(const ModelOptions& options, const Shapes& shapes,
                                 const MemoryPlan& plan) {
  SchedulerConfig out;
  out.max_num_seqs = options.max_num_seqs;
  out.max_num_batched_tokens = shapes.decoder.max_rows;
  out.max_prefill_chunk = options.max_prefill_chunk;
  if (shapes.whole_pictures) out.most_item_rows = most_item_rows(options, shapes.decoder);
  out.max_model_len = plan.max_model_len;
  out.block_size = options.block_size;
  out.num_blocks = plan.num_kv_blocks;
  out.num_host_blocks = plan.num_host_blocks;
  out.windows = shapes.windows;
  out.num_state_slots = plan.num_state_slots;
  out.num_host_state_slots = plan.num_host_state_slots;
  if (shapes.has_states) out.snapshot_interval = shapes.snapshot_interval;
  out.enable_prefix_caching = options.enable_prefix_caching;
  out.out_of_blocks = options.out_of_blocks;
  return out;
}

/// What one rank asks of its device.
MemoryRequest memory_request(const ModelOptions& options, const ModelConfig& config,
                             const Shapes& shapes, const Backend& backend,
                             const RankPlace& rank = {}) {
  MemoryRequest request;
  const DeviceInfo device = backend.device_info();
  request.free_bytes = device.free_bytes;
  request.total_bytes = device.total_bytes;
  request.utilization = options.memory_utilization;
  request.total_ratio = options.total_memory_ratio;
  request.leftover_bytes = options.memory_leftover_bytes;
  DecoderOptions decoder = shapes.decoder;
  decoder.rank = rank;
  request.weight_bytes = plan_weight_bytes(config, decoder.storage, decoder.quantization, rank);
  request.scratch_bytes =
      plan_scratch_bytes(config, decoder, backend.activation_dtype(decoder.storage));
  request.lora_bytes = static_cast<size_t>(options.max_loras) *
                       plan_lora_bytes(config, decoder.storage, options.max_lora_rank, rank);
  const CacheLayout layout = rank_layout(shapes.cache, config, rank);
  request.block_bytes = backend.kv_block_bytes(layout);
  request.state_slot_bytes = backend.state_slot_bytes(layout);
  request.num_state_slots = options.num_state_slots;
  request.draft_slots =
      options.speculative.method.empty() ? 0 : options.speculative.num_speculative_tokens;
  request.keeps_snapshots = options.enable_prefix_caching;
  request.snapshot_interval = shapes.snapshot_interval;
  request.groups = kv_groups(scheduler_config(options, shapes, {}));
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

/// What the ranks ask for, each of its device. Keys and values of a token have as many bytes on
/// each of them, and kv_cache_bytes is for all together; so is swap_space.
std::vector<MemoryRequest> rank_requests(const ModelOptions& options, const ModelConfig& config,
                                         const Shapes& shapes, const RankedBackends& ranks,
                                         const ReplicaPlace& replica) {
  std::vector<MemoryRequest> out;
  const int32_t count = ranks.threads->count();
  for (int32_t i = 0; i < count; ++i) {
    const Backend& backend = *ranks.backends[static_cast<size_t>(i)];
    MemoryRequest& own =
        out.emplace_back(memory_request(options, config, shapes, backend, rank_place(options, i)));
    if (own.kv_cache_bytes > 0) {
      own.kv_cache_bytes = std::max<size_t>(1, own.kv_cache_bytes / static_cast<size_t>(count));
    }
    own.swap_space /= count;
    if (own.device_is_host) {
      own.sharers = options.data_parallel_size - replica.index;
      own.sharers_before = replica.index;
    }
    // GPUs of one model take theirs beside each other. Some of the other replicas, who are loaded
    // beside each other, may have theirs already.
    own.host_sharers =
        (own.device_is_host ? 1 : count) * (replica.index == 0 ? options.data_parallel_size : 1);
  }
  return out;
}

/// A model's runner, and its draft model's.
struct Runners {
  std::unique_ptr<DecoderRunner> model, draft;  ///< draft: may be null

  void make_caches(const Shapes& shapes, const std::optional<Draft>& drafts,
                   const CacheCounts& counts) {
    model->make_cache(shapes.cache, counts);
    if (draft) draft->make_cache(drafts->shapes.cache, {.blocks = counts.blocks});
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

std::unique_ptr<Speculator> make_speculator(const ModelOptions& options, const ModelConfig& config,
                                            const Shapes& shapes, const MemoryPlan& plan,
                                            const DeviceInfo& device,
                                            const std::optional<Draft>& draft, Runners& runners) {
  return std::make_unique<Speculator>(
      options.speculative, step_costs(device, config, draft ? &draft->config : nullptr),
      draft ? draft_model(*draft, plan, std::move(runners.draft)) : nullptr,
      config.uses_mtp ? mtp_drafter(options, shapes, *runners.model) : nullptr);
}

// A GPU's memory is divided by what the largest steps have taken of it. They compute nothing: a
// cache of one block will do, with the slots that a step may name.
MemoryPlan measure_and_plan(std::vector<MemoryRequest> requests, const SchedulerConfig& config,
                            Runners& runners, const Shapes& shapes,
                            const std::optional<Draft>& draft, const RankedBackends& ranks) {
  const int32_t slots = shapes.has_states ? config.max_num_seqs : 0;
  runners.make_caches(shapes, draft, {.blocks = 1, .state_slots = slots});
  reserve_steps(*runners.model, config);
  if (runners.draft) reserve_steps(*runners.draft, config);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Backend& backend = *ranks.backends[i];
    MemoryRequest& request = requests[i];
    // Padding rows write to a block more. The slots will be others'.
    request.taken_bytes = backend.bytes_held() + request.block_bytes -
                          static_cast<size_t>(slots) * request.state_slot_bytes;
    request.free_now = backend.device_info().free_bytes;
  }
  return plan_ranks(requests);
}

void check_length(const std::string& name, const ModelOptions& options, const ModelConfig& config,
                  Logger& logger) {
  if (config.embedding.position_rows > 0 &&
      options.max_model_len > config.max_position_embeddings) {
    throw_error(ErrorCode::kInvalidArgument, "max_model_len is ", options.max_model_len,
                ", but the model knows ", config.max_position_embeddings,
                " positions, from a table: lower it.");
  }
  if (options.max_model_len > config.max_position_embeddings) {
    logger.log(LogLevel::kWarning, "model '", name, "': max_model_len ", options.max_model_len,
               " is beyond the ", config.max_position_embeddings,
               " positions of its max_position_embeddings; text behind them may be poor.");
  }
}

/// `known`: of the kernels, which were told of already.
void warn_about_kernels(const DeviceInfo& device, size_t known, Logger& logger) {
  for (size_t i = known; i < device.replaced_kernels.size(); ++i) {
    logger.log(LogLevel::kWarning, device.name, " (", device.description,
               "): kernels failed their trial: ", device.replaced_kernels[i],
               ". Please report it with the driver's version.");
  }
}

RankedBackends open_ranks(const DeviceOpener& open, const ModelOptions& options,
                          const ReplicaPlace& replica, bool packed, const BackendNeeds& needs,
                          Logger& logger) {
  RankedBackends out;
  const int32_t count = num_ranks(options);
  out.threads = std::make_shared<RankThreads>(count);
  for (int32_t rank = 0; rank < count; ++rank) {
    const Backend* first = rank == 0 ? nullptr : &out.first();
    out.backends.push_back(
        open(rank_options(options, replica, rank, first), packed, needs, logger));
    if (count > 1) out.backends.back()->join(out.threads->group(), rank);
  }
  if (count > 1) {
    out.threads->run([&](int32_t rank) { out.backends[static_cast<size_t>(rank)]->link_ranks(); });
  }
  for (const auto& backend : out.backends) warn_about_kernels(backend->device_info(), 0, logger);
  return out;
}

/// What a model's folder says, before any device is open.
struct OpenedModel {
  ModelConfig config;
  std::unique_ptr<PackedFile> packed;
  Shapes shapes;
};

OpenedModel open_model(const std::string& name, const ModelOptions& options, Logger& logger) {
  OpenedModel out{read_model_config(options), open_packed(options), {}};
  ModelConfig& config = out.config;
  const PackedFile* packed = out.packed.get();
  if (!options.dummy_weights) find_head(options.path, packed, config);
  check_speculative(options, config);
  out.shapes = choose_shapes(options, config, storage_dtype(options, config, packed));
  out.shapes.decoder.quantization = quantization_of(options, config, packed);
  check_length(name, options, config, logger);
  check_ranks(options, config, packed);
  return out;
}

/// The loaded model, but for what computes it and what describes it.
LoadedModel loaded_model(const ModelOptions& options, const ModelConfig& config,
                         const Shapes& shapes, const MemoryPlan& plan,
                         const DecoderRunner& runner) {
  LoadedModel out;
  out.scheduler = scheduler_config(options, shapes, plan);
  // Keys and values of bidirectional attention depend on what comes behind them.
  out.scheduler.enable_prefix_caching = out.scheduler.enable_prefix_caching && config.causal;
  for (const RopeSpec& rope : config.ropes) {
    out.dynamic_rope_max = std::max(out.dynamic_rope_max, rope.dynamic_original_max);
  }
  out.has_head = config.has_head;
  out.first_vision_token = config.moe.first_vision_token;
  if (options.max_loras > 0) {
    out.load_lora = [places = runner.lora_places(), config, storage = shapes.decoder.storage,
                     max_rank = options.max_lora_rank](const std::string& path) {
      return load_lora_adapter(places, config, storage, max_rank, path);
    };
  }
  return out;
}

LoadedModel load_opened(const DeviceOpener& open, const std::string& name,
                        const ModelOptions& options, const ReplicaPlace& replica, Logger& logger) {
  const auto start = std::chrono::steady_clock::now();
  validate_model_options(options);
  LoadWatch watch(options);
  watch.enter(LoadStage::kOpening);
  auto [config, packed, shapes] = open_model(name, options, logger);
  const BackendNeeds needs = needs_of(options, config, shapes);
  const RankedBackends ranks = open_ranks(open, options, replica, packed != nullptr, needs, logger);
  const DeviceInfo device = ranks.first().device_info();
  fit_to(ranks.first(), options, config, shapes.decoder);
  const std::optional<Draft> draft = open_draft(options, config, ranks.first());
  if (draft) {
    warn_about_kernels(ranks.first().device_info(), device.replaced_kernels.size(), logger);
  }
  std::vector<MemoryRequest> requests = rank_requests(options, config, shapes, ranks, replica);
  EncoderStage::Parts encoder = plan_media(options, config, shapes.decoder, ranks.first(), needs);
  requests.front().media_bytes = encoder.limits.cache_bytes;
  if (draft) add_draft(*draft, ranks.first(), requests.front());
  MemoryPlan plan = plan_ranks(requests);
  watch.expect(LoadStage::kWeights, sum_of(requests).weight_bytes);
  Runners runners{
      load_runner({name, replica, options, config, shapes, packed.get()}, ranks, logger, watch),
      draft ? load_draft(name, replica, *draft, ranks, logger, watch) : nullptr};
  watch.finish();
  watch.enter(LoadStage::kReserving);
  if (auto tower = runners.model->take_tower()) {
    add_tower(std::move(tower), *config.vision, options, plan.max_model_len, device.total_bytes,
              encoder);
    requests.front().media_bytes = encoder.limits.cache_bytes + encoder.limits.most_scratch;
    plan = plan_ranks(requests);
  }
  if (device.measured_memory) {
    plan = measure_and_plan(requests, scheduler_config(options, shapes, plan), runners, shapes,
                            draft, ranks);
  }
  const MemoryRequest request = sum_of(requests);
  const size_t held_bytes = runners.model->memory_pool_bytes();
  runners.make_caches(
      shapes, draft,
      {plan.num_kv_blocks, plan.num_host_blocks, plan.num_state_slots, plan.num_host_state_slots});

  LoadedModel out = loaded_model(options, config, shapes, plan, *runners.model);
  ModelInfo& info = out.info = describe_config(name, options.path, config);
  describe_shapes(options, shapes.decoder, shapes.cache, out.scheduler, info);
  describe_device(ranks, options.data_parallel_size, info);
  describe_memory(*runners.model, request, plan, info);
  describe_media(encoder, info);
  out.encoder = std::move(encoder);
  if (device.measured_memory) {
    info.reserved_bytes = held_bytes - info.weight_bytes - info.scratch_bytes + request.lora_bytes +
                          request.media_bytes;
  }
  if (!options.speculative.method.empty()) {
    out.speculator = make_speculator(options, config, shapes, plan, device, draft, runners);
  }
  out.runner = std::move(runners.model);
  info.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

}  // namespace

LoadedModel load_model(const std::string& name, const ModelOptions& options,
                       const ReplicaPlace& replica, Logger& logger) {
  return load_model_on(open_device, name, options, replica, logger);
}

// What a GPU doesn't run may show as late as its weights do: then "auto" is the CPU all the same.
// But several devices are of one kind, which the first has chosen.
LoadedModel load_model_on(const DeviceOpener& open, const std::string& name,
                          const ModelOptions& options, const ReplicaPlace& replica,
                          Logger& logger) {
  const bool chooses = options.device == "auto" && options.devices.empty() && replica.index == 0 &&
                       num_ranks(options) == 1;
  if (!chooses) return load_opened(open, name, options, replica, logger);
  bool on_gpu = false;
  const auto note_device = [&](const ModelOptions& own, bool packed, const BackendNeeds& needs,
                               Logger& log) {
    std::shared_ptr<Backend> backend = open(own, packed, needs, log);
    on_gpu = on_gpu || !backend->device_info().host_memory;
    return backend;
  };
  try {
    return load_opened(note_device, name, options, replica, logger);
  } catch (const Error& error) {
    if (!on_gpu || error.code() != ErrorCode::kUnsupported) throw;
    warn_cpu_fallback(error, logger);
  }
  ModelOptions on_cpu = options;
  on_cpu.device = "cpu";
  return load_opened(open, name, on_cpu, replica, logger);
}

}  // namespace headrace::internal
