// A folder's templates, and what becomes of a caller's messages.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cpp/chat/chat_folder.h"
#include "headrace/chat.h"

namespace headrace {
namespace {

using testing::ChatFolder;
using testing::kMessages;

/// Shows the variables as they are.
constexpr const char* kShow = "{{ messages | tojson }}";

struct Failure {
  ErrorCode code = ErrorCode::kOk;
  std::string message;
};

Failure failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

#define EXPECT_FAILS(call, expected, part)                                       \
  do {                                                                           \
    const Failure failure = failure_of([&] { (void)(call); });                   \
    EXPECT_EQ(failure.code, ErrorCode::expected) << failure.message;             \
    EXPECT_NE(failure.message.find(part), std::string::npos) << failure.message; \
  } while (false)

std::string render(const std::string& messages, const ChatOptions& options = {}) {
  static const ChatFolder folder;
  ChatOptions chat = options;
  if (chat.chat_template.empty()) chat.chat_template = kShow;
  return ChatTemplates::load(folder.path())->render(messages, chat);
}

TEST(ChatTemplates, LaterFilesWin) {
  const ChatFolder folder;
  const auto names = [&] { return ChatTemplates::load(folder.path())->names(); };
  const auto text = [&](const char* name) {
    return ChatTemplates::load(folder.path())->find(name).value_or("(none)");
  };
  EXPECT_TRUE(names().empty());
  folder.write("tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_EQ(text("default"), "one");
  folder.write("tokenizer_config.json", R"({"chat_template": [
      {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"},
      {"name": "rag", "template": "rag"}]})");
  EXPECT_EQ(names(), (std::vector<std::string>{"default", "rag", "tool_use"}));
  folder.write("chat_template.json", R"({"chat_template": "two"})");
  EXPECT_EQ(text("default"), "two");
  folder.write("additional_chat_templates/rag.jinja", "more");
  folder.write("additional_chat_templates/notes.txt", "no template");
  folder.write("chat_template.jinja", "three");
  EXPECT_EQ(text("default"), "three");
  EXPECT_EQ(text("rag"), "more");
  EXPECT_EQ(text("tool_use"), "tools");
  EXPECT_EQ(text("notes"), "(none)");
}

TEST(ChatTemplates, BadFoldersAreNamed) {
  EXPECT_FAILS(ChatTemplates::load("/no/such/folder"), kNotFound, "/no/such/folder");
  const ChatFolder folder;
  const auto load = [&] { return ChatTemplates::load(folder.path()); };
  EXPECT_FAILS(load()->render(kMessages), kNotFound, "no default chat template");
  for (const char* bad : {R"([{"name": "x"}])", R"([{"name": 1, "template": "x"}])", "[3]"}) {
    folder.write("chat_template.json", R"({"chat_template": )" + std::string(bad) + "}");
    EXPECT_FAILS(load(), kCorruptFile, "chat_template.json");
  }
  folder.write("chat_template.json", R"({"chat_template")");
  EXPECT_FAILS(load(), kCorruptFile, "chat_template.json");
  folder.write("chat_template.json", "{}");
  folder.write("chat_template.jinja", "{% if %}");
  EXPECT_FAILS(load()->render(kMessages), kInvalidArgument, "line 1");
  folder.write("chat_template.jinja", "\xFF");
  EXPECT_FAILS(load(), kCorruptFile, "chat_template.jinja is not UTF-8 at byte 0");
  {
    const ChatFolder other;
    other.write("additional_chat_templates/\xFF.jinja", "x");
    EXPECT_FAILS(ChatTemplates::load(other.path()), kCorruptFile, "name is not UTF-8");
  }
  for (int i = 0; i < 101; ++i) {
    folder.write("additional_chat_templates/" + std::to_string(i) + ".jinja", "x");
  }
  EXPECT_FAILS(load(), kLimitExceeded, "100");
}

TEST(ChatTemplates, ChoosesAsTheCallerAndTheToolsSay) {
  const ChatFolder folder;
  folder.write("chat_template.json", R"({"chat_template": [
      {"name": "default", "template": "plain"},
      {"name": "tool_use", "template": "{{ tools | tojson }}"}]})");
  const auto templates = ChatTemplates::load(folder.path());
  EXPECT_EQ(templates->render(kMessages), "plain");
  const std::string tools = R"([{"function": {"name": "f"}}, {"function": {"name": "g"},
                                 "type": "function"}])";
  EXPECT_EQ(templates->render(kMessages, {.tools_json = tools}),
            R"([{"type": "function", "function": {"name": "f"}}, )"
            R"({"function": {"name": "g"}, "type": "function"}])");
  for (const char* none : {"", "null", "[]", " [ ] "}) {
    EXPECT_EQ(templates->render(kMessages, {.tools_json = none}), "plain") << none;
  }
  EXPECT_EQ(templates->render(kMessages, {.chat_template = "tool_use"}), "null");
  EXPECT_EQ(templates->render(kMessages, {.chat_template = "{{ 1 + 1 }}"}), "2");
  EXPECT_EQ(templates->variables({.tools_json = tools}), std::vector<std::string>{"tools"});
  EXPECT_FAILS(templates->render(kMessages, {.chat_template = "tool_uses"}), kInvalidArgument,
               "default, tool_use");
  EXPECT_FAILS(templates->render(kMessages, {.tools_json = tools, .chat_template = "default"}),
               kInvalidArgument, "doesn't show them");
  for (const char* bad : {"{}", "[1]", "[{}]", R"([{"function": {"name": ""}}])",
                          R"([{"type": "custom", "function": {"name": "f"}}])", "[", "\xFF"}) {
    EXPECT_FAILS(templates->render(kMessages, {.tools_json = bad}), kInvalidArgument, "tools");
  }
}

