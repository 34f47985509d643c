#include "c_api/c_options.h"

#include <span>
#include <utility>
#include <vector>

#include "c_api/c_array.h"
#include "c_api/c_handles.h"
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

std::vector<std::pair<int32_t, float>> to_logit_bias(const int32_t* ids, const float* values,
                                                     size_t count) {
  const auto biases = array(values, count, "logit_bias_values");
  std::vector<std::pair<int32_t, float>> out;
  for (const int32_t id : array(ids, count, "logit_bias_ids")) {
    out.emplace_back(id, biases[out.size()]);
  }
  return out;
}

std::optional<int32_t> unless_negative(int32_t value) {
  return value < 0 ? std::nullopt : std::optional(value);
}

headrace_request_options default_request_options() {
  headrace_request_options out{};
  out.timeout = HEADRACE_FOREVER;
  return out;
}

static_assert(HEADRACE_PENALIZED_LOGPROBS == static_cast<int>(LogprobsKind::kPenalizedLogprobs));
static_assert(HEADRACE_INTERRUPT_RANDOM == static_cast<int>(OutOfBlocks::kInterruptRandom));
static_assert(HEADRACE_POOL_CLS == static_cast<int>(Pooling::kCls));
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

#include "c_api/c_option_fields.inc"

SamplingParams to_sampling_params(const headrace_sampling_params* given) {
  if (given == nullptr) return {};
  return read_sampling_params(read_struct(given, default_sampling_params(), "sampling"));
}

PoolingParams to_pooling_params(const headrace_pooling_params* given) {
  return read_pooling_params(read_struct(given, default_pooling_params(), "pooling"));
}

}  // namespace

ModelOptions to_model_options(const headrace_model_options* given) {
  return read_model_options(read_struct(given, default_model_options(), "options"));
}

RequestOptions to_request_options(const headrace_request_options* given,
                                  std::shared_ptr<ForeignConstraint>& constraint) {
  const auto in = read_struct(given, default_request_options(), "options");
  check_reserved(in.reserved);
  RequestOptions out;
  out.request_id = or_empty(in.request_id);
  out.prompt_token_ids = to_ids(in.prompt_token_ids, in.num_prompt_token_ids, "prompt_token_ids");
  out.sampling = to_sampling_params(in.sampling);
  out.lora_name = or_empty(in.lora_name);
  out.priority = in.priority;
  out.timeout = to_timeout(in.timeout);
  if (in.constraint != nullptr) {
    constraint = std::make_shared<ForeignConstraint>(
        read_struct(in.constraint, headrace_constraint{}, "constraint"));
    out.constraint = constraint;
  }
  if (in.grammar != nullptr) {
    if (in.constraint != nullptr) {
      throw_error(ErrorCode::kInvalidArgument,
                  "a request has a constraint and a grammar: give one of them.");
    }
    out.constraint = in.grammar->constraint;
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
