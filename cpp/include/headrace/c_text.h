#pragma once

/* Texts, for programs in C: tokenizers, chat templates, requests from text to text, grammars. The
 * rules of headrace/c.h hold.
 *
 *   const char* messages = "[{\"role\": \"user\", \"content\": \"Hello\"}]";
 *   headrace_text_stream* stream = NULL;
 *   headrace_text_output* out = NULL;
 *   headrace_engine_submit_chat(engine, "m", messages, NULL, NULL, &stream);
 *   for (int32_t finished = 0; !finished; headrace_text_output_release(out)) {
 *     if (headrace_text_stream_next(stream, HEADRACE_FOREVER, &out) != HEADRACE_OK) break;
 *     fwrite(out->text, 1, out->length, stdout);
 *     finished = out->output->finished;
 *   }
 *
 * Texts are UTF-8 with a length, because a NUL may be in them; a NUL follows each that comes out.
 * The C++ headers of the same names say more: text.h, text_output.h, chat.h, grammar.h. */

#include "headrace/c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A text that came out. */
typedef struct headrace_text {
  size_t struct_size;
  const char* data;
  size_t length;
} headrace_text;

HEADRACE_C_API void headrace_text_release(headrace_text* text);

/* The length of a text that goes in and ends with its first NUL. */
#define HEADRACE_TO_NUL ((size_t)-1)

/* -- Tokenizers: headrace::Tokenizer ----------------------------------------------------------- */

typedef struct headrace_tokenizer headrace_tokenizer;

/* Of a model folder, or of a .gguf file by its path. */
HEADRACE_C_API headrace_code headrace_tokenizer_load(const char* folder,
                                                     headrace_tokenizer** tokenizer);
/* The one of an installed model, which loads it once. */
HEADRACE_C_API headrace_code headrace_engine_tokenizer(headrace_engine* engine, const char* model,
                                                       headrace_tokenizer** tokenizer);
HEADRACE_C_API void headrace_tokenizer_release(headrace_tokenizer* tokenizer);

typedef struct headrace_encode_options {
  size_t struct_size;
  size_t max_tokens;       /* refuse, untokenized, a text that can't be so few; 0: any */
  int32_t add_special;     /* 1: with the special tokens that belong around a text */
  int32_t special_as_text; /* 1: special tokens that are written out are text */
  int32_t with_spans;      /* 1: headrace_encoding has `spans` */
  int32_t reserved;        /* 0 */
} headrace_encode_options;

HEADRACE_C_API void headrace_encode_options_init(headrace_encode_options* options, size_t size);

/* Bytes of a text. Never grows. */
typedef struct headrace_text_span {
  size_t begin, end;
} headrace_text_span;

typedef struct headrace_encoding {
  size_t struct_size;
  const int32_t* ids;
  size_t count;
  const headrace_text_span* spans; /* what of the text each id stands for; NULL: not asked for */
} headrace_encoding;

/* `options` may be NULL. */
HEADRACE_C_API headrace_code headrace_tokenizer_encode(headrace_tokenizer* tokenizer,
                                                       const char* text, size_t length,
                                                       const headrace_encode_options* options,
                                                       headrace_encoding** encoding);
HEADRACE_C_API void headrace_encoding_release(headrace_encoding* encoding);

/* Unknown ids have no text. */
HEADRACE_C_API headrace_code headrace_tokenizer_decode(headrace_tokenizer* tokenizer,
                                                       const int32_t* ids, size_t num_ids,
                                                       int32_t skip_special, headrace_text** text);
/* The id of a token as the vocabulary spells it; -1: there is none. */
HEADRACE_C_API headrace_code headrace_tokenizer_find(headrace_tokenizer* tokenizer,
                                                     const char* spelling, int32_t* id);
/* The id of the special token of a role ("bos_token", "eos_token", ...); -1: there is none. */
HEADRACE_C_API headrace_code headrace_tokenizer_special(headrace_tokenizer* tokenizer,
                                                        const char* role, int32_t* id);
/* NULL, and HEADRACE_OK: there is no such token. */
HEADRACE_C_API headrace_code headrace_tokenizer_spelling(headrace_tokenizer* tokenizer, int32_t id,
                                                         headrace_text** spelling);
/* The bytes that a token adds in the middle of an output: they may be a part of a character. */
HEADRACE_C_API headrace_code headrace_tokenizer_token_bytes(headrace_tokenizer* tokenizer,
                                                            int32_t id, headrace_text** bytes);
/* How many tokens there are, and what every id is less than. Each may be NULL. */
HEADRACE_C_API headrace_code headrace_tokenizer_size(headrace_tokenizer* tokenizer, int32_t* size,
                                                     int32_t* end);

