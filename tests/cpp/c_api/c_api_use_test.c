/* The C API from plain C, one thread: a model's life, requests, results, errors. */

#include <math.h>
#include <string.h>

#include "check.h"

static const int32_t kPrompt[] = {5, 17, 42, 99, 7};
enum { kPromptLength = sizeof kPrompt / sizeof kPrompt[0] };

static int log_lines = 0;

static void count_line(void* user_data, int32_t level, const char* message) {
  CHECK(user_data == &log_lines);
  CHECK(level >= HEADRACE_LOG_DEBUG && level <= HEADRACE_LOG_ERROR && message[0] != '\0');
  ++log_lines;
}

static headrace_engine* start_engine(const char* folder) {
  headrace_engine_options options;
  headrace_engine_options_init(&options, sizeof options);
  options.log = count_line;
  options.log_user_data = &log_lines;
  headrace_engine* engine = NULL;
  CHECK_OK(headrace_engine_create(&options, &engine));
  headrace_model_options model;
  headrace_model_options_init(&model, sizeof model);
  CHECK(model.max_num_seqs == 64 && model.block_size == 64 && model.enable_prefix_caching == 1);
  model.path = folder;
  model.max_model_len = 256;
  model.num_threads = 1;
  CHECK_OK(headrace_engine_install_model(engine, "m", &model));
  CHECK_OK(headrace_engine_start_model(engine, "m"));
  return engine;
}

static headrace_request* submit(headrace_engine* engine, const headrace_sampling_params* sampling) {
  headrace_request_options options;
  headrace_request_options_init(&options, sizeof options);
  options.prompt_token_ids = kPrompt;
  options.num_prompt_token_ids = kPromptLength;
  options.sampling = sampling;
  headrace_request* request = NULL;
  CHECK_OK(headrace_engine_submit(engine, "m", &options, &request));
  return request;
}

static headrace_sampling_params greedy(int32_t max_tokens) {
  headrace_sampling_params params;
  headrace_sampling_params_init(&params, sizeof params);
  CHECK(params.temperature == 1.0f && params.logprobs == -1);
  params.temperature = 0;
  params.ignore_eos = 1;
  params.max_tokens = max_tokens;
  return params;
}

/* Reads to the end; the number of tokens, the first `capacity` of them in `tokens`. */
static size_t read_all(headrace_request* request, int32_t* tokens, size_t capacity,
                       int32_t* finish_reason) {
  size_t count = 0;
  for (int finished = 0; !finished;) {
    headrace_output* output = NULL;
    CHECK_OK(headrace_request_get(request, HEADRACE_FOREVER, &output));
    CHECK(output != NULL && output->struct_size == sizeof *output);
    for (size_t i = 0; i < output->num_token_ids; ++i, ++count) {
      if (count < capacity) tokens[count] = output->token_ids[i];
    }
    finished = output->finished;
    *finish_reason = output->finish_reason;
    headrace_output_release(output);
  }
  return count;
}

static void test_same_tokens_twice(headrace_engine* engine) {
  const headrace_sampling_params sampling = greedy(12);
  int32_t first[12], second[12], reason = 0;
  headrace_request* request = submit(engine, &sampling);
  CHECK(read_all(request, first, 12, &reason) == 12 && reason == HEADRACE_FINISH_LENGTH);
  /* After the end: a finished output without tokens, every time, without waiting. */
  for (int i = 0; i < 2; ++i) {
    headrace_output* output = NULL;
    CHECK_OK(headrace_request_get(request, 0, &output));
    CHECK(output != NULL && output->finished && output->num_token_ids == 0);
    CHECK(output->error_code == HEADRACE_OK && strcmp(output->error_message, "") == 0);
    headrace_output_release(output);
  }
  headrace_request_stats stats;
  stats.struct_size = sizeof stats;
  CHECK_OK(headrace_request_get_stats(request, &stats));
  CHECK(stats.status == HEADRACE_REQUEST_FINISHED && stats.prompt_tokens == kPromptLength);
  CHECK(stats.generated_tokens == 12 && stats.finished_time >= stats.arrival_time);
  CHECK(headrace_request_id(request)[0] != '\0');
  headrace_request_release(request);

  request = submit(engine, &sampling);
  CHECK(read_all(request, second, 12, &reason) == 12);
  CHECK(memcmp(first, second, sizeof first) == 0);
  headrace_request_release(request);
}

