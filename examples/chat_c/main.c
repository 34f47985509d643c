/* A chat in a terminal, in C: chat_c MODEL [SCHEMA | --tool]. Each line of the input is a turn of
 * the user. With a JSON schema, answers are JSON that fits it; with --tool the model calls a tool,
 * which adds two numbers, before it answers. */

#include <headrace/c_text.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char kTool[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": "
    "\"integer\"}}}}}]";
static const char kArguments[] = "\\{\"a\": -?[0-9]{1,6}, \"b\": -?[0-9]{1,6}\\}";

static headrace_engine* engine;
static char messages[1 << 20] = "[]"; /* in JSON */
static char text[1 << 16];            /* of the message that is made */

static void ok(headrace_code code) {
  if (code == HEADRACE_OK) return;
  fprintf(stderr, "%s: %s\n", headrace_code_name(code), headrace_last_error_message());
  exit(1);
}

/* A message that doesn't fit is cut, and refused when it is sent. */
static void add(const char* message) {
  char* end = strrchr(messages, ']');
  if (end == NULL) return; /* one before has been cut */
  snprintf(end, sizeof messages - (size_t)(end - messages), "%s%s]", end > messages + 1 ? ", " : "",
           message);
}

static void add_text(const char* role) {
  headrace_text* message;
  ok(headrace_chat_message(role, text, HEADRACE_TO_NUL, &message));
  add(message->data);
  headrace_text_release(message);
}

/* What the model says next, shown as it comes. */
static void reply(const headrace_text_options* options, const headrace_chat_options* chat) {
  headrace_text_stream* stream;
  headrace_text_output* out;
  ok(headrace_engine_submit_chat(engine, "model", messages, options, chat, &stream));
  text[0] = '\0';
  for (int32_t finished = 0; !finished; headrace_text_output_release(out)) {
    ok(headrace_text_stream_next(stream, HEADRACE_FOREVER, &out));
    finished = out->output->finished;
    printf("%s%s", out->text, out->output->error_message);
    fflush(stdout);
    strncat(text, out->text, sizeof text - 1 - strlen(text));
  }
  puts("");
  headrace_text_stream_release(stream);
}

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) return fprintf(stderr, "chat_c MODEL [SCHEMA | --tool]\n"), 2;
  headrace_model_options model;
  headrace_model_options_init(&model, sizeof model);
  model.path = argv[1];
  ok(headrace_engine_create(NULL, &engine));
  ok(headrace_engine_install_model(engine, "model", &model));
  ok(headrace_engine_start_model(engine, "model"));
  const int calls = argc == 3 && strcmp(argv[2], "--tool") == 0;
  headrace_grammar* grammar = NULL;
  if (argc == 3) {
    ok(headrace_engine_compile_grammar(engine, "model",
                                       calls ? HEADRACE_REGEX : HEADRACE_JSON_SCHEMA,
                                       calls ? kArguments : argv[2], &grammar));
  }
  headrace_sampling_params sampling;
  headrace_sampling_params_init(&sampling, sizeof sampling);
  sampling.temperature = 0;
  sampling.max_tokens = 200;
  headrace_request_options request;
  headrace_request_options_init(&request, sizeof request);
  request.sampling = &sampling;
  const char* stop[] = {"\nUser:"};
  headrace_text_options options;
  headrace_text_options_init(&options, sizeof options);
  options.request = &request;
  options.stop = stop;
  options.num_stop = 1;
  headrace_chat_options chat;
  headrace_chat_options_init(&chat, sizeof chat);
  if (calls) chat.tools_json = kTool;
  while (fgets(text, sizeof text, stdin) != NULL) {
    text[strcspn(text, "\n")] = '\0';
    add_text("user");
    request.grammar = grammar;
    reply(&options, &chat);
    if (calls) {
      char call[sizeof text];
      int a = 0, b = 0;
      snprintf(call, sizeof call,
               "{\"role\": \"assistant\", \"tool_calls\": [{\"type\": \"function\", \"function\": "
               "{\"name\": \"add\", \"arguments\": %.200s}}]}",
               text);
      add(call);
      sscanf(text, "{\"a\": %d, \"b\": %d}", &a, &b);
      snprintf(text, sizeof text, "%d", a + b);
      add_text("tool");
      request.grammar = NULL;
      reply(&options, &chat);
    }
    add_text("assistant");
  }
  headrace_grammar_release(grammar);
  headrace_engine_destroy(engine);
  return 0;
}
