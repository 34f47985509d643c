/* Continues a prompt of token ids and prints each token as it comes.
 *
 *   embed_c MODEL ID... */

#include <headrace/c.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(const char* what) {
  fprintf(stderr, "%s: %s: %s\n", what, headrace_code_name(headrace_last_error_code()),
          headrace_last_error_message());
  return 1;
}

static int start(headrace_engine* engine, const char* folder) {
  headrace_model_options options;
  headrace_model_options_init(&options, sizeof options);
  options.path = folder;
  if (headrace_engine_install_model(engine, "model", &options) != HEADRACE_OK ||
      headrace_engine_start_model(engine, "model") != HEADRACE_OK) {
    return failed(folder);
  }
  return 0;
}

static int stream(headrace_request* request) {
  for (int finished = 0; !finished;) {
    headrace_output* output = NULL;
    if (headrace_request_get(request, HEADRACE_FOREVER, &output) != HEADRACE_OK) {
      return failed("get");
    }
    for (size_t i = 0; i < output->num_token_ids; ++i) printf("%d ", (int)output->token_ids[i]);
    fflush(stdout);
    finished = output->finished;
    if (finished && output->finish_reason == HEADRACE_FINISH_ERROR) {
      fprintf(stderr, "%s\n", output->error_message);
    }
    headrace_output_release(output);
  }
  printf("\n");
  return 0;
}

static int generate(headrace_engine* engine, const int32_t* ids, size_t count) {
  headrace_sampling_params sampling;
  headrace_sampling_params_init(&sampling, sizeof sampling);
  sampling.temperature = 0;
  sampling.max_tokens = 32;
  headrace_request_options options;
  headrace_request_options_init(&options, sizeof options);
  options.prompt_token_ids = ids;
  options.num_prompt_token_ids = count;
  options.sampling = &sampling;
  headrace_request* request = NULL;
  if (headrace_engine_submit(engine, "model", &options, &request) != HEADRACE_OK) {
    return failed("submit");
  }
  const int status = stream(request);
  headrace_request_release(request);
  return status;
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: embed_c MODEL ID...\n");
    return 2;
  }
  const size_t count = (size_t)argc - 2;
  int32_t* ids = malloc(count * sizeof *ids);
  headrace_engine* engine = NULL;
  if (ids == NULL || headrace_engine_create(NULL, &engine) != HEADRACE_OK) {
    free(ids);
    return failed("create");
  }
  for (size_t i = 0; i < count; ++i) ids[i] = (int32_t)strtol(argv[i + 2], NULL, 10);
  int status = start(engine, argv[1]);
  if (status == 0) status = generate(engine, ids, count);
  headrace_engine_destroy(engine);
  free(ids);
  return status;
}
