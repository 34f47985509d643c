#pragma once

/* The engine for programs in C, and for languages that call C. C99; the same library as the C++
 * API.
 *
 *   headrace_engine* engine = NULL;
 *   headrace_model_options model;
 *   headrace_model_options_init(&model, sizeof model);
 *   model.path = "ERNIE-4.5-0.3B-PT";
 *   if (headrace_engine_create(NULL, &engine) != HEADRACE_OK ||
 *       headrace_engine_install_model(engine, "m", &model) != HEADRACE_OK ||
 *       headrace_engine_start_model(engine, "m") != HEADRACE_OK) {
 *     fprintf(stderr, "%s\n", headrace_last_error_message());
 *   }
 *
 * Texts, chats and grammars are in headrace/c_text.h.
 *
 * Errors: a function that can fail returns a headrace_code and then leaves its results alone. The
 *   code and a message of the thread's last failure stay until its next one. No C++ exception
 *   leaves the library; it never aborts, exits or prints.
 * Ownership: what create, submit or get hands out is released with the function named for it, once,
 *   in any order; NULL is ignored. A request stays readable after its model and engine are gone.
 *   What goes in is copied: nothing given to a function needs to outlive its call, but for the
 *   user_data of callbacks and constraints. What a struct that came out points to is valid until
 *   that struct is released.
 * Threads: any function may be called from any thread, with the same handle, too; only a release
 *   must be a handle's last use. Callbacks run on threads of the engine, or the caller's, and must
 *   not unwind (throw, longjmp) into the library.
 * Growth: structs that go in begin with their size, which xxx_init() sets with the defaults; fields
 *   are added at the end only. The library takes fields that a caller's older header lacks as
 *   default, and refuses (HEADRACE_UNSUPPORTED) those that it does not know unless they are 0.
 * Flags are 0 or 1. Strings are UTF-8, and NULL is the same as "". Times are in nanoseconds. */

#include "headrace/c_params.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -- Errors ------------------------------------------------------------------------------------ */

/* Stable: the values of headrace::ErrorCode in headrace/status.h, which says what each means. */
typedef int32_t headrace_code;
enum {
  HEADRACE_OK = 0,
  HEADRACE_INVALID_ARGUMENT = 1,
  HEADRACE_NOT_FOUND = 2,
  HEADRACE_UNSUPPORTED = 3,
  HEADRACE_CORRUPT_FILE = 4,
  HEADRACE_OUT_OF_MEMORY = 5,
  HEADRACE_LIMIT_EXCEEDED = 6,
  HEADRACE_INVALID_STATE = 7,
  HEADRACE_CANCELLED = 8,
  HEADRACE_DEADLINE_EXCEEDED = 9,
  HEADRACE_IO = 10,
  HEADRACE_DEVICE = 11,
  HEADRACE_INTERNAL = 12,
  HEADRACE_NOT_FINITE = 13
};

/* "ok", "invalid_argument", ... Never NULL. */
HEADRACE_C_API const char* headrace_code_name(headrace_code code);
/* Of this thread's last call that failed; HEADRACE_OK and "" if none has. The text is valid until
 * the thread's next failure. */
HEADRACE_C_API headrace_code headrace_last_error_code(void);
HEADRACE_C_API const char* headrace_last_error_message(void);

/* "MAJOR.MINOR.PATCH" of the library in use. */
HEADRACE_C_API const char* headrace_version(void);

/* -- The engine -------------------------------------------------------------------------------- */

typedef struct headrace_engine headrace_engine;

enum { HEADRACE_LOG_DEBUG = 0, HEADRACE_LOG_INFO, HEADRACE_LOG_WARNING, HEADRACE_LOG_ERROR };

/* One call at a time, from any thread. Must not call the engine. */
typedef void (*headrace_log_fn)(void* user_data, int32_t level, const char* message);

typedef struct headrace_engine_options {
  size_t struct_size;
  headrace_log_fn log; /* NULL: messages are dropped */
  void* log_user_data;
} headrace_engine_options;

HEADRACE_C_API void headrace_engine_options_init(headrace_engine_options* options, size_t size);

/* `options` may be NULL. */
HEADRACE_C_API headrace_code headrace_engine_create(const headrace_engine_options* options,
                                                    headrace_engine** engine);
/* Cancels what still runs and releases every model. */
HEADRACE_C_API void headrace_engine_destroy(headrace_engine* engine);

/* -- Models: installed -> running -> stopping -> stopped -> released --------------------------- */

