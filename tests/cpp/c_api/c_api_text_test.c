/* Texts in plain C: tokenizers, chat templates, from text to text. */

#include <string.h>

#include "check.h"
#include "headrace/c_text.h"

static const char kMessages[] = "[{\"role\": \"user\", \"content\": \"What is 12 + 7?\"}]";
static const char kPrompt[] = "<|begin_of_sentence|>User: What is 12 + 7?\nAssistant: ";

static int same(const char* data, size_t length, const char* expected) {
  return length == strlen(expected) && memcmp(data, expected, length) == 0 && data[length] == '\0';
}

static int text_is(headrace_text* text, const char* expected) {
  const int found = text != NULL && same(text->data, text->length, expected);
  headrace_text_release(text);
  return found;
}

static headrace_engine* start_engine(const char* folder) {
  headrace_engine* engine = NULL;
  CHECK_OK(headrace_engine_create(NULL, &engine));
  headrace_model_options model;
  headrace_model_options_init(&model, sizeof model);
  model.path = folder;
  model.max_model_len = 256;
  model.num_threads = 1;
  CHECK_OK(headrace_engine_install_model(engine, "m", &model));
  CHECK_OK(headrace_engine_start_model(engine, "m"));
  return engine;
}

static void test_tokenizer(headrace_engine* engine, const char* folder) {
  headrace_tokenizer *tokenizer = NULL, *of_engine = NULL;
  CHECK_OK(headrace_tokenizer_load(folder, &tokenizer));
  CHECK_OK(headrace_engine_tokenizer(engine, "m", &of_engine));
  headrace_encode_options options;
  headrace_encode_options_init(&options, sizeof options);
  options.with_spans = 1;
  headrace_encoding *encoding = NULL, *bare = NULL;
  CHECK_OK(headrace_tokenizer_encode(tokenizer, kPrompt, strlen(kPrompt), &options, &encoding));
  CHECK_OK(headrace_tokenizer_encode(of_engine, kPrompt, HEADRACE_TO_NUL, NULL, &bare));
  CHECK(encoding->count == bare->count && encoding->count > 5 && bare->spans == NULL);
  CHECK(memcmp(encoding->ids, bare->ids, bare->count * sizeof *bare->ids) == 0);
  CHECK(encoding->spans[0].begin == 0 && encoding->spans[0].end == 21);
  CHECK(encoding->spans[encoding->count - 1].end == strlen(kPrompt));
  headrace_text* text = NULL;
  CHECK_OK(headrace_tokenizer_decode(tokenizer, bare->ids, bare->count, 0, &text));
  CHECK(text_is(text, kPrompt));
  CHECK_OK(headrace_tokenizer_decode(tokenizer, bare->ids, bare->count, 1, &text));
  CHECK(text_is(text, kPrompt + 21));

  int32_t id = -2, size = 0, end = 0, eos = -2;
  CHECK_OK(headrace_tokenizer_find(tokenizer, "<|begin_of_sentence|>", &id));
  CHECK(id == bare->ids[0]);
  CHECK_OK(headrace_tokenizer_spelling(tokenizer, id, &text));
  CHECK(text_is(text, "<|begin_of_sentence|>"));
  CHECK_OK(headrace_tokenizer_token_bytes(tokenizer, bare->ids[1], &text));
  CHECK(text->length > 0 && memcmp(text->data, kPrompt + 21, text->length) == 0);
  headrace_text_release(text);
  CHECK_OK(headrace_tokenizer_special(tokenizer, "cls_token", &eos));
  CHECK(eos == id);
  CHECK_OK(headrace_tokenizer_special(tokenizer, "mask_token", &eos));
  CHECK_OK(headrace_tokenizer_find(tokenizer, "no such token", &id));
  CHECK(eos == -1 && id == -1);
  CHECK_OK(headrace_tokenizer_size(tokenizer, &size, &end));
  CHECK(size > 1000 && end >= size);
  CHECK_OK(headrace_tokenizer_spelling(tokenizer, end, &text));
  CHECK(text == NULL);

  CHECK(headrace_tokenizer_encode(tokenizer, "\xff", 1, NULL, &encoding) ==
        HEADRACE_INVALID_ARGUMENT);
  options.max_tokens = 1;
  char* huge = calloc(1 << 20, 1);
  memset(huge, 'x', (1 << 20) - 1);
  CHECK(headrace_tokenizer_encode(tokenizer, huge, HEADRACE_TO_NUL, &options, &bare) ==
        HEADRACE_LIMIT_EXCEEDED);
  free(huge);
  headrace_encoding* nul = NULL;
  CHECK_OK(headrace_tokenizer_encode(tokenizer, "a\0b", 3, NULL, &nul));
  CHECK_OK(headrace_tokenizer_decode(tokenizer, nul->ids, nul->count, 0, &text));
  CHECK(text->length == 3 && memcmp(text->data, "a\0b", 4) == 0);
  headrace_text_release(text);
  headrace_encoding_release(nul);
  headrace_encoding_release(encoding);
  headrace_encoding_release(bare);
  headrace_tokenizer_release(of_engine);
  headrace_tokenizer_release(tokenizer);
}

