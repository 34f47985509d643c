#include "headrace/chat_template.h"

#include <set>

#include "base/check.h"
#include "text/template/json_values/json.h"
#include "text/template/run/evaluator.h"
#include "text/template/syntax/parser.h"
#include "text/template/syntax/scopes.h"
#include "text/template/values/variables.h"
#include "text/unicode/utf8.h"

namespace headrace::inline v0 {

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
  throw Error(fault.code, what + place + ": " + text::shortened(fault.message, 300));
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

struct ChatTemplate::Impl {
  Impl(std::string_view text, const TemplateLimits& with)
      : limits(with), run(with.max_memory_bytes, with.max_steps, with.max_depth) {
    text::jinja::Parser parser(text, run);
    program = parser.parse();
    std::set<std::string> undeclared;
    text::jinja::resolve_names(&program, run, &undeclared);
    variables.assign(undeclared.begin(), undeclared.end());
  }

  /// make_variables: makes them in the memory of the run.
  template <class Make>
  std::string render(const RenderOptions& options, const Make& make_variables) const {
    text::jinja::Run rendering(limits.max_memory_bytes, limits.max_steps, limits.max_depth);
    rendering.clock = &options.clock;
    rendering.line = 0;
    std::string text;
    guarded(&rendering.line, [&] {
      text::jinja::Evaluator evaluator(rendering, make_variables(rendering),
                                       limits.max_output_bytes);
      text = evaluator.render(program);
      if (options.generated != nullptr) {
        options.generated->clear();
        for (const text::jinja::GeneratedSpan& span : evaluator.generated) {
          options.generated->push_back({span.begin, span.end});
        }
      }
    });
    return text;
  }

  TemplateLimits limits;
  text::jinja::Run run;  ///< its arena has the nodes
  text::jinja::Program program;
  std::vector<std::string> variables;
};

namespace {

/// Runs what gives a variable, which stands in no line.
template <class Work>
void given(const Work& work) {
  uint32_t nowhere = 0;
  guarded(&nowhere, work);
}

}  // namespace

void TemplateVariables::none() {
  given([&] { builder_.add(text::jinja::Value::none()); });
}

void TemplateVariables::boolean(bool value) {
  given([&] { builder_.add(text::jinja::Value::of(value)); });
}

void TemplateVariables::integer(int64_t value) {
  given([&] { builder_.add(text::jinja::Value::of(value)); });
}

void TemplateVariables::big_integer(std::string_view digits) {
  given([&] { builder_.add_text(digits, text::jinja::Kind::kBigInt); });
}

void TemplateVariables::real(double value) {
  given([&] { builder_.add(text::jinja::Value::of(value)); });
}

void TemplateVariables::text(std::string_view value) {
  given([&] { builder_.add_text(value); });
}

void TemplateVariables::begin_list() {
  given([&] { builder_.begin(text::jinja::Kind::kList); });
}

void TemplateVariables::begin_tuple() {
  given([&] { builder_.begin(text::jinja::Kind::kTuple); });
}

void TemplateVariables::begin_dict() {
  given([&] { builder_.begin(text::jinja::Kind::kDict); });
}

void TemplateVariables::end() {
  given([&] { builder_.end(); });
}

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
  const size_t most = impl_->limits.max_variables_bytes;
  if (variables.size() > most) {
    text::jinja::fail_variables_size(most);
  }
  return impl_->render(options, [&](text::jinja::Run& run) {
    return text::jinja::variables_from_json(run, variables);
  });
}

std::string ChatTemplate::render(const std::function<void(TemplateVariables&)>& give,
                                 const RenderOptions& options) const {
  return impl_->render(options, [&](text::jinja::Run& run) {
    text::jinja::VariablesBuilder builder(run, impl_->limits.max_variables_bytes);
    TemplateVariables variables(builder);
    give(variables);
    return builder.finish();
  });
}

}  // namespace headrace::inline v0
