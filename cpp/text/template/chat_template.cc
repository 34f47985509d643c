#include "headrace/chat_template.h"

#include <set>

#include "base/check.h"
#include "text/template/json_values/json.h"
#include "text/template/run/evaluator.h"
#include "text/template/syntax/parser.h"
#include "text/template/syntax/scopes.h"
#include "text/unicode/utf8.h"

namespace headrace::inline v0 {

struct ChatTemplate::Impl {
  Impl(std::string_view text, const TemplateLimits& with)
      : limits(with), run(with.max_memory_bytes, with.max_steps, with.max_depth) {
    text::jinja::Parser parser(text, run);
    program = parser.parse();
    std::set<std::string> undeclared;
    text::jinja::resolve_names(&program, run, &undeclared);
    variables.assign(undeclared.begin(), undeclared.end());
  }

  TemplateLimits limits;
  text::jinja::Run run;  ///< its arena has the nodes
  text::jinja::Program program;
  std::vector<std::string> variables;
};

namespace {

[[noreturn]] void throw_as_error(const text::jinja::Fault& fault, uint32_t at) {
  if (fault.as_written) {
    throw Error(fault.code, fault.message);
  }
  const uint32_t line = fault.line != 0 ? fault.line : at;
  const std::string place = line == 0 ? "" : " (line " + std::to_string(line) + ")";
  const char* const what = fault.code == ErrorCode::kUnsupported ? "the chat template uses what "
                                                                   "Headrace doesn't have"
                                                                 : "the chat template failed";
  throw Error(fault.code, what + place + ": " + text::jinja::shortened(fault.message, 300));
}

/// Sizes of values have 32 bits, and the stack of 200 levels is what was measured.
void check_limits(const TemplateLimits& limits) {
  for (const size_t bytes : {limits.max_template_bytes, limits.max_variables_bytes,
                             limits.max_output_bytes, limits.max_memory_bytes}) {
    if (bytes > UINT32_MAX) {
      throw_error(ErrorCode::kInvalidArgument, "a limit of chat templates is ", bytes,
                  " bytes: it must be less than 4 GiB");
    }
  }
  if (limits.max_depth < 1 || limits.max_depth > text::jinja::kMostLevels) {
    throw_error(ErrorCode::kInvalidArgument, "the max_depth of chat templates is ",
                limits.max_depth, ": it must be between 1 and ", text::jinja::kMostLevels);
  }
}

/// Runs what may fail within a template.
template <class Work>
void guarded(uint32_t* line, const Work& work) {
  try {
    work();
  } catch (const text::jinja::Fault& fault) {
    throw_as_error(fault, *line);
  }
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view text, const TemplateLimits& limits) {
  check_limits(limits);
  if (text.size() > limits.max_template_bytes) {
    throw_error(ErrorCode::kLimitExceeded, "the chat template has more than the ",
                limits.max_template_bytes, " bytes allowed");
  }
  const size_t invalid = text::invalid_utf8_at(text);
  if (invalid != text::kValid) {
    throw_error(ErrorCode::kInvalidArgument, "the chat template is not UTF-8 at byte ", invalid);
  }
  uint32_t nowhere = 0;
  guarded(&nowhere, [&] { impl_ = std::make_shared<const Impl>(text, limits); });
}

const std::vector<std::string>& ChatTemplate::variables() const noexcept {
  return impl_->variables;
}

std::string ChatTemplate::render(std::string_view variables, const RenderOptions& options) const {
  const TemplateLimits& limits = impl_->limits;
  if (variables.size() > limits.max_variables_bytes) {
    throw_error(ErrorCode::kLimitExceeded,
                "the variables of the chat template, the messages among them, have more than the ",
                limits.max_variables_bytes, " bytes allowed");
  }
  text::jinja::Run run(limits.max_memory_bytes, limits.max_steps, limits.max_depth);
  run.clock = &options.clock;
  run.line = 0;
  std::string text;
  guarded(&run.line, [&] {
    text::jinja::Evaluator evaluator(run, text::jinja::variables_from_json(run, variables),
                                     limits.max_output_bytes);
    text = evaluator.render(impl_->program);
    if (options.generated != nullptr) {
      options.generated->clear();
      for (const text::jinja::GeneratedSpan& span : evaluator.generated) {
        options.generated->push_back({span.begin, span.end});
      }
    }
  });
  return text;
}

}  // namespace headrace::inline v0