static void test_detokenizer(headrace_engine* engine) {
  headrace_tokenizer* tokenizer = NULL;
  CHECK_OK(headrace_engine_tokenizer(engine, "m", &tokenizer));
  headrace_encoding* encoding = NULL;
  CHECK_OK(headrace_tokenizer_encode(tokenizer, "one two three", HEADRACE_TO_NUL, NULL, &encoding));
  const char* stops[] = {"thr", "e t"};
  headrace_detokenizer_options options;
  headrace_detokenizer_options_init(&options, sizeof options);
  CHECK(options.skip_special_tokens == 1);
  options.stop = stops;
  options.num_stop = 2;
  headrace_detokenizer *plain = NULL, *stopped = NULL;
  CHECK_OK(headrace_detokenizer_create(tokenizer, NULL, &plain));
  CHECK_OK(headrace_detokenizer_create(tokenizer, &options, &stopped));
  options.stop = NULL;
  headrace_detokenizer* none = NULL;
  CHECK(headrace_detokenizer_create(tokenizer, &options, &none) == HEADRACE_INVALID_ARGUMENT);
  headrace_tokenizer_release(tokenizer);

  const char* text = NULL;
  size_t length = 0;
  CHECK_OK(headrace_detokenizer_push(plain, encoding->ids, encoding->count, &text, &length));
  CHECK(same(text, length, "one two three"));
  CHECK_OK(headrace_detokenizer_finish(plain, &text, &length));
  CHECK(same(text, length, ""));
  headrace_detokenizer_state state;
  state.struct_size = sizeof state;
  CHECK_OK(headrace_detokenizer_get_state(plain, &state));
  CHECK(state.stop_string == NULL && state.released == encoding->count);
  CHECK_OK(headrace_detokenizer_push(stopped, encoding->ids, encoding->count, &text, &length));
  CHECK(same(text, length, "on"));
  CHECK_OK(headrace_detokenizer_get_state(stopped, &state));
  CHECK(strcmp(state.stop_string, "e t") == 0 && state.start == 2 && state.end_char == 5);
  headrace_encoding_release(encoding);
  headrace_detokenizer_release(plain);
  headrace_detokenizer_release(stopped);
}

