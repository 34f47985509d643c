// Requests from text to text, over a model that says what a constraint makes it say.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cpp/chat/chat_folder.h"
#include "fakes/fake_engine.h"
#include "fakes/fake_model.h"
#include "headrace/chat.h"
#include "headrace/grammar.h"
#include "headrace/text.h"

namespace headrace {
namespace {

using namespace std::chrono_literals;
using testing::byte_ids;
using testing::ChatFolder;
using testing::FakeEngine;
using testing::kMessages;
using testing::says;

constexpr const char* kTemplate =
    "{{ bos_token }}{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}";

ModelOptions options_of(const ChatFolder& folder) {
  ModelOptions options = FakeEngine::default_options();
  options.path = folder.path();
  return options;
}

class TextStreams : public ::testing::Test {
 protected:
  TextStreams() {
    folder_.write_tokenizer();
    folder_.write("chat_template.jinja", kTemplate);
  }

  TextOptions saying(std::string_view text) const {
    TextOptions options;
    options.request.sampling = {.temperature = 0, .max_tokens = 100};
    options.request.constraint = says(text);
    return options;
  }
  TextStream chat(TextOptions options, const ChatOptions& how = {}) {
    return engine().submit_chat("m", kMessages, std::move(options), how);
  }
  Engine& engine() { return *fake_.engine; }
  testing::FakeControl& control() { return *fake_.control; }

  ChatFolder folder_;
  FakeEngine fake_{options_of(folder_), {.vocab_size = ChatFolder::kVocabulary}};
};

/// All that comes, as one output.
TextOutput read_all(TextStream stream) {
  TextOutput all;
  for (;;) {
    TextOutput next = stream.next();
    next.text = all.text + next.text;
    next.token_ids.insert(next.token_ids.begin(), all.token_ids.begin(), all.token_ids.end());
    next.logprobs.insert(next.logprobs.begin(), all.logprobs.begin(), all.logprobs.end());
    all = std::move(next);
    if (all.finished) return all;
  }
}

ErrorCode code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_STRNE(error.what(), "");
    return error.code();
  }
  return ErrorCode::kOk;
}

TEST_F(TextStreams, AConversationIsAnswered) {
  const TextStream stream = chat(saying("Hello, w\u00f6rld"));
  const TextOutput output = read_all(stream);
  EXPECT_EQ(output.text, "Hello, w\u00f6rld");
  EXPECT_EQ(output.token_ids.back(), 0);
  EXPECT_EQ(output.finish_reason, FinishReason::kStop);
  EXPECT_EQ(output.stop_token, 0);
  EXPECT_EQ(output.stop_string, "");
  // "<s>" is one token, and the prompt has no other special ones.
  EXPECT_EQ(stream.request().results().stats().prompt_tokens, 1 + 5 + 2);
}

TEST_F(TextStreams, APromptIsTakenAsItStands) {
  TextOptions options = saying("x");
  TextStream stream = engine().submit_text("m", "<s>abc", options);
  EXPECT_EQ(read_all(stream).text, "x");
  EXPECT_EQ(stream.request().results().stats().prompt_tokens, 4);
  // The same tokens as those of the ids.
  TextOptions plain;
  plain.request.sampling = testing::greedy(40);
  const TextOutput text = read_all(engine().submit_text("m", "<s>abc", plain));
  std::vector<int32_t> prompt = byte_ids("abc");
  prompt.insert(prompt.begin(), 1);
  EXPECT_EQ(text.token_ids, testing::fake_greedy(prompt, 40, ChatFolder::kVocabulary));
  EXPECT_EQ(text.text, engine().tokenizer("m")->decode(text.token_ids, /*skip_special=*/true));
  EXPECT_EQ(text.finish_reason, FinishReason::kLength);
}