/* A timeout that never passes. 0 does not wait. */
#define HEADRACE_FOREVER ((int64_t)-1)

enum { HEADRACE_PREEMPT = 0, HEADRACE_INTERRUPT_LONGEST, HEADRACE_INTERRUPT_RANDOM };

enum {
  HEADRACE_LOAD_OPENING = 0, /* reads the configuration and the headers of the weights' files */
  HEADRACE_LOAD_CHECKING,    /* reads a packed file and compares it with what was written */
  HEADRACE_LOAD_WEIGHTS,     /* converts the weights, or maps them */
  HEADRACE_LOAD_RESERVING    /* takes the memory of the KV cache */
};

/* How far a load is. bytes_done grows up to bytes_total within a stage; both are 0 where nothing is
 * counted. Made by the library, which sets struct_size. */
typedef struct headrace_load_progress {
  size_t struct_size;
  uint64_t bytes_done, bytes_total;
  int32_t stage; /* HEADRACE_LOAD_... */
  int32_t reserved;
} headrace_load_progress;

/* Called at least behind each weight, by threads of the load, one call at a time. 0: go on;
 * anything else ends the load with HEADRACE_CANCELLED, and nothing is left behind. Must be quick
 * and must not call the engine. */
typedef int32_t (*headrace_load_fn)(void* user_data, const headrace_load_progress* progress);

/* The fields of headrace::ModelOptions in headrace/options.h, which has units and ranges. 0 and
 * NULL mean: choose. */
/* headrace_model_options: written by tools/generate_options.py */
/* clang-format off */
typedef struct headrace_model_options {
  size_t struct_size;
  const char* path;
  const char* device;
  const char* dtype;
  const char* kv_cache_dtype;
  const char* cpu_isa;
  const char* packed_weights;
  size_t kv_cache_bytes;
  size_t memory_leftover_bytes;
  double memory_utilization; /* default 0.9 */
  double total_memory_ratio;
  int32_t num_threads;
  int32_t max_model_len;
  int32_t max_num_seqs; /* default 64 */
  int32_t max_num_batched_tokens;
  int32_t block_size; /* default 64 */
  int32_t num_kv_blocks;
  int32_t max_prefill_chunk;
  int32_t enable_prefix_caching; /* default 1 */
  int32_t dummy_weights;
  int32_t out_of_blocks; /* HEADRACE_PREEMPT ... */
  int32_t packed_copy;
  int32_t max_loras;
  int32_t max_lora_rank; /* default 64 */
  int32_t quantization_group_size;
  const char* quantization;
  const char* speculative_method;
  const char* speculative_model;
  int32_t num_speculative_tokens; /* default 8 */
  int32_t min_ngram_size; /* default 2 */
  int32_t max_ngram_size; /* default 5 */
  int32_t tensor_parallel_size; /* 0: 1 */
  double swap_space;
  headrace_load_fn load; /* told how far install or pack is; NULL: nobody is */
  void* load_user_data;
  size_t encoder_cache_bytes;
  int32_t max_encoder_tokens;
  int32_t enable_expert_parallel;
  const char* const* devices;
  size_t num_devices;
  int32_t data_parallel_size; /* 0: 1 */
  int32_t num_state_slots;
  int32_t snapshot_interval;
  int32_t reserved; /* 0 */
} headrace_model_options;
/* clang-format on */
/* end of headrace_model_options */

HEADRACE_C_API void headrace_model_options_init(headrace_model_options* options, size_t size);

/* Packs the weights of options->path into a file that a start maps: headrace/pack.h. */
HEADRACE_C_API headrace_code headrace_pack_model(const headrace_model_options* options,
                                                 const char* file);

/* These are the methods of headrace::Engine in headrace/engine.h, which says when they fail. */
HEADRACE_C_API headrace_code headrace_engine_install_model(headrace_engine* engine,
                                                           const char* name,
                                                           const headrace_model_options* options);
HEADRACE_C_API headrace_code headrace_engine_start_model(headrace_engine* engine, const char* name);
/* Waits until the requests in hand have finished, but no longer than `timeout`; then *stopped, if
 * not NULL, is 0 and the model goes on stopping. */
HEADRACE_C_API headrace_code headrace_engine_stop_model(headrace_engine* engine, const char* name,
                                                        int64_t timeout, int32_t* stopped);
HEADRACE_C_API headrace_code headrace_engine_release_model(headrace_engine* engine,
                                                           const char* name);
HEADRACE_C_API headrace_code headrace_engine_clear_prefix_cache(headrace_engine* engine,
                                                                const char* name);