static void test_templates(headrace_engine* engine, const char* folder) {
  headrace_chat_templates *templates = NULL, *of_engine = NULL;
  CHECK_OK(headrace_chat_templates_load(folder, &templates));
  CHECK_OK(headrace_engine_chat_templates(engine, "m", &of_engine));
  headrace_text* text = NULL;
  CHECK_OK(headrace_chat_render(templates, kMessages, NULL, &text));
  CHECK(text_is(text, kPrompt));
  headrace_chat_options options;
  headrace_chat_options_init(&options, sizeof options);
  CHECK(options.add_generation_prompt == 1);
  options.chat_template = "{{ x }}{{ bos_token }}";
  options.variables_json = "{\"x\": \"\\u0000\"}";
  CHECK_OK(headrace_chat_render(of_engine, kMessages, &options, &text));
  CHECK(text->length == 4 && memcmp(text->data, "\0<s>", 5) == 0);
  headrace_text_release(text);
  int32_t reads = -1;
  CHECK_OK(headrace_chat_reads(templates, &options, "x", &reads));
  CHECK(reads == 1);
  CHECK_OK(headrace_chat_reads(templates, NULL, "tools", &reads));
  CHECK(reads == 0);
  CHECK_OK(headrace_chat_templates_find(templates, "default", &text));
  CHECK(text != NULL && strstr(text->data, "add_generation_prompt") != NULL);
  headrace_text_release(text);
  CHECK_OK(headrace_chat_templates_find(templates, "other", &text));
  CHECK(text == NULL);

  CHECK_OK(headrace_chat_message("user", "\"\n", HEADRACE_TO_NUL, &text));
  CHECK(text_is(text, "{\"role\": \"user\", \"content\": \"\\\"\\u000a\"}"));
  text = NULL;
  CHECK(headrace_chat_message("user", "\xff", 1, &text) == HEADRACE_INVALID_ARGUMENT);

  options.variables_json = NULL;
  options.tools_json = "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]";
  CHECK(headrace_chat_render(templates, kMessages, &options, &text) == HEADRACE_INVALID_ARGUMENT);
  const char* bad[] = {NULL, "", "{}", "[", "[\"\xff\"]", "[{\"role\": \"user\"}]"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    CHECK(headrace_chat_render(templates, bad[i], NULL, &text) == HEADRACE_INVALID_ARGUMENT);
    CHECK(text == NULL);
  }
  headrace_chat_templates_release(of_engine);
  headrace_chat_templates_release(templates);
}

/* All of an answer's text, as one; how it ended in `end`. */
static size_t read_text(headrace_text_stream* stream, char* buffer, size_t capacity,
                        headrace_text_output** end) {
  size_t length = 0;
  for (;;) {
    headrace_text_output* output = NULL;
    CHECK_OK(headrace_text_stream_next(stream, HEADRACE_FOREVER, &output));
    CHECK(output != NULL && length + output->length < capacity);
    memcpy(buffer + length, output->text, output->length + 1);
    length += output->length;
    if (output->output->finished) {
      *end = output;
      return length;
    }
    headrace_text_output_release(output);
  }
}