/* -- The text of an output, id by id: headrace::OutputText ------------------------------------- */

typedef struct headrace_detokenizer headrace_detokenizer;

typedef struct headrace_detokenizer_options {
  size_t struct_size;
  const char* const* shown; /* special tokens that have a text nevertheless */
  size_t num_shown;
  const int32_t* after; /* the ids that the output goes on from, if it is no text of its own */
  size_t num_after;
  const char* const* stop; /* stop strings: they end the text before they begin */
  size_t num_stop;
  size_t min_tokens;           /* but not before it has so many tokens */
  int32_t skip_special_tokens; /* default 1: they have no text */
  int32_t include_stop_string; /* 1: it is part of the text */
} headrace_detokenizer_options;

HEADRACE_C_API void headrace_detokenizer_options_init(headrace_detokenizer_options* options,
                                                      size_t size);

/* `options` may be NULL. The tokenizer may be released before. One thread at a time uses it. */
HEADRACE_C_API headrace_code headrace_detokenizer_create(
    headrace_tokenizer* tokenizer, const headrace_detokenizer_options* options,
    headrace_detokenizer** detokenizer);
HEADRACE_C_API void headrace_detokenizer_release(headrace_detokenizer* detokenizer);

/* The text that these ids settle, in whole characters; nothing later takes it back. It is valid
 * until the next call with this detokenizer. */
HEADRACE_C_API headrace_code headrace_detokenizer_push(headrace_detokenizer* detokenizer,
                                                       const int32_t* ids, size_t num_ids,
                                                       const char** text, size_t* length);
/* No more ids: what was held back. */
HEADRACE_C_API headrace_code headrace_detokenizer_finish(headrace_detokenizer* detokenizer,
                                                         const char** text, size_t* length);

/* Where the text stands; set struct_size before the call. */
typedef struct headrace_detokenizer_state {
  size_t struct_size;
  const char* stop_string;     /* that ended the text; NULL: none. Valid until the release */
  size_t start, end;           /* where it stands in the output, in bytes */
  size_t start_char, end_char; /* in characters */
  size_t released;             /* how many of the first tokens are sure to be part of the output */
} headrace_detokenizer_state;

HEADRACE_C_API headrace_code headrace_detokenizer_get_state(headrace_detokenizer* detokenizer,
                                                            headrace_detokenizer_state* state);

/* -- Chat templates: headrace::ChatTemplates --------------------------------------------------- */

typedef struct headrace_chat_templates headrace_chat_templates;

/* Likewise. */
HEADRACE_C_API headrace_code headrace_chat_templates_load(const char* folder,
                                                          headrace_chat_templates** templates);
/* Those of an installed model, which loads them once. */
HEADRACE_C_API headrace_code headrace_engine_chat_templates(headrace_engine* engine,
                                                            const char* model,
                                                            headrace_chat_templates** templates);
HEADRACE_C_API void headrace_chat_templates_release(headrace_chat_templates* templates);

/* The fields of headrace::ChatOptions. */
typedef struct headrace_chat_options {
  size_t struct_size;
  const char* tools_json;         /* a JSON list; NULL: none */
  const char* chat_template;      /* a name or a template; NULL: the folder's own */
  const char* variables_json;     /* a JSON object; NULL: none */
  int32_t add_generation_prompt;  /* default 1 */
  int32_t continue_final_message; /* 1: the last message is an answer that goes on */
} headrace_chat_options;

HEADRACE_C_API void headrace_chat_options_init(headrace_chat_options* options, size_t size);

/* The template of that name; NULL, and HEADRACE_OK: there is none. */
HEADRACE_C_API headrace_code headrace_chat_templates_find(headrace_chat_templates* templates,
                                                          const char* name, headrace_text** text);
/* Whether the template for these options (NULL: the defaults) reads a variable: "tools", ... */
HEADRACE_C_API headrace_code headrace_chat_reads(headrace_chat_templates* templates,
                                                 const headrace_chat_options* options,
                                                 const char* variable, int32_t* reads);
/* {"role": ..., "content": ...} in JSON, for the list of messages. */
HEADRACE_C_API headrace_code headrace_chat_message(const char* role, const char* content,
                                                   size_t length, headrace_text** message);
/* A conversation as the model was trained to read it. messages_json: a JSON list of {"role",
 * "content"}. */
HEADRACE_C_API headrace_code headrace_chat_render(headrace_chat_templates* templates,
                                                  const char* messages_json,
                                                  const headrace_chat_options* options,
                                                  headrace_text** text);