TEST_F(TextStreams, StopStringsEndTheText) {
  TextOptions options = saying("one, two, three, four");
  options.stop = {"four", "o, t"};
  options.request.sampling.logprobs = 0;
  const TextStream stream = chat(options);
  const TextOutput output = read_all(stream);
  EXPECT_EQ(output.text, "one, tw");
  EXPECT_EQ(output.stop_string, "o, t");
  EXPECT_EQ(output.finish_reason, FinishReason::kStop);
  EXPECT_EQ(output.error_code, ErrorCode::kOk);
  EXPECT_EQ(output.token_ids, byte_ids("one, two, t"));
  EXPECT_EQ(output.logprobs.size(), output.token_ids.size());
  EXPECT_TRUE(stream.request().wait(10s)) << "the request went on";

  TextStream again = stream;
  for (int i = 0; i < 2; ++i) {
    const TextOutput more = again.next();
    EXPECT_TRUE(more.finished && more.text.empty() && more.token_ids.empty());
    EXPECT_EQ(more.finish_reason, FinishReason::kStop);
    EXPECT_EQ(more.stop_string, "o, t");
    EXPECT_TRUE(again.next(0s).has_value());
    EXPECT_FALSE(again.next_nowait().has_value());
  }

  options.include_stop_string = true;
  EXPECT_EQ(read_all(chat(options)).text, "one, two, t");
  options.include_stop_string = false;
  options.request.sampling.min_tokens = 12;  // "one, two, t" is one less
  const TextOutput later = read_all(chat(options));
  EXPECT_EQ(later.text, "one, two, three, ");
  EXPECT_EQ(later.stop_string, "four");
}

TEST_F(TextStreams, AnEndWithinACharacterOrAStopStringLosesNothing) {
  TextOptions options = saying("abc");
  options.stop = {"bcd"};
  const TextOutput held = read_all(chat(options));
  EXPECT_EQ(held.text, "abc");
  EXPECT_EQ(held.stop_string, "");
  options = saying("a\xE2\x82");
  EXPECT_EQ(read_all(chat(options)).text, "a\uFFFD");
  options = saying("a");
  options.stop = {"</s>"};
  EXPECT_EQ(read_all(chat(options)).stop_string, "") << "the token that ends it has no text";
}

TEST_F(TextStreams, SpecialTokensHaveTextIfAskedFor) {
  TextOptions options = saying("");
  std::vector<int32_t> ids = byte_ids("ab");
  ids.insert(ids.begin() + 1, 1);
  options.request.constraint = says(ids);
  EXPECT_EQ(read_all(chat(options)).text, "ab");
  options.skip_special_tokens = false;
  EXPECT_EQ(read_all(chat(options)).text, "a<s>b");
}

TEST_F(TextStreams, TimeoutsAndNoWaiting) {
  control().hold();
  TextStream stream = chat(saying("abc"));
  EXPECT_FALSE(stream.next(1ms).has_value());
  EXPECT_FALSE(stream.next_nowait().has_value());
  TextOutput first;
  std::thread reader([&] { first = stream.next(); });
  control().resume();
  reader.join();
  EXPECT_FALSE(first.token_ids.empty());
  EXPECT_TRUE(stream.next(std::chrono::nanoseconds::max()).has_value());
}