static void test_stream(headrace_engine* engine) {
  headrace_sampling_params sampling;
  headrace_sampling_params_init(&sampling, sizeof sampling);
  sampling.temperature = 0;
  sampling.max_tokens = 60;
  headrace_request_options request;
  headrace_request_options_init(&request, sizeof request);
  request.sampling = &sampling;
  headrace_text_options options;
  headrace_text_options_init(&options, sizeof options);
  CHECK(options.skip_special_tokens == 1);
  options.request = &request;
  headrace_text_stream* stream = NULL;
  CHECK_OK(headrace_engine_submit_chat(engine, "m", kMessages, &options, NULL, &stream));
  char chat[1000], text[1000];
  headrace_text_output* end = NULL;
  const size_t length = read_text(stream, chat, sizeof chat, &end);
  CHECK(length > 2 && strstr(chat, "19") != NULL);
  CHECK(end->output->finish_reason == HEADRACE_FINISH_STOP && end->stop_string == NULL);
  CHECK(end->output->stop_token >= 0);
  headrace_text_output_release(end);
  headrace_request* beneath = NULL;
  CHECK_OK(headrace_text_stream_request(stream, &beneath));
  headrace_request_stats stats;
  stats.struct_size = sizeof stats;
  CHECK_OK(headrace_request_get_stats(beneath, &stats));
  CHECK(stats.status == HEADRACE_REQUEST_FINISHED && stats.prompt_tokens > 5);
  headrace_request_release(beneath);
  headrace_text_stream_release(stream);

  const char* stops[] = {"9"};
  options.stop = stops;
  options.num_stop = 1;
  CHECK_OK(headrace_engine_submit_text(engine, "m", kPrompt, HEADRACE_TO_NUL, &options, &stream));
  read_text(stream, text, sizeof text, &end);
  CHECK(strncmp(text, chat, strlen(text)) == 0 && chat[strlen(text)] == '9');
  CHECK(strcmp(end->stop_string, "9") == 0);
  headrace_text_output_release(end);
  CHECK_OK(headrace_text_stream_cancel(stream));
  headrace_text_stream_release(stream);

  /* Bad ones cost nothing. */
  const int32_t ids[] = {1};
  stream = NULL;
  CHECK(headrace_engine_submit_chat(engine, "m", "[", NULL, NULL, &stream) ==
        HEADRACE_INVALID_ARGUMENT);
  CHECK(headrace_engine_submit_text(engine, "m", "\xff", 1, &options, &stream) ==
        HEADRACE_INVALID_ARGUMENT);
  CHECK(headrace_engine_submit_chat(engine, "none", kMessages, NULL, NULL, &stream) ==
        HEADRACE_NOT_FOUND);
  request.prompt_token_ids = ids;
  request.num_prompt_token_ids = 1;
  CHECK(headrace_engine_submit_chat(engine, "m", kMessages, &options, NULL, &stream) ==
        HEADRACE_INVALID_ARGUMENT);
  options.reserved = 1;
  CHECK(headrace_engine_submit_chat(engine, "m", kMessages, &options, NULL, &stream) ==
        HEADRACE_UNSUPPORTED);
  CHECK(stream == NULL);
}

static void test_grammar(headrace_engine* engine) {
  headrace_tokenizer* tokenizer = NULL;
  headrace_grammar_compiler* compiler = NULL;
  headrace_grammar *schema = NULL, *regex = NULL, *none = NULL;
  headrace_grammar_options limits;
  headrace_grammar_options_init(&limits, sizeof limits);
  CHECK(limits.library == NULL && limits.max_grammar_bytes == 64 << 10);
  CHECK_OK(headrace_engine_tokenizer(engine, "m", &tokenizer));
  CHECK_OK(headrace_grammar_compiler_create(tokenizer, &limits, &compiler));
  headrace_tokenizer_release(tokenizer);
  CHECK_OK(headrace_grammar_compile(compiler, HEADRACE_JSON_SCHEMA, "{\"enum\": [{\"sum\": 19}]}",
                                    &schema));
  CHECK_OK(headrace_engine_compile_grammar(engine, "m", HEADRACE_REGEX, "[a-c]{7}", &regex));
  CHECK(headrace_grammar_compile(compiler, HEADRACE_REGEX, "(", &none) ==
        HEADRACE_INVALID_ARGUMENT);
  CHECK(headrace_grammar_compile(compiler, HEADRACE_LARK, "start: \"a\"", &none) ==
        HEADRACE_UNSUPPORTED);
  CHECK(headrace_grammar_compile(compiler, 9, "x", &none) == HEADRACE_INVALID_ARGUMENT);
  CHECK(headrace_engine_compile_grammar(engine, "none", HEADRACE_REGEX, "x", &none) ==
        HEADRACE_NOT_FOUND);
  limits.library = "/no/such/library.so";
  headrace_grammar_compiler* missing = NULL;
  CHECK_OK(headrace_engine_tokenizer(engine, "m", &tokenizer));
  CHECK(headrace_grammar_compiler_create(tokenizer, &limits, &missing) == HEADRACE_NOT_FOUND);
  headrace_tokenizer_release(tokenizer);
  headrace_grammar_compiler_release(compiler);
  CHECK(none == NULL && missing == NULL);

  headrace_request_options request;
  headrace_request_options_init(&request, sizeof request);
  headrace_text_options options;
  headrace_text_options_init(&options, sizeof options);
  options.request = &request;
  headrace_text_stream* stream = NULL;
  headrace_text_output* end = NULL;
  char text[100];
  request.grammar = schema;
  CHECK_OK(headrace_engine_submit_chat(engine, "m", kMessages, &options, NULL, &stream));
  headrace_grammar_release(schema);
  read_text(stream, text, sizeof text, &end);
  CHECK(text[0] == '{' && strstr(text, "\"sum\"") != NULL && strstr(text, "19") != NULL);
  headrace_text_output_release(end);
  headrace_text_stream_release(stream);
  request.grammar = regex;
  CHECK_OK(headrace_engine_submit_text(engine, "m", "x", 1, &options, &stream));
  CHECK(read_text(stream, text, sizeof text, &end) == 7 && strspn(text, "abc") == 7);
  headrace_text_output_release(end);
  headrace_text_stream_release(stream);

  headrace_constraint own;
  memset(&own, 0, sizeof own);
  own.struct_size = sizeof own;
  request.constraint = &own;
  CHECK(headrace_engine_submit_text(engine, "m", "x", 1, &options, &stream) ==
        HEADRACE_INVALID_ARGUMENT);
  headrace_grammar_release(regex);
}