static void test_every_sampling_field_arrives(headrace_engine* engine) {
  headrace_sampling_params sampling = greedy(8);
  int32_t plain[8], changed[8], reason = 0;
  headrace_request* request = submit(engine, &sampling);
  CHECK(read_all(request, plain, 8, &reason) == 8);
  headrace_request_release(request);

  /* A bias towards one token, which is banned again after it has occurred once. */
  const int32_t ids[] = {plain[0], 123};
  const float biases[] = {-1000.0f, 1000.0f};
  const int32_t words[] = {123, 123};
  const size_t lengths[] = {2};
  sampling.logit_bias_ids = ids;
  sampling.logit_bias_values = biases;
  sampling.num_logit_bias = 2;
  sampling.bad_words.ids = words;
  sampling.bad_words.lengths = lengths;
  sampling.bad_words.count = 1;
  request = submit(engine, &sampling);
  CHECK(read_all(request, changed, 8, &reason) == 8);
  CHECK(changed[0] == 123 && changed[1] != 123);
  headrace_request_release(request);

  sampling = greedy(8);
  sampling.stop_sequences.ids = plain;
  const size_t pair[] = {2};
  sampling.stop_sequences.lengths = pair;
  sampling.stop_sequences.count = 1;
  request = submit(engine, &sampling);
  CHECK(read_all(request, changed, 8, &reason) == 2 && reason == HEADRACE_FINISH_STOP);
  headrace_request_release(request);

  sampling = greedy(8);
  sampling.stop_token_ids = plain;
  sampling.num_stop_token_ids = 1;
  request = submit(engine, &sampling);
  CHECK(read_all(request, changed, 8, &reason) == 1 && reason == HEADRACE_FINISH_STOP);
  headrace_request_release(request);

  headrace_sampling_params_init(&sampling, sizeof sampling);
  sampling.has_seed = 1;
  sampling.seed = UINT64_C(0x123456789abcdef0);
  sampling.max_tokens = 1;
  request = submit(engine, &sampling);
  uint64_t seed = 0;
  CHECK_OK(headrace_request_seed(request, &seed));
  CHECK(seed == sampling.seed);
  headrace_request_release(request);
}

static void test_logprobs(headrace_engine* engine) {
  headrace_sampling_params sampling = greedy(3);
  sampling.logprobs = 2;
  sampling.prompt_logprobs = 0;
  headrace_request* request = submit(engine, &sampling);
  CHECK_OK(headrace_request_wait(request, HEADRACE_FOREVER, NULL));
  headrace_output* output = NULL;
  CHECK_OK(headrace_request_get(request, 0, &output));
  CHECK(output != NULL && output->num_token_ids == 3 && output->num_logprobs == 3);
  CHECK(output->num_prompt_logprobs == kPromptLength - 1);
  for (size_t i = 0; i < 3; ++i) {
    const headrace_position_logprobs* position = &output->logprobs[i];
    CHECK(position->token == output->token_ids[i] && position->rank == 1);
    CHECK(position->num_top == 2 && position->top[0].token == position->token);
    CHECK(position->top[0].logprob == position->logprob && position->logprob <= 0);
    CHECK(position->top[1].logprob <= position->top[0].logprob);
  }
  CHECK(output->prompt_logprobs[0].token == kPrompt[1]);
  CHECK(output->prompt_logprobs[0].num_top == 0 && isfinite(output->prompt_logprobs[0].logprob));
  headrace_output_release(output);
  headrace_request_release(request);
}

static void test_cancel(headrace_engine* engine) {
  const headrace_sampling_params sampling = greedy(200);
  headrace_request* request = submit(engine, &sampling);
  headrace_output* output = NULL;
  CHECK_OK(headrace_request_get(request, HEADRACE_FOREVER, &output));
  headrace_output_release(output);
  CHECK_OK(headrace_request_cancel(request));
  int32_t finished = 0, reason = 0, token = 0;
  CHECK_OK(headrace_request_wait(request, HEADRACE_FOREVER, &finished));
  CHECK(finished == 1);
  read_all(request, &token, 1, &reason);
  CHECK(reason == HEADRACE_FINISH_ABORT || reason == HEADRACE_FINISH_LENGTH);
  headrace_request_release(request);
}

