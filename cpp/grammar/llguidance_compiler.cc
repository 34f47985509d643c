#include "grammar/llguidance_compiler.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/headroom.h"
#include "base/mutex.h"
#include "grammar/deep_stack.h"
#include "grammar/grammar_matcher.h"

namespace headrace::internal {

namespace {

// llguidance's parsers recurse as deep as the grammar is nested or chained: less than 1 KiB of
// stack for each byte of text, as measured.
constexpr size_t kStackBytes = 8 << 20;
constexpr size_t kStackBytesPerByte = 4096;
// llguidance ends the process when it gets no memory. This covers what its limits let a grammar
// take and what the C library reserves for a thread, as measured.
constexpr size_t kRoomToCompile = size_t{192} << 20;

void check_room(size_t bytes, const char* shown) {
  if (!has_headroom(bytes)) {
    throw_error(ErrorCode::kOutOfMemory, "no memory to compile the ", shown, ": it may take ",
                bytes >> 20, " MiB.");
  }
}

/// Asks for the first mask: a grammar that nothing can begin, or that takes for ever, fails here,
/// not in a request.
class Attempt {
 public:
  /// Copies of what is returned have the lexer's states for the first mask already.
  std::unique_ptr<MatcherHandle> run(std::unique_ptr<MatcherHandle> compiled) {
    const auto ids = static_cast<size_t>(compiled->vocabulary().size());
    const MatcherHandle& handle = *compiled;
    GrammarMatcher matcher(std::move(compiled));
    std::vector<uint32_t> allowed((ids + 31) / 32);
    const Running running(*this, handle);
    const bool may_end = matcher.next(allowed);
    if (!may_end && std::ranges::all_of(allowed, [](uint32_t word) { return word == 0; })) {
      throw_error(ErrorCode::kInvalidArgument,
                  "no token of the vocabulary can begin such an output");
    }
    return std::move(matcher).release();
  }

  void interrupt() {
    const MutexLock lock(mutex_);
    late_ = true;
    if (running_ != nullptr) running_->cancel();
  }

 private:
  /// While it lives, interrupt() cancels `handle`.
  class Running {
   public:
    Running(Attempt& attempt, const MatcherHandle& handle) : attempt_(attempt) {
      attempt_.set_running(&handle);
    }
    ~Running() { attempt_.set_running(nullptr); }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    Attempt& attempt_;
  };

  void set_running(const MatcherHandle* handle) {
    const MutexLock lock(mutex_);
    running_ = handle;
    if (handle != nullptr && late_) handle->cancel();
  }

  Mutex mutex_;
  const MatcherHandle* running_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
  bool late_ HEADRACE_GUARDED_BY(mutex_) = false;
};

const char* type_name(GrammarKind kind) {
  switch (kind) {
    case GrammarKind::kJsonSchema:
      return "json_schema";
    case GrammarKind::kRegex:
      return "regex";
    case GrammarKind::kLark:
      return "lark";
    case GrammarKind::kLlguidance:
      return "llguidance";
  }
  return "";
}

class LlguidanceCompiler final : public AnyCompiler {
 public:
  LlguidanceCompiler(const std::string& library, const VocabularyBytes& vocabulary,
                     const GrammarLimits& limits, std::chrono::nanoseconds patience)
      : api_(Llguidance::load(library)),
        vocabulary_(std::make_shared<const GrammarVocabulary>(api_, vocabulary)),
        limits_(limits),
        patience_(patience) {}

  std::shared_ptr<TokenConstraint> compile(GrammarKind kind,
                                           const std::string& text) const override {
    const char* const shown = shown_name(kind);
    std::unique_ptr<MatcherHandle> compiled;
    Attempt attempt;
    const size_t stack = kStackBytes + text.size() * kStackBytesPerByte;
    check_room(stack + kRoomToCompile, shown);
    try {
      call_on_deep_stack(
          stack, [&] { compiled = attempt.run(parse(type_name(kind), text)); }, patience_,
          [&] { attempt.interrupt(); });
    } catch (const InternalError&) {
      throw;
    } catch (const Error& error) {
      throw_error(ErrorCode::kInvalidArgument, "the ", shown, " can't be used: ", error.what(),
                  ".");
    }
    return std::make_shared<GrammarConstraint>(std::move(compiled));
  }

  const std::string& library_version() const override { return api_->version(); }

 private:
  std::unique_ptr<MatcherHandle> parse(const char* type, const std::string& text) const {
    const LlgConstraintInit init = constraint_init();
    auto out =
        std::make_unique<MatcherHandle>(vocabulary_, api_->new_matcher(&init, type, text.c_str()));
    const std::string error = out->error();
    if (!error.empty()) throw_error(ErrorCode::kInvalidArgument, error);
    return out;
  }

  LlgConstraintInit constraint_init() const {
    LlgConstraintInit init = api_->constraint_init(vocabulary_->tokenizer());
    init.limits.initial_lexer_fuel = limits_.compile_fuel;
    init.limits.step_lexer_fuel = limits_.token_fuel;
    init.limits.step_max_items = limits_.max_token_items;
    init.limits.max_lexer_states = limits_.max_lexer_states;
    init.limits.max_grammar_size = limits_.max_grammar_size;
    return init;
  }

  const std::shared_ptr<const Llguidance> api_;
  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  const GrammarLimits limits_;
  const std::chrono::nanoseconds patience_;
};

}  // namespace

std::unique_ptr<AnyCompiler> make_llguidance_compiler(const std::string& library,
                                                      const VocabularyBytes& vocabulary,
                                                      const GrammarLimits& limits,
                                                      std::chrono::nanoseconds patience) {
  return std::make_unique<LlguidanceCompiler>(library, vocabulary, limits, patience);
}

}  // namespace headrace::internal
