#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "headrace/grammar.h"

namespace {

constexpr size_t kIds = 256 + 8;

headrace::VocabularyBytes vocabulary() {
  headrace::VocabularyBytes out;
  for (int byte = 0; byte < 256; ++byte) out.tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* more : {"\"a", "\":", "},{", "true", "12", " \"", "ab", "\xc3\xa9"}) {
    out.tokens.emplace_back(more);
  }
  return out;
}

headrace::GrammarLimits limits() {
  headrace::GrammarLimits out;
  out.max_grammar_size = 2000;
  out.compile_fuel = 20'000;
  out.token_fuel = 10'000;
  out.max_token_items = 2000;
  out.max_lexer_states = 500;
  return out;
}

void check(bool fine, const char* what) {
  if (!fine) throw headrace::InternalError(what);
}

/// Follows an output that `choices` picks from what is allowed.
void follow(const headrace::TokenConstraint& constraint, std::string_view choices) {
  const auto matcher = constraint.start();
  for (const char choice : choices) {
    std::vector<uint32_t> allowed((kIds + 31) / 32);
    const bool may_end = matcher->next(allowed);
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < allowed.size() * 32; ++i) {
      if ((allowed[i / 32] >> (i % 32) & 1u) != 0) tokens.push_back(static_cast<int32_t>(i));
    }
    check(!tokens.empty() || may_end, "an output came to a dead end");
    if (tokens.empty()) return;
    check(static_cast<size_t>(tokens.back()) < kIds, "an id beyond the vocabulary is allowed");
    matcher->append(tokens[static_cast<uint8_t>(choice) % tokens.size()]);
  }
}

}  // namespace

// A schema (it begins with "{") or a regular expression, NUL, choices of tokens.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const headrace::GrammarCompiler compiler(vocabulary(), limits());
  const std::string_view all = headrace::as_text(data, size);
  return headrace::refuse_or_accept([&] {
    const size_t end = std::min(all.find('\0'), all.size());
    const bool is_schema = all.starts_with('{');
    const auto constraint = compiler.compile(
        is_schema ? headrace::GrammarKind::kJsonSchema : headrace::GrammarKind::kRegex,
        std::string(all.substr(0, end)));
    follow(*constraint, all.substr(std::min(end + 1, all.size())).substr(0, 64));
  });
}
