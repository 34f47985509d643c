#pragma once

/* What a request of headrace/c.h consists of, which includes this: how its tokens are drawn and
 * constrained, what is pooled, and its images and clips. The rules of c.h hold. */

#include <stddef.h>
#include <stdint.h>

#define HEADRACE_C_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* `count` lists of ids, end to end in `ids`; lengths[i] is the length of the i-th. Never grows. */
typedef struct headrace_token_lists {
  const int32_t* ids;
  const size_t* lengths;
  size_t count;
} headrace_token_lists;

enum {
  HEADRACE_RAW_LOGPROBS = 0,
  HEADRACE_RAW_LOGITS,
  HEADRACE_PROCESSED_LOGPROBS,
  HEADRACE_PROCESSED_LOGITS,
  HEADRACE_PENALIZED_LOGPROBS
};

/* The fields of headrace::SamplingParams in headrace/sampling_params.h, which has their ranges. */
/* headrace_sampling_params: written by tools/generate_options.py */
/* clang-format off */
typedef struct headrace_sampling_params {
  size_t struct_size;
  uint64_t seed; /* used if has_seed */
  const int32_t* logit_bias_ids; /* num_logit_bias of each */
  const float* logit_bias_values;
  size_t num_logit_bias;
  headrace_token_lists bad_words;
  const int32_t* stop_token_ids;
  size_t num_stop_token_ids;
  headrace_token_lists stop_sequences;
  int32_t has_seed;
  float temperature; /* default 1 */
  float top_p; /* default 1 */
  int32_t top_k;
  float min_p;
  float repetition_penalty; /* default 1 */
  float frequency_penalty;
  float presence_penalty;
  int32_t max_tokens;
  int32_t min_tokens;
  int32_t ignore_eos;
  int32_t logprobs; /* default -1: none */
  int32_t prompt_logprobs; /* default -1: none */
  int32_t logprobs_kind; /* HEADRACE_RAW_LOGPROBS ... */
  int32_t temperature_scaled_logprobs;
  int32_t top_p_normalized_logprobs;
  int32_t penalize_output_only;
  int32_t no_repeat_ngram_size;
  int32_t stop_sequences_anywhere;
  int32_t reserved; /* 0 */
} headrace_sampling_params;
/* clang-format on */
/* end of headrace_sampling_params */

HEADRACE_C_API void headrace_sampling_params_init(headrace_sampling_params* params, size_t size);

/* Guided decoding: which token may come next, as headrace::TokenConstraint in
 * headrace/token_constraint.h, which says how such an output ends. Given with a request; the struct
 * is copied. The functions run on threads of the engine, one at a time for each matcher; they must
 * return in bounded time and must not call the engine. One that fails ends its own request with
 * HEADRACE_FINISH_ERROR. */
typedef struct headrace_constraint {
  size_t struct_size;
  void* user_data;
  /* A matcher at the start of an output; NULL: failed. */
  void* (*start)(void* user_data);
  /* Sets bit t % 32 of allowed[t / 32] for each id t that may come next; all num_words words are 0
   * before. 1: the output may end here; 0: it may not; -1: failed. */
  int32_t (*next)(void* matcher, uint32_t* allowed, size_t num_words);
  /* `token`, which the last next() allowed, has become part of the output. 0, or -1: failed. */
  int32_t (*append)(void* matcher, int32_t token);
  /* The matcher's last call. */
  void (*end)(void* matcher);
  /* The last use of user_data for a request that was accepted; a refused one takes nothing. May be
   * NULL. */
  void (*release)(void* user_data);
} headrace_constraint;

/* A constraint that the library has made of a grammar: headrace_grammar_compile in c_text.h. */
typedef struct headrace_grammar headrace_grammar;

enum { HEADRACE_POOL_LAST = 0, HEADRACE_POOL_MEAN, HEADRACE_POOL_CLS };

/* An embedding of the prompt, or logits behind it: the fields of headrace::PoolingParams in
 * headrace/pooling_params.h, which has their ranges. */
/* headrace_pooling_params: written by tools/generate_options.py */
/* clang-format off */
typedef struct headrace_pooling_params {
  size_t struct_size;
  const int32_t* logit_token_ids;
  size_t num_logit_token_ids;
  int32_t pooling; /* HEADRACE_POOL_LAST ... */
  int32_t dimensions;
  int32_t normalize; /* default 1 */
  int32_t use_head;
  int32_t second_text_at;
  int32_t reserved; /* 0 */
} headrace_pooling_params;
/* clang-format on */
/* end of headrace_pooling_params */

HEADRACE_C_API void headrace_pooling_params_init(headrace_pooling_params* params, size_t size);

/* A run of an item's rows in a prompt, as headrace::MediaRun. Never grows. */
typedef struct headrace_media_run {
  int32_t position, count, first_row;
  int32_t grid_t, grid_h, grid_w; /* grid_t 0: the positions of text */
  const int32_t* steps;           /* [grid_t] */
  size_t num_steps;
} headrace_media_run;

/* An image or a clip, as headrace::MediaInput in headrace/media_input.h: either pixels or
 * embeddings. */
typedef struct headrace_media_input {
  size_t struct_size;
  const uint8_t* pixels;       /* [frames][height][width][3] RGB; NULL: none */
  int64_t frames;              /* default 1 */
  int64_t height, width;       /* in pixels */
  const float* table;          /* [768] what a byte of each channel becomes; with pixels */
  const float* embeddings;     /* [1 + added][rows][hidden_size]; NULL: none */
  size_t num_embeddings;       /* floats */
  int32_t rows, added;         /* of embeddings */
  int32_t patch_size;          /* default 14 */
  int32_t merge_size;          /* default 2 */
  int32_t temporal_patch_size; /* default 1 */
  int32_t video;               /* 1: a clip */
  uint64_t key[4];             /* names the content; all 0: the engine digests it */
  const headrace_media_run* runs;
  size_t num_runs;
} headrace_media_input;

HEADRACE_C_API void headrace_media_input_init(headrace_media_input* input, size_t size);

#ifdef __cplusplus
}
#endif
