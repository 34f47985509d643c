// A chat in a terminal: chat_cpp MODEL [SCHEMA | --tool]. Each line of the input is a user's turn.
//
// With a JSON schema, answers are JSON that fits it. With --tool the model calls a tool, which adds
// two numbers, before it answers.

#include <headrace/chat.h>
#include <headrace/grammar.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

constexpr const char* kTool = R"([{"type": "function", "function": {"name": "add", "parameters":
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}}])";
constexpr const char* kArguments = R"(\{"a": -?[0-9]{1,6}, "b": -?[0-9]{1,6}\})";

struct Chat {
  headrace::Engine engine;
  std::string messages, tools;  // in JSON

  void add(const std::string& message) { messages += (messages.empty() ? "" : ", ") + message; }

  /// What the model says next, shown as it comes.
  std::string reply(std::shared_ptr<headrace::TokenConstraint> rule) {
    headrace::TextOptions options{.stop = {"\nUser:"}};
    options.request.sampling = {.temperature = 0, .max_tokens = 200};
    options.request.constraint = std::move(rule);
    headrace::TextStream stream =
        engine.submit_chat("model", "[" + messages + "]", options, {.tools_json = tools});
    std::string text;
    for (headrace::TextOutput out; !out.finished; text += out.text) {
      out = stream.next();
      std::cout << out.text << out.error_message << std::flush;
    }
    std::cout << std::endl;
    return text;
  }

  void call_tool(const std::shared_ptr<headrace::TokenConstraint>& rule) {
    const std::string arguments = reply(rule);
    add(R"({"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "add", )"
        R"("arguments": )" +
        arguments + "}}]}");
    int a = 0, b = 0;
    std::sscanf(arguments.c_str(), R"({"a": %d, "b": %d})", &a, &b);
    add(headrace::chat_message("tool", std::to_string(a + b)));
  }
};

int main(int argc, char** argv) try {
  if (argc != 2 && argc != 3) return std::cerr << "chat_cpp MODEL [SCHEMA | --tool]\n", 2;
  Chat chat;
  chat.engine.install_model("model", {.path = argv[1]});
  chat.engine.start_model("model");
  const std::string mode = argc == 3 ? argv[2] : "";
  std::shared_ptr<headrace::TokenConstraint> call, answer;
  if (mode == "--tool") {
    chat.tools = kTool;
    call = chat.engine.compile_grammar("model", headrace::GrammarKind::kRegex, kArguments);
  } else if (!mode.empty()) {
    answer = chat.engine.compile_grammar("model", headrace::GrammarKind::kJsonSchema, mode);
  }
  for (std::string line; std::getline(std::cin, line);) {
    chat.add(headrace::chat_message("user", line));
    if (call) chat.call_tool(call);
    chat.add(headrace::chat_message("assistant", chat.reply(answer)));
  }
} catch (const headrace::Error& error) {
  std::cerr << headrace::error_code_name(error.code()) << ": " << error.what() << '\n';
  return 1;
}