static void test_nulls(headrace_engine* engine) {
  headrace_text* text = NULL;
  int32_t number = 0;
  const char* data = NULL;
  size_t length = 0;
  CHECK(headrace_tokenizer_load(NULL, NULL) == HEADRACE_INVALID_ARGUMENT);
  CHECK(headrace_tokenizer_encode(NULL, "x", 1, NULL, NULL) == HEADRACE_INVALID_ARGUMENT);
  CHECK(headrace_tokenizer_decode(NULL, NULL, 0, 0, &text) == HEADRACE_INVALID_ARGUMENT);
  CHECK(headrace_tokenizer_find(NULL, "x", &number) == HEADRACE_INVALID_ARGUMENT);
  CHECK(headrace_tokenizer_special(NULL, "x", &number) == HEADRACE_INVALID_ARGUMENT);
  CHECK(headrace_tokenizer_spelling(NULL, 0, &text) == HEADRACE_INVALID_ARGUMENT);
  CHECK(headrace_tokenizer_size(NULL, NULL, NULL) == HEADRACE_INVALID_ARGUMENT);
  CHECK(headrace_detokenizer_push(NULL, NULL, 0, &data, &length) == HEADRACE_INVALID_ARGUMENT);
  CHECK(headrace_detokenizer_get_state(NULL, NULL) == HEADRACE_INVALID_ARGUMENT);
  CHECK(headrace_chat_render(NULL, kMessages, NULL, &text) == HEADRACE_INVALID_ARGUMENT);
  CHECK(headrace_engine_submit_chat(engine, "m", kMessages, NULL, NULL, NULL) ==
        HEADRACE_INVALID_ARGUMENT);
  CHECK(headrace_text_stream_next(NULL, 0, NULL) == HEADRACE_INVALID_ARGUMENT);
  CHECK(headrace_text_stream_cancel(NULL) == HEADRACE_INVALID_ARGUMENT);
  CHECK(headrace_grammar_compile(NULL, 0, "x", NULL) == HEADRACE_INVALID_ARGUMENT);
  headrace_text_release(NULL);
  headrace_encoding_release(NULL);
  headrace_tokenizer_release(NULL);
  headrace_detokenizer_release(NULL);
  headrace_chat_templates_release(NULL);
  headrace_text_stream_release(NULL);
  headrace_text_output_release(NULL);
  headrace_grammar_compiler_release(NULL);
  headrace_grammar_release(NULL);
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  headrace_engine* engine = start_engine(argv[1]);
  test_tokenizer(engine, argv[1]);
  test_detokenizer(engine);
  test_templates(engine, argv[1]);
  test_stream(engine);
  test_grammar(engine);
  test_nulls(engine);
  headrace_engine_destroy(engine);
  return 0;
}