/* -- From text to text: headrace::TextStream --------------------------------------------------- */

typedef struct headrace_text_stream headrace_text_stream;

/* The fields of headrace::TextOptions. */
typedef struct headrace_text_options {
  size_t struct_size;
  const headrace_request_options* request; /* without a prompt, pooling and media; may be NULL */
  const char* const* stop;                 /* stop strings */
  size_t num_stop;
  int32_t include_stop_string; /* 1: it is part of the text */
  int32_t skip_special_tokens; /* default 1: they have no text */
  int32_t add_special_tokens;  /* 1: the prompt gets those that belong around a text */
  int32_t reserved;            /* 0 */
} headrace_text_options;

HEADRACE_C_API void headrace_text_options_init(headrace_text_options* options, size_t size);

/* Queues the answer to a conversation. Both options may be NULL. */
HEADRACE_C_API headrace_code headrace_engine_submit_chat(headrace_engine* engine, const char* model,
                                                         const char* messages_json,
                                                         const headrace_text_options* options,
                                                         const headrace_chat_options* chat,
                                                         headrace_text_stream** stream);
/* Queues what follows a text, which is taken as it stands. */
HEADRACE_C_API headrace_code headrace_engine_submit_text(headrace_engine* engine, const char* model,
                                                         const char* prompt, size_t length,
                                                         const headrace_text_options* options,
                                                         headrace_text_stream** stream);
/* Cancels what isn't finished: nobody can read it any more. */
HEADRACE_C_API void headrace_text_stream_release(headrace_text_stream* stream);

/* What came since the last read. */
typedef struct headrace_text_output {
  size_t struct_size;
  const char* text; /* in whole characters */
  size_t length;
  const char* stop_string;       /* that ended it; NULL: none */
  const headrace_output* output; /* ids, log-probabilities, and how it ended; belongs to this one */
} headrace_text_output;

/* As headrace_request_get: *output is NULL if nothing came within `timeout`. */
HEADRACE_C_API headrace_code headrace_text_stream_next(headrace_text_stream* stream,
                                                       int64_t timeout,
                                                       headrace_text_output** output);
HEADRACE_C_API void headrace_text_output_release(headrace_text_output* output);
HEADRACE_C_API headrace_code headrace_text_stream_cancel(headrace_text_stream* stream);
/* The request beneath: statistics, selectors, callbacks. Output that is read from it doesn't come
 * to the stream. To be released. */
HEADRACE_C_API headrace_code headrace_text_stream_request(headrace_text_stream* stream,
                                                          headrace_request** request);

/* -- Grammars (guided decoding): headrace::GrammarCompiler ------------------------------------- */

typedef struct headrace_grammar_compiler headrace_grammar_compiler;

enum {
  HEADRACE_JSON_SCHEMA = 0,
  HEADRACE_REGEX,
  HEADRACE_LARK, /* the last two are llguidance's */
  HEADRACE_LLGUIDANCE
};

/* The fields of headrace::GrammarLimits, and whose engine it is. */
typedef struct headrace_grammar_options {
  size_t struct_size;
  const char* library; /* the path of llguidance's library; NULL: Headrace's own engine */
  size_t max_schema_bytes, max_grammar_bytes, max_grammar_size;
  uint64_t compile_fuel, token_fuel;
  size_t max_token_items, max_lexer_states;
} headrace_grammar_options;

HEADRACE_C_API void headrace_grammar_options_init(headrace_grammar_options* options, size_t size);

/* For the vocabulary of a tokenizer, which may be released before. `options` may be NULL. */
HEADRACE_C_API headrace_code headrace_grammar_compiler_create(
    headrace_tokenizer* tokenizer, const headrace_grammar_options* options,
    headrace_grammar_compiler** compiler);
HEADRACE_C_API void headrace_grammar_compiler_release(headrace_grammar_compiler* compiler);

/* For headrace_request_options.grammar, of any number of requests. kind: HEADRACE_JSON_SCHEMA ...
 */
HEADRACE_C_API headrace_code headrace_grammar_compile(headrace_grammar_compiler* compiler,
                                                      int32_t kind, const char* text,
                                                      headrace_grammar** grammar);
/* The same for an installed model, with the defaults of the options. The model keeps its compiler.
 */
HEADRACE_C_API headrace_code headrace_engine_compile_grammar(headrace_engine* engine,
                                                             const char* model, int32_t kind,
                                                             const char* text,
                                                             headrace_grammar** grammar);
HEADRACE_C_API void headrace_grammar_release(headrace_grammar* grammar);

#ifdef __cplusplus
}
#endif
