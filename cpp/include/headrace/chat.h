#pragma once

// From text to text: conversations and prompts in, text out as it is generated. A model's folder
// has what that takes, a tokenizer and chat templates.
//
//   headrace::TextStream answer = engine.submit_chat(
//       "m", R"([{"role": "user", "content": "Hello"}])", {.stop = {"\n\n"}});
//   for (headrace::TextOutput out; !out.finished;) {
//     out = answer.next();
//     std::cout << out.text << std::flush;
//   }

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/abi.h"
#include "headrace/chat_template.h"
#include "headrace/engine.h"
#include "headrace/request.h"
#include "headrace/result_queue.h"

namespace headrace::internal {
class TextReader;
}

namespace headrace::inline v0 {

class Tokenizer;

/// {"role": ..., "content": ...} in JSON, for the list of messages. Throws Error(kInvalidArgument)
/// for what isn't UTF-8.
HEADRACE_API std::string chat_message(std::string_view role, std::string_view content);

/// How a conversation is rendered.
struct ChatOptions {
  /// What the model may call: a JSON list of {"type": "function", "function": {"name", ...}}. "":
  /// none.
  std::string tools_json{};
  /// The name of one of the folder's templates, or a template. "": the folder's own, which is
  /// "tool_use" if there are tools, else "default".
  std::string chat_template{};
  /// More variables of the template, as a JSON object: those that it reads. "enable_thinking" is
  /// true unless given.
  std::string variables_json{};
  /// The text ends where the model's answer begins.
  bool add_generation_prompt = true;
  /// It ends with the last message, an answer that goes on; add_generation_prompt has no effect.
  bool continue_final_message = false;
};

/// The chat templates of a model folder: of tokenizer_config.json, chat_template.json,
/// chat_template.jinja and additional_chat_templates; or of a .gguf file's metadata. Any thread may
/// use one. They come with a checkpoint and are bounded (headrace/chat_template.h).
class HEADRACE_API ChatTemplates {
 public:
  /// `folder` may be the path of a .gguf file. One without any gives an empty one. Throws Error
  /// that names the file: kNotFound (the folder), kCorruptFile, kLimitExceeded, kIo.
  static std::shared_ptr<const ChatTemplates> load(const std::string& folder,
                                                   const TemplateLimits& limits = {});
  ~ChatTemplates();
  ChatTemplates(const ChatTemplates&) = delete;
  ChatTemplates& operator=(const ChatTemplates&) = delete;

  /// Sorted; the folder's own is "default".
  std::vector<std::string> names() const;
  /// The template of that name.
  std::optional<std::string> find(std::string_view name) const;

  /// The variables that the template for these options reads, sorted: "tools" among them if it
  /// shows tools. Throws Error as render does.
  std::vector<std::string> variables(const ChatOptions& options = {}) const;

  /// A conversation as the model was trained to read it. The template knows the folder's special
  /// tokens ("bos_token", ...).
  ///
  /// `messages_json`: a JSON list of {"role", "content"}, as in OpenAI's API. Content is a string
  /// or a list of parts of text, which are joined by newlines; arguments of tool calls become
  /// objects; "reasoning" and "thinking" of answers are "reasoning_content", too.
  /// Throws Error: kInvalidArgument (messages, tools or variables; what the template doesn't read;
  /// what ChatTemplate::render throws), kNotFound (no template), kUnsupported (pictures, clips and
  /// sounds; templates), kLimitExceeded.
  std::string render(std::string_view messages_json, const ChatOptions& options = {}) const;

 private:
  class HEADRACE_LOCAL Impl;
  explicit ChatTemplates(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

/// A request from text to text.
struct TextOptions {
  /// Texts that end the output before they begin. At most 1024 of 65,536 bytes in all. They are
  /// found as it is read: one that nobody reads goes on.
  std::vector<std::string> stop{};
  /// The stop string that ends the text is part of it.
  bool include_stop_string = false;
  /// Special tokens have no text.
  bool skip_special_tokens = true;
  /// The prompt gets the special tokens that the tokenizer puts around a text. Chat templates have
  /// their own.
  bool add_special_tokens = false;
  /// How it is sampled, and so on. The prompt's ids are made of the text; `pooling` and `media`
  /// are for ids alone. With a `constraint` (headrace/grammar.h) the output is a text of its own.
  RequestOptions request{};
};

/// What came since the last read.
struct TextOutput : Output {
  std::string text;         ///< in whole characters
  std::string stop_string;  ///< the one that ended it (finish_reason kStop); "": none
};

/// An output as text. Copies are the same stream. Any thread may call any method; each call gets
/// what no other one got. Stays valid when the model and the engine are gone. Once the last copy is
/// dropped, nobody can read the text any more: an unfinished request is cancelled.
class HEADRACE_API TextStream {
 public:
  explicit TextStream(std::shared_ptr<internal::TextReader> reader);

  /// Waits for new output and takes all of it. Its text may be "" while later tokens could still
  /// change it. After the last output: a finished one without tokens and text, at once, every time.
  /// Text that can't be made ends the output with finish_reason kError.
  TextOutput next();
  /// The same; nullopt if nothing came within `timeout`.
  std::optional<TextOutput> next(std::chrono::nanoseconds timeout);
  /// nullopt if nothing new is there, or another thread is waiting for it; so, too, once the last
  /// output has been taken.
  std::optional<TextOutput> next_nowait();

  /// Ends the request with kAbort; what it generated stays readable. Returns at once.
  void cancel();
  /// The request beneath: its id, seed, statistics, and notice of new output. Output that is read
  /// from its queue doesn't come here. A stop string cancels it.
  const Request& request() const noexcept;

 private:
  std::shared_ptr<internal::TextReader> reader_;
};

}  // namespace headrace::inline v0