/* Three tokens, 10 to 12 in any order; appends are counted, `fail_at` 1 to 3 makes one fail. */
typedef struct {
  int fail_at;
  int matchers;
  int released;
} three_tokens;
typedef struct {
  three_tokens* rule;
  int length;
} three_tokens_matcher;

static void* start_three(void* user_data) {
  three_tokens_matcher* matcher = malloc(sizeof *matcher);
  matcher->rule = user_data;
  matcher->length = 0;
  ++matcher->rule->matchers;
  return matcher;
}

static int32_t next_of_three(void* data, uint32_t* allowed, size_t num_words) {
  const three_tokens_matcher* matcher = data;
  CHECK(num_words > 0 && allowed[0] == 0);
  if (matcher->length < 3) allowed[0] = 7u << 10;
  return matcher->length == 3;
}

static int32_t append_of_three(void* data, int32_t token) {
  three_tokens_matcher* matcher = data;
  CHECK(token >= 10 && token <= 12);
  return ++matcher->length == matcher->rule->fail_at ? -1 : 0;
}

static void end_three(void* data) {
  --((three_tokens_matcher*)data)->rule->matchers;
  free(data);
}

static void release_three(void* user_data) { ++((three_tokens*)user_data)->released; }

static void test_constraint(headrace_engine* engine) {
  three_tokens rule = {0, 0, 0};
  headrace_constraint constraint = {sizeof constraint, &rule,     start_three,  next_of_three,
                                    append_of_three,   end_three, release_three};
  headrace_sampling_params sampling;
  headrace_sampling_params_init(&sampling, sizeof sampling);
  sampling.max_tokens = 20;
  headrace_request_options options;
  headrace_request_options_init(&options, sizeof options);
  options.prompt_token_ids = kPrompt;
  options.num_prompt_token_ids = kPromptLength;
  options.sampling = &sampling;
  options.constraint = &constraint;
  headrace_request* request = NULL;
  int32_t tokens[20], reason = 0;
  CHECK_OK(headrace_engine_submit(engine, "m", &options, &request));
  const size_t count = read_all(request, tokens, 20, &reason);
  CHECK(reason == HEADRACE_FINISH_STOP && (count == 3 || count == 4)); /* with or without EOS */
  for (int i = 0; i < 3; ++i) CHECK(tokens[i] >= 10 && tokens[i] <= 12);
  headrace_request_release(request);

  rule.fail_at = 2;
  CHECK_OK(headrace_engine_submit(engine, "m", &options, &request));
  read_all(request, tokens, 20, &reason);
  CHECK(reason == HEADRACE_FINISH_ERROR);
  headrace_request_release(request);

  /* What is refused is not taken. */
  sampling.top_p = -1;
  CHECK(headrace_engine_submit(engine, "m", &options, &request) == HEADRACE_INVALID_ARGUMENT);
  sampling.top_p = 1;
  constraint.append = NULL;
  CHECK(headrace_engine_submit(engine, "m", &options, &request) == HEADRACE_INVALID_ARGUMENT);
  CHECK(strstr(headrace_last_error_message(), "append") != NULL);
  CHECK_OK(headrace_engine_stop_model(engine, "m", HEADRACE_FOREVER, NULL));
  CHECK(rule.released == 2 && rule.matchers == 0);
  CHECK_OK(headrace_engine_start_model(engine, "m"));
}

/* Of the prompt; the numbers, at most `capacity`, in `numbers`. */
static size_t pool(headrace_engine* engine, const headrace_pooling_params* pooling, float* numbers,
                   size_t capacity) {
  headrace_request_options options;
  headrace_request_options_init(&options, sizeof options);
  options.prompt_token_ids = kPrompt;
  options.num_prompt_token_ids = kPromptLength;
  options.pooling = pooling;
  headrace_request* request = NULL;
  headrace_output* output = NULL;
  CHECK_OK(headrace_engine_submit(engine, "m", &options, &request));
  CHECK_OK(headrace_request_get(request, HEADRACE_FOREVER, &output));
  CHECK(output->finished && output->finish_reason == HEADRACE_FINISH_STOP);
  CHECK(output->num_token_ids == 0);
  const size_t count = output->num_pooled;
  for (size_t i = 0; i < count && i < capacity; ++i) numbers[i] = output->pooled[i];
  headrace_output_release(output);
  headrace_request_release(request);
  return count;
}