/* Adapters: PEFT folders, used by requests that give their lora_name. */
HEADRACE_C_API headrace_code headrace_engine_load_lora(headrace_engine* engine, const char* name,
                                                       const char* lora_name, const char* path);
HEADRACE_C_API headrace_code headrace_engine_unload_lora(headrace_engine* engine, const char* name,
                                                         const char* lora_name);

enum {
  HEADRACE_MODEL_INSTALLED = 0,
  HEADRACE_MODEL_RUNNING,
  HEADRACE_MODEL_STOPPING,
  HEADRACE_MODEL_STOPPED,
  HEADRACE_MODEL_FAILED
};

/* Counters since the model's start, as headrace::ModelStats; set struct_size before the call. */
typedef struct headrace_model_stats {
  size_t struct_size;
  uint64_t finished_requests, preemptions, interruptions, steps;
  uint64_t prompt_tokens, generated_tokens, prefix_hit_tokens, prefix_miss_tokens;
  size_t memory_bytes, memory_pool_bytes, mapped_bytes;
  double busy_seconds, mask_wait_seconds;
  int32_t state; /* HEADRACE_MODEL_... */
  int32_t waiting_requests, running_requests;
  int32_t total_kv_blocks, free_kv_blocks, cached_kv_blocks;
  uint64_t drafted_tokens, accepted_tokens;
  uint64_t prefix_host_hit_tokens, kv_blocks_to_host, kv_blocks_from_host;
  int32_t cached_host_kv_blocks;
  int32_t running_replicas;
  uint64_t encoded_tokens, encoder_hit_tokens;
  size_t encoder_cache_bytes;
  int32_t total_state_slots, free_state_slots, cached_state_slots, cached_host_state_slots;
  uint64_t snapshots_saved, snapshots_evicted, snapshots_restored, prefix_unused_tokens;
} headrace_model_stats;

HEADRACE_C_API headrace_code headrace_engine_model_stats(headrace_engine* engine, const char* name,
                                                         headrace_model_stats* stats);

/* As headrace::ModelInfo. Made by the library, which sets struct_size. */
typedef struct headrace_model_info {
  size_t struct_size;
  const char *name, *path, *family, *device, *isa, *dtype, *kv_cache_dtype;
  const int32_t* eos_token_ids;
  size_t num_eos_token_ids;
  size_t weight_bytes, mapped_weight_bytes, kv_cache_bytes, scratch_bytes;
  int64_t num_parameters;
  double load_seconds;
  int32_t vocab_size, hidden_size, num_layers, num_heads, num_kv_heads, head_dim;
  int32_t intermediate_size, max_model_len, max_num_seqs, max_num_batched_tokens;
  int32_t block_size, num_kv_blocks, num_threads, max_loras, max_lora_rank, num_nodes;
  const char* quantization;   /* "" for none */
  const char* packed_weights; /* the packed file that they come from, "" for none */
  size_t reserved_bytes, device_free_bytes;
  size_t host_kv_cache_bytes;
  int32_t num_host_kv_blocks;
  int32_t tensor_parallel_size;
  int64_t num_active_parameters;
  size_t token_weight_bytes;
  int32_t num_experts, num_active_experts;
  int32_t causal, generates;
  int32_t vision, takes_embeddings; /* what headrace_media_input may have */
  int32_t max_encoder_tokens;
  int32_t data_parallel_size;
  size_t encoder_cache_bytes, vision_weight_bytes;
  int64_t num_kv_groups;
  size_t state_slot_bytes;
  int32_t num_state_slots, num_host_state_slots;
  int64_t snapshot_interval;
  int32_t head_outputs, classifies;
  int32_t classifier_pooling; /* HEADRACE_POOL_LAST ... */
  int32_t tells_pairs;
  /* [num_kv_windows]: kv_numbers[i] numbers of keys and values that a sequence keeps of each token
     in layers of window kv_windows[i]: 0 of all tokens, else of about so many of the last. */
  const int32_t* kv_windows;
  const int64_t* kv_numbers;
  size_t num_kv_windows;
} headrace_model_info;

HEADRACE_C_API headrace_code headrace_engine_model_info(headrace_engine* engine, const char* name,
                                                        headrace_model_info** info);
HEADRACE_C_API void headrace_model_info_release(headrace_model_info* info);

/* Names of the installed models. */
typedef struct headrace_model_names {
  size_t struct_size;
  size_t count;
  const char* const* names;
} headrace_model_names;

