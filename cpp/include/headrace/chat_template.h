#pragma once

// Chat templates: a conversation made one text, as the model was trained on it. A template is
// Jinja, rendered as jinja2 3.1 in transformers' sandbox does it. It comes with a checkpoint and is
// not trusted: what it may cost is bounded, and nothing of it reaches beyond its variables.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/abi.h"

namespace headrace::text::jinja {
class VariablesBuilder;
}

namespace headrace::inline v0 {

/// ChatTemplate refuses what is out of range (kInvalidArgument): 4 GiB and more, a depth below 1 or
/// over 200.
struct TemplateLimits {
  size_t max_template_bytes = 1u << 20;
  size_t max_variables_bytes = 16u << 20;
  size_t max_output_bytes = 16u << 20;
  /// What a rendering may hold at once, its output aside.
  size_t max_memory_bytes = 64u << 20;
  /// One for each part of the template that is evaluated, and one for each 16 bytes that it reads
  /// or writes. No clock: the same template with the same variables always ends the same way.
  uint64_t max_steps = 30'000'000;
  /// Levels of nested expressions, blocks and calls. 200 of them take at most 256 KB of the
  /// caller's stack.
  int max_depth = 200;
};

/// A stretch of a text, in bytes.
struct TemplateSpan {
  size_t begin = 0;
  size_t end = 0;
};

struct RenderOptions {
  /// What time strftime_now shows; the system's if empty.
  std::function<std::chrono::system_clock::time_point()> clock;
  /// Gets where the {% generation %} blocks stand in the text; may be null.
  std::vector<TemplateSpan>* generated = nullptr;
};

/// Takes the variables of a rendering from a caller that has them as values of its own, which may
/// be more than JSON has: tuples, and keys of any kind. It begins in the dict of all variables. In
/// a dict, keys and values alternate:
///
///   variables.text("messages");
///   variables.begin_list();
///   variables.begin_dict(), variables.text("role"), variables.text("user"), variables.end();
///   variables.end();
///
/// Throws Error: kLimitExceeded, and kInvalidArgument for what isn't allowed at its place: a name
/// that is no text, an end without a begin, a list or dict as a key.
class HEADRACE_API TemplateVariables {
 public:
  explicit TemplateVariables(text::jinja::VariablesBuilder& builder) : builder_(builder) {}

  void none();
  void boolean(bool value);
  void integer(int64_t value);
  /// Beyond 64 bits: decimal digits, "-" before them. Templates can print it and little more.
  void big_integer(std::string_view digits);
  void real(double value);
  /// UTF-8. A lone surrogate, as three bytes, is a character as others and comes out so.
  void text(std::string_view value);
  void begin_list();
  void begin_tuple();
  void begin_dict();
  void end();

 private:
  text::jinja::VariablesBuilder& builder_;
};

/// A compiled template. Doesn't change: any thread may use it, many at a time.
class HEADRACE_API ChatTemplate {
 public:
  /// Throws Error: kInvalidArgument (the message says what is wrong in which line), kUnsupported
  /// (jinja2 can do what it asks for, this can't), kLimitExceeded.
  explicit ChatTemplate(std::string_view text, const TemplateLimits& limits = {});

  /// The variables that it reads and doesn't set itself, sorted.
  const std::vector<std::string>& variables() const noexcept;

  /// `variables`: a JSON object: messages, tools, add_generation_prompt, bos_token and so on.
  /// Throws Error: kInvalidArgument (the template's own refusal, or a line and what is wrong in
  /// it), kCorruptFile (the JSON), kUnsupported, kLimitExceeded.
  std::string render(std::string_view variables, const RenderOptions& options = {}) const;

  /// As above, with the variables that `give` gives. What it throws goes to the caller.
  std::string render(const std::function<void(TemplateVariables&)>& give,
                     const RenderOptions& options = {}) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace headrace::inline v0