TEST(ChatTemplates, VariablesAreTheFoldersAndTheCallers) {
  const ChatFolder folder;
  folder.write("tokenizer_config.json",
               R"({"bos_token": "<\"\n>", "eos_token": {"content": "E"}})");
  const auto templates = ChatTemplates::load(folder.path());
  const auto shown = [&](const std::string& text, const ChatOptions& options = {}) {
    ChatOptions chat = options;
    chat.chat_template = text;
    return templates->render(kMessages, chat);
  };
  EXPECT_EQ(shown("{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}"), "<\"\n>EFalse");
  EXPECT_EQ(shown("{{ add_generation_prompt }}{{ tools }}"), "TrueNone");
  EXPECT_EQ(shown("{{ add_generation_prompt }}", {.add_generation_prompt = false}), "False");
  EXPECT_EQ(shown("{{ enable_thinking }}"), "True");
  EXPECT_EQ(shown("{{ enable_thinking }}", {.variables_json = R"({"enable_thinking": false})"}),
            "False");
  // Every digit goes on as it was given.
  EXPECT_EQ(shown("{{ n }}", {.variables_json = R"({"n": 123456789012345678901})"}),
            "123456789012345678901");
  EXPECT_FAILS(shown("{{ x }}", {.variables_json = R"({"y": 1})"}), kInvalidArgument, "\"y\"");
  for (const char* name : {"messages", "bos_token", "pad_token", "add_generation_prompt"}) {
    const std::string json = "{\"" + std::string(name) + "\": 1}";
    EXPECT_FAILS(shown("{{ x }}", {.variables_json = json}), kInvalidArgument, name);
  }
  for (const char* bad : {"[]", "1", "{", "{\"x\": 1} 2", "{'x': 1}"}) {
    EXPECT_FAILS(shown("{{ x }}", {.variables_json = bad}), kInvalidArgument, "variables");
  }
}

TEST(ChatTemplates, ContentIsOneText) {
  EXPECT_EQ(render(R"([{"role": "user", "content": "a\u00e9\n\"\\"}])"),
            R"([{"role": "user", "content": "aé\n\"\\"}])");
  EXPECT_EQ(render(R"([{"content": [{"type": "text", "text": "a"}, "b\t"], "role": "user"}])"),
            R"([{"content": "a\nb\t", "role": "user"}])");
  EXPECT_EQ(render(R"([{"role": "user", "content": null}, {"role": "user", "content": []}])"),
            R"([{"role": "user", "content": ""}, {"role": "user", "content": ""}])");
  EXPECT_EQ(render(R"([{"role": "user", "content": "1", "content": "2"}])"),
            R"([{"role": "user", "content": "2"}])");
  EXPECT_EQ(render(R"([{"role": "user", "content": "\u0000"}])"),
            "[{\"role\": \"user\", \"content\": \"\\u0000\"}]");
}

