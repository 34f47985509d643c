#include "engine/load/shapes.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "engine/guess/speculator.h"
#include "model/load/list_sources.h"
#include "model/load/load_config.h"
#include "model/sources/model_sources.h"

namespace headrace::internal {

namespace {

// Bounds the logits' scratch memory; steps that want more rows read them in several calls, unless
// the backend records such steps as one (Backend::recorded_rows).
constexpr int32_t kMaxLogitRows = 128;
constexpr int32_t kGuessedLogitRows = 64;
// A step's rows for a longer text take much memory: that is for the options to ask for.
constexpr int32_t kMaxTextRows = 8192;

// Of each group. Tiles that begin before a window lie in blocks that are needed, too.
std::vector<int32_t> group_windows(const CacheLayout& layout) {
  const int32_t before = layout.block_size % kCacheTile == 0 ? 0 : kCacheTile - 1;
  std::vector<int32_t> out;
  for (const CacheGroup& group : layout.groups) {
    out.push_back(group.rows.window > 0 ? group.rows.window + before : 0);
  }
  return out;
}

/// As many tokens as have the bytes of a state in the cache: half of what is kept may be snapshots
/// then, if all prompts are as long.
int32_t choose_interval(const ModelOptions& options, const CacheLayout& layout) {
  constexpr size_t kLeast = 512, kMost = 4096;
  if (!layout.has_states()) return 0;
  if (options.snapshot_interval > 0) return options.snapshot_interval;
  size_t state_bytes = 0, token_bytes = 0;
  for (const StateRows& state : layout.states) state_bytes += state.numbers() * sizeof(float);
  for (const CacheGroup& group : layout.groups) {
    const auto numbers = static_cast<size_t>(group.rows.numbers());
    const size_t half_bytes = std::max<size_t>(1, 2 * dtype_size(group.rows.dtype));
    token_bytes += static_cast<size_t>(group.num_layers) * half_bytes * numbers / 2;
  }
  const size_t tokens = std::clamp(state_bytes / std::max<size_t>(1, token_bytes), kLeast, kMost);
  return static_cast<int32_t>(round_up(tokens, static_cast<size_t>(options.block_size)));
}

std::optional<Draft> read_draft(const ModelOptions& options, const ModelConfig& target) {
  if (options.speculative.method != "draft_model") return std::nullopt;
  Draft out{options, load_model_config(options.speculative.model), nullptr, {}};
  out.options.path = options.speculative.model;
  if (options.packed_weights != kCachedWeights) out.options.packed_weights.clear();
  out.options.max_loras = 0;
  out.options.tensor_parallel_size = 1;
  out.options.data_parallel_size = 1;
  out.options.devices.clear();
  out.options.enable_expert_parallel = false;
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
  if (!out.options.dummy_weights) find_head(out.options.path, out.packed.get(), out.config);
  if (!out.config.has_head) {
    throw_error(ErrorCode::kUnsupported, "the draft model ", out.options.path,
                " has no head: it guesses no tokens.");
  }
  out.shapes = choose_shapes(out.options, out.config,
                             storage_dtype(out.options, out.config, out.packed.get()), true);
  if (out.shapes.windows.size() > 1) {
    throw_error(
        ErrorCode::kUnsupported, "the draft model ", out.options.path,
        " keeps rows of several sizes, which can't follow another model's sequences: choose "
        "one whose layers have heads of one size.");
  }
  if (out.shapes.has_states) {
    throw_error(ErrorCode::kUnsupported, "the draft model ", out.options.path,
                " keeps states, which can't follow another model's sequences: choose one with "
                "attention alone.");
  }
  out.shapes.decoder.quantization = quantization_of(out.options, out.config, out.packed.get());
  return out;
}

}  // namespace

int32_t most_unread(const ModelOptions& options) {
  return Speculator::kFreeRead + options.speculative.num_speculative_tokens;
}

CacheLayout rank_layout(const CacheOptions& options, const ModelConfig& config,
                        const RankPlace& rank) {
  ModelSources sources = list_sources(config, likely_naming(config));
  share_sources(rank, sources);
  return make_cache_layout(list_kept(sources), options);
}

Shapes choose_shapes(const ModelOptions& options, const ModelConfig& config, DType storage,
                     bool is_draft) {
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
  out.cache.block_size = options.block_size;
  out.cache.dtype = parse_kv_dtype(options.kv_cache_dtype, out.decoder.storage);
  // A draft model finds its own rows by the model's tables, and an MTP block writes some late.
  const std::string& method = options.speculative.method;
  if (!is_draft && method != "draft_model" && method != "mtp") {
    out.cache.windows_below =
        options.max_model_len > 0 ? options.max_model_len : config.max_position_embeddings;
  }
  if (config.latent.rank > 0 && dtype_size(out.cache.dtype) < 2) {
    throw_error(ErrorCode::kUnsupported, "kv_cache_dtype ", options.kv_cache_dtype,
                " is asked for, but this model keeps latent rows, which are kept as float32, ",
                "bfloat16 or float16: leave it out.");
  }
  const CacheLayout layout = rank_layout(out.cache, config, {});
  out.windows = group_windows(layout);
  out.has_states = layout.has_states();
  out.whole_pictures = config.vision && config.vision->both_ways;
  out.snapshot_interval = choose_interval(options, layout);
  return out;
}

namespace {

/// That a step needs for the rows of a picture that see each other, beside other requests' decodes.
/// 0: there are none.
int32_t least_rows(const ModelOptions& options, const ModelConfig& config) {
  if (!config.vision || !config.vision->both_ways) return 0;
  const int32_t side = config.vision->position_side / config.vision->merge_size;
  return side * side + options.max_num_seqs - 1;
}

}  // namespace

int32_t most_item_rows(const ModelOptions& options, const DecoderOptions& decoder) {
  return decoder.max_rows - (options.max_num_seqs - 1);
}

void fit_to(const Backend& backend, const ModelOptions& options, const ModelConfig& config,
            DecoderOptions& decoder) {
  decoder.quantization = on_device(decoder.quantization, backend.device_info());
  decoder.max_logit_rows =
      std::max(decoder.max_logit_rows, std::min(options.max_num_seqs, backend.recorded_rows()));
  const int32_t length =
      options.max_model_len > 0 ? options.max_model_len : config.max_position_embeddings;
  decoder.max_rows = options.max_num_batched_tokens;
  const int32_t least = least_rows(options, config);
  if (decoder.max_rows > 0 && decoder.max_rows < least) {
    throw_error(ErrorCode::kInvalidArgument, "max_num_batched_tokens is ", decoder.max_rows,
                ", but the rows of a picture see each other, so that all ",
                least - (options.max_num_seqs - 1), " come in one step, beside max_num_seqs (",
                options.max_num_seqs, ") - 1 others: raise it to ", least,
                ", or lower max_num_seqs.");
  }
  if (decoder.max_rows > 0) return;
  decoder.max_rows = std::max({backend.device_info().busy_rows, options.max_num_seqs, least});
  // Bidirectional attention reads a text in one step.
  if (!config.causal) decoder.max_rows = std::max(decoder.max_rows, std::min(length, kMaxTextRows));
}

namespace {

/// Of layers whose heads aren't ModelConfig::head_dim; 0: there are none.
int32_t other_head_dim(const ModelConfig& config) {
  for (const LayerHeads& heads : config.layer_heads) {
    if (heads.head_dim != config.head_dim) return heads.head_dim;
  }
  return 0;
}

}  // namespace

BackendNeeds needs_of(const ModelOptions& options, const ModelConfig& config,
                      const Shapes& shapes) {
  const StoredMethod stored = config.stored_quantization.method;
  std::string quantization = is_numbers(stored) ? "" : stored_method_name(stored);
  if (quantization.empty()) quantization = quantization_name(shapes.decoder.quantization);
  // Layer norms and activations without a gate are tried with towers, whatever their heads.
  constexpr int32_t kAnyTowerHead = 64;
  const bool uses_tower_ops =
      config.norm.kind == NormKind::kLayer || !config.pool_head.layers.empty();
  return {.storage = shapes.decoder.storage,
          .kv_dtype = shapes.cache.dtype,
          .head_dim = config.key_dim(),
          .block_size = options.block_size,
          .quantization = quantization,
          .given_rows = config.vision.has_value(),
          .vision = config.vision.has_value() || uses_tower_ops,
          .tower_head_dim = config.vision    ? config.vision->head_dim
                            : uses_tower_ops ? kAnyTowerHead
                                             : 0,
          .experts = config.moe.router.num_experts,
          .adapters = options.max_loras > 0,
          .states = shapes.has_states,
          .latent = config.latent.rank > 0,
          .other_head_dim = other_head_dim(config)};
}

void check_speculative(const ModelOptions& options, const ModelConfig& config) {
  if (options.speculative.method.empty() || (config.causal && config.has_head)) return;
  throw_error(ErrorCode::kUnsupported, "speculative decoding is asked for, but ", options.path,
              " gives embeddings, no text: leave it out.");
}

std::optional<Draft> open_draft(const ModelOptions& options, const ModelConfig& target,
                                Backend& backend) {
  std::optional<Draft> out = read_draft(options, target);
  if (!out) return out;
  backend.require(needs_of(out->options, out->config, out->shapes));
  fit_to(backend, options, out->config, out->shapes.decoder);
  return out;
}

}  // namespace headrace::internal