HEADRACE_C_API headrace_code headrace_engine_model_names(headrace_engine* engine,
                                                         headrace_model_names** names);
HEADRACE_C_API void headrace_model_names_release(headrace_model_names* names);

/* As headrace::LoraInfo: the adapters that are loaded. */
typedef struct headrace_lora_info {
  size_t struct_size;
  const char *name, *path;
  size_t bytes;
  int32_t rank, num_modules, live_requests, reserved;
} headrace_lora_info;

typedef struct headrace_lora_infos {
  size_t struct_size;
  size_t count;
  const headrace_lora_info* const* infos;
} headrace_lora_infos;

HEADRACE_C_API headrace_code headrace_engine_loras(headrace_engine* engine, const char* name,
                                                   headrace_lora_infos** infos);
HEADRACE_C_API void headrace_lora_infos_release(headrace_lora_infos* infos);

/* -- Requests ---------------------------------------------------------------------------------- */

typedef struct headrace_request headrace_request;

typedef struct headrace_request_options {
  size_t struct_size;
  const char* request_id;          /* for messages only; NULL: the engine makes one */
  const int32_t* prompt_token_ids; /* 1 .. max_model_len - 1 ids */
  size_t num_prompt_token_ids;
  const headrace_sampling_params* sampling; /* NULL: the defaults */
  const headrace_constraint* constraint;    /* NULL: none */
  const char* lora_name;                    /* an adapter that is loaded; NULL: none */
  int64_t timeout;  /* gives up (HEADRACE_DEADLINE_EXCEEDED) then; default HEADRACE_FOREVER */
  int32_t priority; /* lower runs first */
  int32_t reserved; /* 0 */
  /* NULL: text. Else headrace_output has `pooled`, and sampling and constraint are NULL. */
  const headrace_pooling_params* pooling;
  const headrace_media_input* const* media; /* images and clips, in order of position */
  size_t num_media;
  const headrace_grammar* grammar; /* NULL: none; not beside a constraint */
} headrace_request_options;

HEADRACE_C_API void headrace_request_options_init(headrace_request_options* options, size_t size);

/* Queues a request. A bad one fails here and costs no other anything. */
HEADRACE_C_API headrace_code headrace_engine_submit(headrace_engine* engine, const char* model,
                                                    const headrace_request_options* options,
                                                    headrace_request** request);
/* Does not cancel: an unfinished request runs on unheard. Its on_output callback stays set. */
HEADRACE_C_API void headrace_request_release(headrace_request* request);

/* Ends it with HEADRACE_FINISH_ABORT; what it generated stays readable. Returns at once. */
HEADRACE_C_API headrace_code headrace_request_cancel(headrace_request* request);
/* Waits until it has finished, but no longer than `timeout`; *finished, if not NULL, says which. */
HEADRACE_C_API headrace_code headrace_request_wait(headrace_request* request, int64_t timeout,
                                                   int32_t* finished);

/* Valid until the request is released. NULL (and an error) for a NULL request. */
HEADRACE_C_API const char* headrace_request_id(headrace_request* request);
/* The seed in use, also when the engine picked it. */
HEADRACE_C_API headrace_code headrace_request_seed(headrace_request* request, uint64_t* seed);

enum {
  HEADRACE_REQUEST_WAITING = 0, /* accepted, nothing computed yet */
  HEADRACE_REQUEST_PREFILL,     /* its prompt is being computed */
  HEADRACE_REQUEST_GENERATING,  /* at least one token has been generated */
  HEADRACE_REQUEST_FINISHED
};

/* As headrace::RequestStats, and where the request stands; set struct_size before the call. */
typedef struct headrace_request_stats {
  size_t struct_size;
  double arrival_time, first_scheduled_time, first_token_time, last_token_time, finished_time;
  int32_t prompt_tokens, cached_tokens, generated_tokens, preemptions;
  int32_t status;                     /* HEADRACE_REQUEST_... */
  int32_t host_cached_tokens;         /* of cached_tokens */
  int32_t image_tokens, video_tokens; /* of prompt_tokens */
  int32_t replica;                    /* that computes it, < data_parallel_size */
  int32_t reserved;
} headrace_request_stats;

HEADRACE_C_API headrace_code headrace_request_get_stats(headrace_request* request,
                                                        headrace_request_stats* stats);

/* -- Output ------------------------------------------------------------------------------------ */

