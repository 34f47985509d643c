/* The C API from many threads: they submit, read, cancel and release on one engine, while others
 * ask for statistics and a selector waits; errors stay with their thread. */

#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <string.h>

#include "check.h"

enum { kThreads = 6, kRounds = 8, kTokens = 6 };

static headrace_engine* engine;
static int32_t expected[kTokens];

static headrace_request* submit(int32_t first_token) {
  const int32_t prompt[] = {first_token, 17, 42};
  headrace_sampling_params sampling;
  headrace_sampling_params_init(&sampling, sizeof sampling);
  sampling.temperature = 0;
  sampling.ignore_eos = 1;
  sampling.max_tokens = kTokens;
  headrace_request_options options;
  headrace_request_options_init(&options, sizeof options);
  options.prompt_token_ids = prompt;
  options.num_prompt_token_ids = 3;
  options.sampling = &sampling;
  headrace_request* request = NULL;
  CHECK_OK(headrace_engine_submit(engine, "m", &options, &request));
  return request;
}

static int32_t read_some(headrace_request* request, int32_t* tokens, size_t* count) {
  headrace_output* output = NULL;
  CHECK_OK(headrace_request_get(request, HEADRACE_FOREVER, &output));
  for (size_t i = 0; i < output->num_token_ids; ++i) {
    CHECK(*count < kTokens);
    tokens[(*count)++] = output->token_ids[i];
  }
  const int32_t finished = output->finished;
  headrace_output_release(output);
  return finished;
}

static void* read_and_cancel(void* argument) {
  const int number = *(const int*)argument;
  char message[32];
  snprintf(message, sizeof message, "'model-%d'", number);
  for (int round = 0; round < kRounds; ++round) {
    int32_t tokens[kTokens];
    size_t count = 0;
    headrace_request* request = submit(5);
    while (!read_some(request, tokens, &count)) {
    }
    CHECK(count == kTokens && memcmp(tokens, expected, sizeof expected) == 0);
    headrace_request_release(request);

    request = submit(6 + number);
    if (round % 2 == 0) CHECK_OK(headrace_request_cancel(request));
    headrace_request_release(request);

    char name[16];
    snprintf(name, sizeof name, "model-%d", number);
    CHECK(headrace_engine_start_model(engine, name) == HEADRACE_NOT_FOUND);
    CHECK(strstr(headrace_last_error_message(), message) != NULL);
  }
  return NULL;
}

static void* ask_for_statistics(void* argument) {
  (void)argument;
  for (int round = 0; round < 20 * kRounds; ++round) {
    headrace_model_stats stats;
    stats.struct_size = sizeof stats;
    CHECK_OK(headrace_engine_model_stats(engine, "m", &stats));
    CHECK(stats.state == HEADRACE_MODEL_RUNNING);
  }
  CHECK(headrace_last_error_code() == HEADRACE_OK);
  return NULL;
}

/* One request read by this thread through a selector, and cancelled by nobody. */
static void* select_outputs(void* argument) {
  (void)argument;
  headrace_selector* selector = NULL;
  CHECK_OK(headrace_selector_create(&selector));
  headrace_request* requests[kRounds];
  for (int64_t i = 0; i < kRounds; ++i) {
    requests[i] = submit(5);
    CHECK_OK(headrace_selector_add(selector, requests[i], i, 1));
  }
  for (size_t seen = 0; seen < kRounds;) {
    int64_t tags[kRounds];
    size_t count = 0;
    CHECK_OK(headrace_selector_wait(selector, HEADRACE_FOREVER, tags, kRounds, &count));
    for (size_t i = 0; i < count; ++i, ++seen) {
      int32_t tokens[kTokens];
      size_t length = 0;
      CHECK(read_some(requests[tags[i]], tokens, &length) == 1);
      CHECK(length == kTokens && memcmp(tokens, expected, sizeof expected) == 0);
      headrace_request_release(requests[tags[i]]);
    }
  }
  headrace_selector_destroy(selector);
  return NULL;
}

static void start_model(const char* folder) {
  headrace_model_options model;
  headrace_model_options_init(&model, sizeof model);
  model.path = folder;
  model.max_model_len = 64;
  model.num_threads = 2;
  model.max_num_seqs = 4;
  CHECK_OK(headrace_engine_install_model(engine, "m", &model));
  CHECK_OK(headrace_engine_start_model(engine, "m"));
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  CHECK_OK(headrace_engine_create(NULL, &engine));
  start_model(argv[1]);
  headrace_request* request = submit(5);
  size_t count = 0;
  while (!read_some(request, expected, &count)) {
  }
  CHECK(count == kTokens);
  headrace_request_release(request);

  pthread_t threads[kThreads + 2];
  int numbers[kThreads];
  for (int i = 0; i < kThreads; ++i) {
    numbers[i] = i;
    CHECK(pthread_create(&threads[i], NULL, read_and_cancel, &numbers[i]) == 0);
  }
  CHECK(pthread_create(&threads[kThreads], NULL, ask_for_statistics, NULL) == 0);
  CHECK(pthread_create(&threads[kThreads + 1], NULL, select_outputs, NULL) == 0);
  for (int i = 0; i < kThreads + 2; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  headrace_engine_destroy(engine);
  return 0;
}