TEST(ChatTemplates, AMessageIsWrittenInJson) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  all += "\u00e9\U0001F600";
  const std::string content = "{{ messages[0].content }}";
  EXPECT_EQ(render("[" + chat_message("user", all) + "]", {.chat_template = content}), all);
  EXPECT_FAILS(chat_message("user", "a\xFF"), kInvalidArgument, "byte 1");
  EXPECT_FAILS(chat_message("\xFF", "a"), kInvalidArgument, "role");
}

TEST(ChatTemplates, ToolCallsHaveArgumentsThatAreObjects) {
  const auto arguments = [](const std::string& given) {
    const std::string shown = render(R"([{"role": "assistant", "tool_calls": [{"id": "1",
        "function": {"name": "f", "arguments": )" +
                                     given + R"(}, "type": "function"}]}])");
    const std::string before = R"([{"role": "assistant", "tool_calls": [{"id": "1", "function": )"
                               R"({"name": "f", "arguments": )";
    const std::string after = R"(}, "type": "function"}], "content": ""}])";
    EXPECT_TRUE(shown.starts_with(before) && shown.ends_with(after)) << shown;
    return shown.substr(before.size(), shown.size() - before.size() - after.size());
  };
  EXPECT_EQ(arguments(R"({"a": 1.0})"), R"({"a": 1.0})");
  EXPECT_EQ(arguments(R"("{\"a\": \"\\u00e9\"}")"), R"({"a": "é"})");
  EXPECT_EQ(arguments(R"("\"{\\\"a\\\": 1}\"")"), R"({"a": 1})");
  for (const char* none : {"null", "\"\"", "\"  \"", "\"null\""}) {
    EXPECT_EQ(arguments(none), "{}") << none;
  }
  EXPECT_EQ(arguments(R"(" {\"a\": \"b\"}\n ")"), R"({"a": "b"})");
  for (const char* broken : {R"("{\"a\": ")", R"("{")", R"("{]")", R"("{a}")", R"("\"")",
                             R"("\"a")", R"("nul")", R"("3 4")", R"("{} }")", R"("[")"}) {
    EXPECT_EQ(arguments(broken), R"({"INVALID_JSON": )" + std::string(broken) + "}");
  }
  EXPECT_EQ(arguments("[1]"), R"({"INVALID_JSON": [1]})");
  EXPECT_EQ(arguments("3"), R"({"INVALID_JSON": 3})");
  const std::string deep = std::string(200, '[') + std::string(200, ']');
  EXPECT_EQ(arguments('"' + deep + '"'), R"({"INVALID_JSON": ")" + deep + "\"}");

  EXPECT_EQ(
      render(R"([{"role": "assistant", "content": "", "tool_calls": [{"function": {}}, 7]}])"),
      R"([{"role": "assistant", "content": "", )"
      R"("tool_calls": [{"function": {"arguments": {}}}, 7]}])");
}

TEST(ChatTemplates, ReasoningHasOneName) {
  EXPECT_EQ(
      render(R"([{"role": "assistant", "content": "a", "thinking": "t"}])"),
      R"([{"role": "assistant", "content": "a", "thinking": "t", "reasoning_content": "t"}])");
  EXPECT_EQ(
      render(R"([{"role": "assistant", "reasoning_content": null, "reasoning": "r",
                        "content": "a"}])"),
      R"([{"role": "assistant", "reasoning_content": "r", "reasoning": "r", "content": "a"}])");
  EXPECT_EQ(
      render(R"([{"role": "assistant", "reasoning_content": "c", "reasoning": "r",
                        "content": "a"}])"),
      R"([{"role": "assistant", "reasoning_content": "c", "reasoning": "r", "content": "a"}])");
}