enum {
  HEADRACE_FINISH_NONE = 0,   /* not finished */
  HEADRACE_FINISH_STOP,       /* EOS, a stop token or a stop sequence; or it is pooled */
  HEADRACE_FINISH_LENGTH,     /* max_tokens or the context */
  HEADRACE_FINISH_ABORT,      /* cancelled by its owner, or the model was released */
  HEADRACE_FINISH_ERROR,      /* error_code and error_message say what happened */
  HEADRACE_FINISH_INTERRUPTED /* no KV blocks were left (out_of_blocks); its tokens are valid */
};

typedef struct headrace_token_logprob {
  int32_t token;
  float logprob;
} headrace_token_logprob;

/* One position: the token's own, its rank (1 = best), and the best tokens, best first. Never
 * grows. */
typedef struct headrace_position_logprobs {
  int32_t token;
  float logprob;
  int32_t rank;
  int32_t reserved;
  const headrace_token_logprob* top;
  size_t num_top;
} headrace_position_logprobs;

/* What came since the last read. Made by the library, which sets struct_size. */
typedef struct headrace_output {
  size_t struct_size;
  const int32_t* token_ids;
  size_t num_token_ids;
  const headrace_position_logprobs* logprobs; /* one per token id, when asked for */
  size_t num_logprobs;
  const headrace_position_logprobs* prompt_logprobs; /* once, before tokens */
  size_t num_prompt_logprobs;
  const char* error_message;
  headrace_code error_code;
  int32_t finished;      /* this is the last output of the request */
  int32_t finish_reason; /* HEADRACE_FINISH_... */
  int32_t stop_token;    /* the EOS or stop token that ended it; -1: none */
  const float* pooled;   /* what headrace_pooling_params ask for, with the last output */
  size_t num_pooled;
  int32_t stop_sequence; /* which of the request's stop_sequences ended it; -1: none */
  int32_t reserved;
} headrace_output;

/* Takes all new output, and waits for some until `timeout` has passed: then *output is NULL, and
 * the result HEADRACE_OK. After the last output it gives a finished one without tokens, every
 * time. */
HEADRACE_C_API headrace_code headrace_request_get(headrace_request* request, int64_t timeout,
                                                  headrace_output** output);
HEADRACE_C_API void headrace_output_release(headrace_output* output);

/* Runs whenever new output is there (and once at once, on the caller's thread, if some is already);
 * calls never overlap. It must be quick. It may call any function on requests, and submit. Replaces
 * the one set before; NULL unsets. When this returns, no call of the old one is running, unless it
 * was called from within it. It is dropped after the last output. */
typedef void (*headrace_output_fn)(void* user_data);
HEADRACE_C_API headrace_code headrace_request_on_output(headrace_request* request,
                                                        headrace_output_fn callback,
                                                        void* user_data);

/* -- Waiting for many requests ----------------------------------------------------------------- */

/* One waiting thread, or one file descriptor of an event loop, for any number of requests. A
 * request may be in several. */
typedef struct headrace_selector headrace_selector;

HEADRACE_C_API headrace_code headrace_selector_create(headrace_selector** selector);
/* Leaves every request. */
HEADRACE_C_API void headrace_selector_destroy(headrace_selector* selector);
/* From now on `tag` is reported when the request has output (finished_only: when it has finished),
 * and at once if that is so already. HEADRACE_INVALID_ARGUMENT if the tag is in use. The request
 * may be released before the selector. */
HEADRACE_C_API headrace_code headrace_selector_add(headrace_selector* selector,
                                                   headrace_request* request, int64_t tag,
                                                   int32_t finished_only);
/* The tag is not reported any more and may be used again. No effect on one not in use. */
HEADRACE_C_API headrace_code headrace_selector_remove(headrace_selector* selector, int64_t tag);
/* Waits for reports until `timeout` has passed, and writes up to `capacity` tags, in order of
 * arrival; *count is how many, 0 after the timeout. The others come with the next call. */
HEADRACE_C_API headrace_code headrace_selector_wait(headrace_selector* selector, int64_t timeout,
                                                    int64_t* tags, size_t capacity, size_t* count);
/* Ends the wait that a thread is in, or else the next one, which may give 0 tags then. */
HEADRACE_C_API headrace_code headrace_selector_wake(headrace_selector* selector);
/* A descriptor that is readable while there are tags to take. It belongs to the selector: wait on
 * it, but neither read nor close it. */
HEADRACE_C_API headrace_code headrace_selector_ready_fd(headrace_selector* selector,
                                                        int32_t* descriptor);

#ifdef __cplusplus
}
#endif