static void test_pooling(headrace_engine* engine) {
  headrace_pooling_params pooling;
  headrace_pooling_params_init(&pooling, sizeof pooling);
  CHECK(pooling.pooling == HEADRACE_POOL_LAST && pooling.normalize == 1);
  headrace_model_info* info = NULL;
  CHECK_OK(headrace_engine_model_info(engine, "m", &info));
  CHECK(info->causal == 1 && info->generates == 1);
  float numbers[3], others[3];
  CHECK(pool(engine, &pooling, numbers, 3) == (size_t)info->hidden_size);
  headrace_model_info_release(info);
  pooling.dimensions = 3;
  pooling.pooling = HEADRACE_POOL_MEAN;
  CHECK(pool(engine, &pooling, others, 3) == 3);
  CHECK(memcmp(numbers, others, sizeof numbers) != 0);
  const double length = sqrt((double)others[0] * others[0] + (double)others[1] * others[1] +
                             (double)others[2] * others[2]);
  CHECK(fabs(length - 1) < 1e-6);

  const int32_t ids[] = {7, 8};
  headrace_pooling_params_init(&pooling, sizeof pooling);
  pooling.normalize = 0;
  pooling.logit_token_ids = ids;
  pooling.num_logit_token_ids = 2;
  CHECK(pool(engine, &pooling, numbers, 3) == 2);

  headrace_request_options options;
  headrace_request_options_init(&options, sizeof options);
  options.prompt_token_ids = kPrompt;
  options.num_prompt_token_ids = kPromptLength;
  options.pooling = &pooling;
  headrace_request* request = NULL;
  pooling.pooling = 3;
  CHECK(headrace_engine_submit(engine, "m", &options, &request) == HEADRACE_INVALID_ARGUMENT);
  pooling.pooling = HEADRACE_POOL_CLS;
  CHECK(headrace_engine_submit(engine, "m", &options, &request) == HEADRACE_INVALID_ARGUMENT);
  const headrace_sampling_params sampling = greedy(3);
  pooling.pooling = HEADRACE_POOL_LAST;
  options.sampling = &sampling;
  CHECK(headrace_engine_submit(engine, "m", &options, &request) == HEADRACE_INVALID_ARGUMENT);
  CHECK(request == NULL && strstr(headrace_last_error_message(), "sampling") != NULL);
}