TEST(ChatTemplates, BadMessagesAreNamed) {
  for (const char* bad :
       {"", " ", "[", "[{]", "nul", "[1] 2", "\xFF", "[\"\xC3\"]", "[\"\\ud800\"]"}) {
    EXPECT_FAILS(render(bad), kInvalidArgument, "messages: not valid JSON");
  }
  EXPECT_FAILS(render(std::string("[{\"role\": \"a\0\"}]", 16)), kInvalidArgument,
               "not valid JSON");
  for (const char* bad : {"{}", "\"x\"", "null", "[]", "3"}) {
    EXPECT_FAILS(render(bad), kInvalidArgument, "messages must");
  }
  for (const char* bad :
       {"1", "[]", "{}", R"({"role": 1, "content": "x"})", R"({"role": "user"})",
        R"({"role": "", "content": "x"})", R"({"role": "user", "content": 3})",
        R"({"role": "user", "content": [3]})", R"({"role": "user", "content": [{}]})",
        R"({"role": "user", "content": [{"type": "text"}]})",
        R"({"role": "user", "content": [{"type": "smell"}]})",
        R"({"role": "user", "tool_calls": []})", R"({"role": "user", "tool_calls": {}})"}) {
    const std::string messages = R"([{"role": "user", "content": "x"}, )" + std::string(bad) + "]";
    EXPECT_FAILS(render(messages), kInvalidArgument, "messages[1]: ");
  }
  for (const char* kind : {"image_url", "video", "input_audio"}) {
    const std::string part = R"([{"role": "user", "content": [{"type": ")" + std::string(kind);
    EXPECT_FAILS(render(part + "\"}]}]"), kUnsupported, kind);
  }
  EXPECT_FAILS(render(kMessages, {.chat_template = "{{ raise_exception('no') }}"}),
               kInvalidArgument, "no");
}

TEST(ChatTemplates, TooMuchIsRefused) {
  const ChatFolder folder;
  const auto small = ChatTemplates::load(folder.path(), {.max_variables_bytes = 1000});
  const std::string long_one(1000, ' ');
  EXPECT_FAILS(small->render(kMessages + long_one, {.chat_template = kShow}), kLimitExceeded,
               "messages");
  EXPECT_FAILS(small->render(kMessages, {.tools_json = long_one + "[]", .chat_template = kShow}),
               kLimitExceeded, "tools");
  EXPECT_FAILS(render(std::string(100'000, '[')), kLimitExceeded, "messages: JSON is nested");
  const auto lists = [](int levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  const auto given = [&](int levels) {
    render(R"([{"role": "user", "content": "", "x": )" + lists(levels) + "}]");
  };
  given(96);
  EXPECT_FAILS(given(97), kLimitExceeded, "messages: JSON is nested too deeply");
  const auto call = [&](int levels) {
    render(R"([{"role": "assistant", "tool_calls": [{"function": {"arguments": )" + lists(levels) +
           "}}]}]");
  };
  call(93);
  EXPECT_FAILS(call(94), kLimitExceeded, "messages: JSON is nested too deeply");
  const auto tools = [&](int levels) {
    render(kMessages, {.tools_json = R"([{"function": {"name": "f", "x": )" + lists(levels) + "}}]",
                       .chat_template = "{{ tools }}"});
  };
  tools(96);
  EXPECT_FAILS(tools(97), kLimitExceeded, "tools: JSON is nested too deeply");
  const auto variables = [&](int levels) {
    render(kMessages,
           {.chat_template = "{{ x }}", .variables_json = "{\"x\": " + lists(levels) + "}"});
  };
  variables(99);
  EXPECT_FAILS(variables(100), kLimitExceeded, "variables: JSON is nested too deeply");
}

TEST(ChatTemplates, AnAnswerGoesOn) {
  const std::string answer = R"([{"role": "user", "content": "Hi"},
                                 {"role": "assistant", "content": "Hel"}])";
  const std::string shows =
      "{% for m in messages %}<{{ m.content }}>{% endfor %}"
      "{% if add_generation_prompt %}!{% endif %}";
  const ChatOptions goes_on{.chat_template = shows, .continue_final_message = true};
  EXPECT_EQ(render(answer, goes_on), "<Hi><Hel");
  EXPECT_EQ(render(answer, {.chat_template = shows}), "<Hi><Hel>!");
  EXPECT_FAILS(render(kMessages, goes_on), kInvalidArgument, "continue_final_message");
  EXPECT_FAILS(render(answer, {.chat_template = "{{ 1 }}", .continue_final_message = true}),
               kInvalidArgument, "continue_final_message");
}

}  // namespace
}  // namespace headrace