TEST_F(TextStreams, SeveralReadersShareWhatComes) {
  const std::string said(80, 'x');
  TextStream stream = chat(saying(said));
  std::vector<std::string> got(3);
  std::vector<std::thread> readers;
  for (std::string& text : got) {
    readers.emplace_back([stream, &text]() mutable {
      for (TextOutput next; !next.finished; text += next.text) next = stream.next();
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(got[0] + got[1] + got[2], said);
}

TEST_F(TextStreams, CancelsWhenTheLastCopyIsDropped) {
  control().hold();
  std::optional<TextStream> stream = chat(saying("abc"));
  std::optional<TextStream> copy = stream;
  const Request request = stream->request();
  stream.reset();
  EXPECT_EQ(request.results().finish_reason(), FinishReason::kNone);
  copy.reset();
  control().resume();
  EXPECT_TRUE(request.wait(10s));
  EXPECT_EQ(request.results().finish_reason(), FinishReason::kAbort);

  control().hold();
  stream = chat(saying("abc"));
  stream->cancel();
  control().resume();
  EXPECT_EQ(read_all(*stream).finish_reason, FinishReason::kAbort);
}

TEST_F(TextStreams, OutlivesItsModel) {
  TextOptions options = saying("abcdef");
  options.stop = {"e"};
  TextStream stream = chat(options);
  stream.request().wait();
  engine().release_model("m");
  EXPECT_EQ(read_all(stream).text, "abcd");
}

TEST_F(TextStreams, TheTextOfAModelIsLoadedOnce) {
  const auto tokenizer = engine().tokenizer("m");
  const auto templates = engine().chat_templates("m");
  std::filesystem::remove_all(folder_.path());
  EXPECT_EQ(engine().tokenizer("m"), tokenizer);
  EXPECT_EQ(engine().chat_templates("m"), templates);
  EXPECT_EQ(read_all(chat(saying("ok"))).text, "ok");
  engine().release_model("m");
  EXPECT_EQ(code_of([&] { engine().tokenizer("m"); }), ErrorCode::kNotFound);
  EXPECT_EQ(tokenizer->id("<s>"), 1);
}

TEST_F(TextStreams, GrammarsHoldForTexts) {
  TextOptions options;
  options.request.sampling = {.temperature = 0, .max_tokens = 60};
  const auto compiled = [&](GrammarKind kind, const char* text) {
    return engine().compile_grammar("m", kind, text);
  };
  options.request.constraint = compiled(GrammarKind::kRegex, "[a-c]{5}\u00e9");
  const std::string five = read_all(chat(options)).text;
  EXPECT_EQ(five.size(), 7u);
  EXPECT_EQ(five.find_first_not_of("abc"), 5u);
  EXPECT_EQ(five.substr(5), "\u00e9");
  options.request.constraint = compiled(GrammarKind::kJsonSchema, R"({"enum": [{"a": 1}]})");
  EXPECT_EQ(read_all(engine().submit_text("m", "x", options)).text.front(), '{');
  EXPECT_EQ(code_of([&] { compiled(GrammarKind::kRegex, "("); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { compiled(GrammarKind::kLark, "start: x"); }), ErrorCode::kUnsupported);
}

TEST_F(TextStreams, ABadFolderFailsUntilItIsMended) {
  const ChatFolder bare;
  engine().install_model("bare", options_of(bare));
  engine().start_model("bare");
  const auto submit = [&] { engine().submit_chat("bare", kMessages, saying("x"), {}); };
  EXPECT_EQ(code_of(submit), ErrorCode::kNotFound);
  EXPECT_EQ(code_of([&] { engine().submit_text("bare", "x"); }), ErrorCode::kNotFound);
  engine().release_model("bare");
  bare.write_tokenizer();
  engine().install_model("bare", options_of(bare));
  engine().start_model("bare");
  EXPECT_EQ(read_all(engine().submit_text("bare", "x", saying("y"))).text, "y");
  EXPECT_EQ(code_of(submit), ErrorCode::kNotFound) << "no template";
}

TEST_F(TextStreams, BadRequestsAreRefusedAndCostNothing) {
  const auto code = [&](const std::function<void(TextOptions*)>& change) {
    TextOptions options = saying("x");
    change(&options);
    return code_of([&] { chat(options); });
  };
  using O = TextOptions*;
  EXPECT_EQ(code([](O o) { o->stop = {""}; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](O o) { o->stop = {"\xFF"}; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](O o) { o->stop.assign(1025, "x"); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](O o) { o->stop = {std::string(70'000, 'x')}; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](O o) { o->request.prompt_token_ids = {5}; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](O o) { o->request.media.resize(1); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](O o) { o->request.pooling.emplace(); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code([](O o) { o->request.sampling.temperature = -1; }), ErrorCode::kInvalidArgument);

  const auto text = [&](std::string_view prompt) {
    return code_of([&] { engine().submit_text("m", prompt, saying("x")); });
  };
  EXPECT_EQ(text(""), ErrorCode::kInvalidArgument);
  EXPECT_EQ(text("\xC3"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(text(std::string(300, 'x')), ErrorCode::kLimitExceeded);
  EXPECT_EQ(text(std::string(10 << 20, 'x')), ErrorCode::kLimitExceeded);
  EXPECT_EQ(text(std::string_view("a\0b", 3)), ErrorCode::kOk);
  EXPECT_EQ(code_of([&] { engine().submit_chat("m", "[3]"); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { engine().submit_chat("other", kMessages); }), ErrorCode::kNotFound);
  EXPECT_EQ(code_of([&] { chat(saying("x"), {.chat_template = "{{ 1 / 0 }}"}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { chat(saying("x"), {.chat_template = "{{ 'x' * 1000000000 }}"}); }),
            ErrorCode::kLimitExceeded);
  EXPECT_EQ(read_all(chat(saying("still here"))).text, "still here");
  engine().stop_model("m");
  EXPECT_EQ(code_of([&] { engine().submit_text("m", "x"); }), ErrorCode::kInvalidState);
}

TEST_F(TextStreams, AChildProcessIsToldSo) {
  TextStream stream = chat(saying("abc"));
  stream.request().wait();
  const pid_t child = fork();
  if (child == 0) {
    const bool told = code_of([&] { stream.next(); }) == ErrorCode::kInvalidState &&
                      code_of([&] { stream.next_nowait(); }) == ErrorCode::kInvalidState;
    _exit(told ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace headrace
