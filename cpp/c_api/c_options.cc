#include "c_api/c_options.h"

#include <span>
#include <utility>
#include <vector>

#include "c_api/c_array.h"
#include "c_api/c_media.h"
#include "c_api/c_struct.h"

namespace headrace::c_api {

namespace {

std::vector<std::vector<int32_t>> to_lists(const headrace_token_lists& lists, const char* field) {
  std::vector<std::vector<int32_t>> out;
  const int32_t* next = lists.ids;
  for (const size_t length : array(lists.lengths, lists.count, field)) {
    out.push_back(to_ids(next, length, field));
    if (length > 0) next += length;
  }
  return out;
}

void check_reserved(int32_t reserved) {
  if (reserved != 0) {
    throw_error(ErrorCode::kUnsupported, "a reserved field is ", reserved,
                ": set it to 0 with the struct's init function, or use a newer library.");
  }
}

std::optional<int32_t> unless_negative(int32_t value) {
  return value < 0 ? std::nullopt : std::optional(value);
}

headrace_model_options default_model_options() {
  const ModelOptions from;
  headrace_model_options out{};
  out.memory_utilization = from.memory_utilization;
  out.max_num_seqs = from.max_num_seqs;
  out.block_size = from.block_size;
  out.enable_prefix_caching = from.enable_prefix_caching;
  out.max_lora_rank = from.max_lora_rank;
  out.num_speculative_tokens = from.speculative.num_speculative_tokens;
  out.min_ngram_size = from.speculative.min_ngram_size;
  out.max_ngram_size = from.speculative.max_ngram_size;
  return out;
}

headrace_sampling_params default_sampling_params() {
  const SamplingParams from;
  headrace_sampling_params out{};
  out.temperature = from.temperature;
  out.top_p = from.top_p;
  out.repetition_penalty = from.repetition_penalty;
  out.logprobs = out.prompt_logprobs = -1;
  return out;
}

headrace_request_options default_request_options() {
  headrace_request_options out{};
  out.timeout = HEADRACE_FOREVER;
  return out;
}

/// Enumerations count from 0; the engine trusts a value of the C++ type.
template <class Enum>
Enum to_enum(int32_t value, Enum last, const char* field) {
  if (value < 0 || value > static_cast<int32_t>(last)) {
    throw_error(ErrorCode::kInvalidArgument, field, " is ", value, ": it must be one of the ",
                static_cast<int32_t>(last) + 1, " values that headrace/c.h names for it.");
  }
  return static_cast<Enum>(value);
}

static_assert(HEADRACE_PENALIZED_LOGPROBS == static_cast<int>(LogprobsKind::kPenalizedLogprobs));
static_assert(HEADRACE_INTERRUPT_RANDOM == static_cast<int>(OutOfBlocks::kInterruptRandom));

SamplingParams to_sampling_params(const headrace_sampling_params* given) {
  if (given == nullptr) return {};
  const auto in = read_struct(given, default_sampling_params(), "sampling");
  check_reserved(in.reserved);
  SamplingParams out;
  out.temperature = in.temperature;
  out.top_p = in.top_p;
  out.top_k = in.top_k;
  out.min_p = in.min_p;
  if (in.has_seed) out.seed = in.seed;
  out.repetition_penalty = in.repetition_penalty;
  out.frequency_penalty = in.frequency_penalty;
  out.presence_penalty = in.presence_penalty;
  const auto bias_ids = array(in.logit_bias_ids, in.num_logit_bias, "logit_bias_ids");
  const auto biases = array(in.logit_bias_values, in.num_logit_bias, "logit_bias_values");
  for (size_t i = 0; i < bias_ids.size(); ++i) out.logit_bias.emplace_back(bias_ids[i], biases[i]);
  out.bad_words = to_lists(in.bad_words, "bad_words");
  out.max_tokens = in.max_tokens;
  out.min_tokens = in.min_tokens;
  out.ignore_eos = in.ignore_eos != 0;
  out.stop_token_ids = to_ids(in.stop_token_ids, in.num_stop_token_ids, "stop_token_ids");
  out.stop_sequences = to_lists(in.stop_sequences, "stop_sequences");
  out.logprobs = unless_negative(in.logprobs);
  out.prompt_logprobs = unless_negative(in.prompt_logprobs);
  out.logprobs_kind = to_enum(in.logprobs_kind, LogprobsKind::kPenalizedLogprobs, "logprobs_kind");
  out.temperature_scaled_logprobs = in.temperature_scaled_logprobs != 0;
  out.top_p_normalized_logprobs = in.top_p_normalized_logprobs != 0;
  out.penalize_output_only = in.penalize_output_only != 0;
  out.no_repeat_ngram_size = in.no_repeat_ngram_size;
  out.stop_sequences_anywhere = in.stop_sequences_anywhere != 0;
  return out;
}

headrace_pooling_params default_pooling_params() {
  const PoolingParams from;
  headrace_pooling_params out{};
  out.pooling = static_cast<int32_t>(from.pooling);
  out.dimensions = from.dimensions;
  out.normalize = from.normalize;
  return out;
}

static_assert(HEADRACE_POOL_CLS == static_cast<int>(Pooling::kCls));

PoolingParams to_pooling_params(const headrace_pooling_params* given) {
  const auto in = read_struct(given, default_pooling_params(), "pooling");
  check_reserved(in.reserved);
  PoolingParams out;
  out.pooling = to_enum(in.pooling, Pooling::kCls, "pooling");
  out.dimensions = in.dimensions;
  out.normalize = in.normalize != 0;
  out.logit_token_ids = to_ids(in.logit_token_ids, in.num_logit_token_ids, "logit_token_ids");
  return out;
}

static_assert(HEADRACE_LOAD_RESERVING == static_cast<int>(LoadStage::kReserving));

LoadProgressSink to_progress_sink(headrace_load_fn load, void* user_data) {
  if (load == nullptr) return {};
  return [load, user_data](const LoadProgress& progress) {
    headrace_load_progress out{};
    out.struct_size = sizeof out;
    out.stage = static_cast<int32_t>(progress.stage);
    out.bytes_done = progress.bytes_done;
    out.bytes_total = progress.bytes_total;
    if (load(user_data, &out) != 0) {
      throw_error(ErrorCode::kCancelled, "the load was cancelled by its load callback.");
    }
  };
}

}  // namespace

ModelOptions to_model_options(const headrace_model_options* given) {
  const auto in = read_struct(given, default_model_options(), "options");
  ModelOptions out;
  out.path = text(in.path);
  // "" is none of these three's names for "choose".
  for (auto [field, value] : {std::pair(&out.device, in.device), std::pair(&out.dtype, in.dtype),
                              std::pair(&out.kv_cache_dtype, in.kv_cache_dtype)}) {
    if (*text(value) != '\0') *field = value;
  }
  out.quantization = text(in.quantization);
  out.quantization_group_size = in.quantization_group_size;
  out.cpu_isa = text(in.cpu_isa);
  out.packed_weights = text(in.packed_weights);
  out.packed_copy = in.packed_copy != 0;
  out.max_loras = in.max_loras;
  out.max_lora_rank = in.max_lora_rank;
  out.speculative.method = text(in.speculative_method);
  out.speculative.model = text(in.speculative_model);
  out.speculative.num_speculative_tokens = in.num_speculative_tokens;
  out.speculative.min_ngram_size = in.min_ngram_size;
  out.speculative.max_ngram_size = in.max_ngram_size;
  if (in.data_parallel_size != 0) out.data_parallel_size = in.data_parallel_size;
  check_reserved(in.reserved);
  if (in.tensor_parallel_size != 0) out.tensor_parallel_size = in.tensor_parallel_size;
  for (const char* name : array(in.devices, in.num_devices, "devices")) {
    out.devices.emplace_back(text(name));
  }
  out.enable_expert_parallel = in.enable_expert_parallel != 0;
  out.num_threads = in.num_threads;
  out.max_model_len = in.max_model_len;
  out.max_num_seqs = in.max_num_seqs;
  out.max_num_batched_tokens = in.max_num_batched_tokens;
  out.block_size = in.block_size;
  out.num_kv_blocks = in.num_kv_blocks;
  out.kv_cache_bytes = in.kv_cache_bytes;
  out.memory_utilization = in.memory_utilization;
  out.total_memory_ratio = in.total_memory_ratio;
  out.memory_leftover_bytes = in.memory_leftover_bytes;
  out.enable_prefix_caching = in.enable_prefix_caching != 0;
  out.swap_space = in.swap_space;
  out.max_prefill_chunk = in.max_prefill_chunk;
  out.dummy_weights = in.dummy_weights != 0;
  out.max_encoder_tokens = in.max_encoder_tokens;
  out.encoder_cache_bytes = in.encoder_cache_bytes;
  out.load_progress = to_progress_sink(in.load, in.load_user_data);
  out.out_of_blocks = to_enum(in.out_of_blocks, OutOfBlocks::kInterruptRandom, "out_of_blocks");
  return out;
}

RequestOptions to_request_options(const headrace_request_options* given,
                                  std::shared_ptr<ForeignConstraint>& constraint) {
  const auto in = read_struct(given, default_request_options(), "options");
  check_reserved(in.reserved);
  RequestOptions out;
  out.request_id = text(in.request_id);
  out.prompt_token_ids = to_ids(in.prompt_token_ids, in.num_prompt_token_ids, "prompt_token_ids");
  out.sampling = to_sampling_params(in.sampling);
  out.lora_name = text(in.lora_name);
  out.priority = in.priority;
  out.timeout = to_timeout(in.timeout);
  if (in.constraint != nullptr) {
    constraint = std::make_shared<ForeignConstraint>(
        read_struct(in.constraint, headrace_constraint{}, "constraint"));
    out.constraint = constraint;
  }
  if (in.pooling != nullptr) out.pooling = to_pooling_params(in.pooling);
  for (const headrace_media_input* item : array(in.media, in.num_media, "media")) {
    out.media.push_back(to_media_input(item));
  }
  return out;
}

}  // namespace headrace::c_api

using namespace headrace::c_api;

void headrace_model_options_init(headrace_model_options* options, size_t size) {
  init_struct(options, size, default_model_options());
}

void headrace_sampling_params_init(headrace_sampling_params* params, size_t size) {
  init_struct(params, size, default_sampling_params());
}

void headrace_pooling_params_init(headrace_pooling_params* params, size_t size) {
  init_struct(params, size, default_pooling_params());
}

void headrace_request_options_init(headrace_request_options* options, size_t size) {
  init_struct(options, size, default_request_options());
}