static void test_errors(headrace_engine* engine) {
  headrace_request_options options;
  headrace_request_options_init(&options, sizeof options);
  headrace_request* request = NULL;
  CHECK(headrace_engine_submit(engine, "m", &options, &request) == HEADRACE_INVALID_ARGUMENT);
  CHECK(request == NULL && headrace_last_error_code() == HEADRACE_INVALID_ARGUMENT);

  options.num_prompt_token_ids = 3;
  CHECK(headrace_engine_submit(engine, "m", &options, &request) == HEADRACE_INVALID_ARGUMENT);
  CHECK(strstr(headrace_last_error_message(), "prompt_token_ids is NULL") != NULL);
  options.prompt_token_ids = kPrompt;
  options.num_prompt_token_ids = (size_t)-1;
  CHECK(headrace_engine_submit(engine, "m", &options, &request) == HEADRACE_LIMIT_EXCEEDED);
  options.num_prompt_token_ids = kPromptLength;
  CHECK(headrace_engine_submit(engine, "other", &options, &request) == HEADRACE_NOT_FOUND);
  CHECK(strstr(headrace_last_error_message(), "'other'") != NULL);

  headrace_sampling_params sampling = greedy(1);
  sampling.top_p = 2;
  options.sampling = &sampling;
  CHECK(headrace_engine_submit(engine, "m", &options, &request) == HEADRACE_INVALID_ARGUMENT);
  CHECK(strstr(headrace_last_error_message(), "top_p") != NULL);
  sampling = greedy(1);
  sampling.logprobs_kind = 77;
  CHECK(headrace_engine_submit(engine, "m", &options, &request) == HEADRACE_INVALID_ARGUMENT);

  headrace_model_options model;
  headrace_model_options_init(&model, sizeof model);
  model.path = "no-such-folder";
  CHECK(headrace_engine_install_model(engine, "x", &model) == HEADRACE_NOT_FOUND);
  CHECK(headrace_engine_install_model(engine, "m", &model) == HEADRACE_INVALID_STATE);
  model.out_of_blocks = 99;
  CHECK(headrace_engine_install_model(engine, "x", &model) == HEADRACE_INVALID_ARGUMENT);
  model.out_of_blocks = HEADRACE_PREEMPT;
  model.quantization = "wint3";
  CHECK(headrace_engine_install_model(engine, "x", &model) == HEADRACE_INVALID_ARGUMENT);
  model.quantization = NULL;
  model.memory_utilization = 7;
  CHECK(headrace_engine_install_model(engine, "x", &model) == HEADRACE_INVALID_ARGUMENT);
  /* A success leaves the last failure where it is. */
  headrace_model_names* names = NULL;
  CHECK_OK(headrace_engine_model_names(engine, &names));
  CHECK(names->count == 1 && strcmp(names->names[0], "m") == 0);
  headrace_model_names_release(names);
  CHECK(headrace_last_error_code() == HEADRACE_INVALID_ARGUMENT);
  CHECK(strcmp(headrace_code_name(HEADRACE_NOT_FOUND), "not_found") == 0);
  CHECK(strcmp(headrace_code_name(-5), "unknown") == 0);
}

static void test_selector(headrace_engine* engine) {
  enum { kRequests = 5 };
  const headrace_sampling_params sampling = greedy(20);
  headrace_selector* selector = NULL;
  CHECK_OK(headrace_selector_create(&selector));
  headrace_request* requests[kRequests];
  size_t tokens[kRequests] = {0};
  for (int64_t i = 0; i < kRequests; ++i) {
    requests[i] = submit(engine, &sampling);
    CHECK_OK(headrace_selector_add(selector, requests[i], i, 0));
  }
  CHECK(headrace_selector_add(selector, requests[0], 0, 0) == HEADRACE_INVALID_ARGUMENT);
  for (int left = kRequests; left > 0;) {
    int64_t tags[2];
    size_t count = 0;
    CHECK_OK(headrace_selector_wait(selector, HEADRACE_FOREVER, tags, 2, &count));
    CHECK(count == 1 || count == 2);
    for (size_t i = 0; i < count; ++i) {
      headrace_output* output = NULL;
      CHECK_OK(headrace_request_get(requests[tags[i]], 0, &output));
      if (output == NULL) continue;
      tokens[tags[i]] += output->num_token_ids;
      if (output->finished) {
        CHECK_OK(headrace_selector_remove(selector, tags[i]));
        --left;
      }
      headrace_output_release(output);
    }
  }
  int64_t tag = 0;
  size_t count = 1;
  CHECK_OK(headrace_selector_wait(selector, 0, &tag, 1, &count));
  CHECK(count == 0);
  CHECK_OK(headrace_selector_wake(selector));
  CHECK_OK(headrace_selector_wait(selector, HEADRACE_FOREVER, &tag, 1, &count));
  CHECK(count == 0);
  for (int i = 0; i < kRequests; ++i) {
    CHECK(tokens[i] == 20);
    headrace_request_release(requests[i]);
  }
  headrace_selector_destroy(selector);
}

