/* Images as embeddings from plain C, and what is refused. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { kRows = 3, kPromptLength = 8 };
static const int32_t kPrompt[kPromptLength] = {5, 7, 7, 7, 42, 99, 7, 3};

static headrace_engine* start_engine(const char* folder) {
  headrace_engine* engine = NULL;
  CHECK_OK(headrace_engine_create(NULL, &engine));
  headrace_model_options model;
  headrace_model_options_init(&model, sizeof model);
  model.path = folder;
  model.device = "cpu";
  model.max_model_len = 64;
  model.num_threads = 1;
  model.max_encoder_tokens = 16;
  model.encoder_cache_bytes = 1 << 20;
  CHECK_OK(headrace_engine_install_model(engine, "m", &model));
  CHECK_OK(headrace_engine_start_model(engine, "m"));
  return engine;
}

static headrace_code submit(headrace_engine* engine, const headrace_media_input* item,
                            headrace_request** request) {
  headrace_sampling_params sampling;
  headrace_sampling_params_init(&sampling, sizeof sampling);
  sampling.max_tokens = 2;
  headrace_request_options options;
  headrace_request_options_init(&options, sizeof options);
  options.prompt_token_ids = kPrompt;
  options.num_prompt_token_ids = kPromptLength;
  options.sampling = &sampling;
  options.media = &item;
  options.num_media = 1;
  return headrace_engine_submit(engine, "m", &options, request);
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  headrace_engine* engine = start_engine(argv[1]);
  headrace_model_info* info = NULL;
  CHECK_OK(headrace_engine_model_info(engine, "m", &info));
  CHECK(info->takes_embeddings == 1 && info->vision == 0 && info->max_encoder_tokens == 16);
  CHECK(info->encoder_cache_bytes == 1 << 20 && info->vision_weight_bytes == 0);

  const size_t count = kRows * (size_t)info->hidden_size;
  float* const rows = calloc(count, sizeof *rows);
  CHECK(rows != NULL);
  const int32_t steps[] = {0};
  const headrace_media_run run = {1, kRows, 0, 1, 1, kRows, steps, 1};
  headrace_media_input item;
  headrace_media_input_init(&item, sizeof item);
  CHECK(item.frames == 1 && item.patch_size == 14 && item.merge_size == 2);
  item.embeddings = rows;
  item.num_embeddings = count;
  item.rows = kRows;
  item.runs = &run;
  item.num_runs = 1;
  headrace_request* request = NULL;
  CHECK_OK(submit(engine, &item, &request));
  CHECK_OK(headrace_request_wait(request, HEADRACE_FOREVER, NULL));
  headrace_request_stats stats;
  memset(&stats, 0, sizeof stats);
  stats.struct_size = sizeof stats;
  CHECK_OK(headrace_request_get_stats(request, &stats));
  CHECK(stats.image_tokens == kRows && stats.video_tokens == 0);
  headrace_request_release(request);

  headrace_model_stats model_stats;
  memset(&model_stats, 0, sizeof model_stats);
  model_stats.struct_size = sizeof model_stats;
  CHECK_OK(headrace_engine_model_stats(engine, "m", &model_stats));
  CHECK(model_stats.encoded_tokens == kRows && model_stats.encoder_cache_bytes > 0);

  item.num_embeddings = count - 1;
  CHECK(submit(engine, &item, &request) == HEADRACE_INVALID_ARGUMENT);
  CHECK(strstr(headrace_last_error_message(), "media[0]") != NULL);
  uint8_t pixels[3 * 28 * 28] = {0};
  float table[768] = {0};
  item.embeddings = NULL;
  item.num_embeddings = 0;
  item.pixels = pixels;
  item.height = item.width = 28;
  CHECK(submit(engine, &item, &request) == HEADRACE_INVALID_ARGUMENT); /* no table */
  item.table = table;
  CHECK(submit(engine, &item, &request) == HEADRACE_UNSUPPORTED); /* no tower */
  item.height = INT64_MIN;
  CHECK(submit(engine, &item, &request) == HEADRACE_INVALID_ARGUMENT);

  free(rows);
  headrace_model_info_release(info);
  headrace_engine_destroy(engine);
  return 0;
}