static void test_model_life(headrace_engine* engine) {
  headrace_model_info* info = NULL;
  CHECK_OK(headrace_engine_model_info(engine, "m", &info));
  CHECK(strcmp(info->name, "m") == 0 && info->vocab_size > 0 && info->num_eos_token_ids > 0);
  CHECK(info->num_kv_windows == 1 && info->kv_windows[0] == 0);
  CHECK(info->kv_numbers[0] == (int64_t)2 * info->num_layers * info->num_kv_heads * info->head_dim);
  CHECK(info->max_model_len == 256 && info->num_threads == 1 && info->num_nodes == 1 &&
        info->weight_bytes > 0);
  CHECK(info->quantization[0] == '\0');
  headrace_model_info_release(info);

  headrace_model_stats stats;
  stats.struct_size = sizeof stats;
  CHECK_OK(headrace_engine_model_stats(engine, "m", &stats));
  CHECK(stats.state == HEADRACE_MODEL_RUNNING && stats.finished_requests > 0);
  CHECK(stats.generated_tokens > 0 && stats.steps > 0 && stats.memory_bytes > 0);

  CHECK(headrace_engine_start_model(engine, "m") == HEADRACE_INVALID_STATE);
  CHECK_OK(headrace_engine_clear_prefix_cache(engine, "m"));
  int32_t stopped = 0;
  CHECK_OK(headrace_engine_stop_model(engine, "m", INT64_MAX, &stopped));
  CHECK(stopped == 1);
  CHECK_OK(headrace_engine_stop_model(engine, "m", HEADRACE_FOREVER, NULL));
  CHECK_OK(headrace_engine_start_model(engine, "m"));
}

typedef struct load_watch {
  int32_t end_at; /* a stage, or -1 */
  int32_t last_stage;
  uint64_t weights_done, weights_total;
} load_watch;

static int32_t watch_load(void* user_data, const headrace_load_progress* progress) {
  load_watch* watch = user_data;
  CHECK(progress->struct_size == sizeof *progress && progress->stage >= watch->last_stage);
  CHECK(progress->bytes_done <= progress->bytes_total);
  watch->last_stage = progress->stage;
  if (progress->stage == HEADRACE_LOAD_WEIGHTS) {
    CHECK(progress->bytes_done >= watch->weights_done);
    watch->weights_done = progress->bytes_done;
    watch->weights_total = progress->bytes_total;
  }
  return progress->stage == watch->end_at;
}

/* A load is watched to its end, and ended by its callback; the name is free then. */
static void test_load_callback(headrace_engine* engine, const char* folder) {
  const int32_t ends[] = {HEADRACE_LOAD_OPENING, HEADRACE_LOAD_WEIGHTS, -1};
  for (size_t i = 0; i < sizeof ends / sizeof ends[0]; ++i) {
    load_watch watch = {0};
    watch.end_at = ends[i];
    headrace_model_options model;
    headrace_model_options_init(&model, sizeof model);
    CHECK(model.load == NULL);
    model.path = folder;
    model.max_model_len = 64;
    model.load = watch_load;
    model.load_user_data = &watch;
    const headrace_code code = headrace_engine_install_model(engine, "watched", &model);
    if (ends[i] < 0) {
      CHECK_OK(code);
      CHECK(watch.last_stage == HEADRACE_LOAD_RESERVING && watch.weights_total > 0);
      CHECK(watch.weights_done == watch.weights_total);
      CHECK_OK(headrace_engine_release_model(engine, "watched"));
    } else {
      CHECK(code == HEADRACE_CANCELLED && watch.last_stage == ends[i]);
    }
  }
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  CHECK(headrace_last_error_code() == HEADRACE_OK && headrace_last_error_message()[0] == '\0');
  headrace_engine* engine = start_engine(argv[1]);
  test_same_tokens_twice(engine);
  test_every_sampling_field_arrives(engine);
  test_logprobs(engine);
  test_cancel(engine);
  test_constraint(engine);
  test_pooling(engine);
  test_errors(engine);
  test_selector(engine);
  test_model_life(engine);
  test_load_callback(engine, argv[1]);
  CHECK(strcmp(headrace_code_name(HEADRACE_NOT_FINITE), "not_finite") == 0);

  /* A request outlives its engine: it has ended and says so. */
  const headrace_sampling_params sampling = greedy(200);
  headrace_request* request = submit(engine, &sampling);
  CHECK_OK(headrace_engine_release_model(engine, "m"));
  headrace_engine_destroy(engine);
  int32_t token = 0, reason = 0;
  read_all(request, &token, 1, &reason);
  CHECK(reason == HEADRACE_FINISH_ABORT || reason == HEADRACE_FINISH_LENGTH);
  CHECK_OK(headrace_request_cancel(request));
  headrace_request_release(request);
  return 0;
}
