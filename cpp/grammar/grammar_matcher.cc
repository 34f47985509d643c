#include "grammar/grammar_matcher.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace headrace::internal {

namespace {

constexpr size_t kLongestError = 400;

bool bit(std::span<const uint32_t> mask, int32_t token) {
  return ((mask[static_cast<size_t>(token) / 32] >> (token % 32)) & 1u) != 0;
}

void set_bit(std::span<uint32_t> mask, int32_t token, bool on) {
  uint32_t& word = mask[static_cast<size_t>(token) / 32];
  const uint32_t one = 1u << (token % 32);
  word = on ? word | one : word & ~one;
}

}  // namespace

MatcherHandle::MatcherHandle(std::shared_ptr<const GrammarVocabulary> vocabulary,
                             LlgMatcher* matcher)
    : vocabulary_(std::move(vocabulary)),
      matcher_(matcher),
      cancellation_(vocabulary_->api().get_cancellation(matcher)) {}

MatcherHandle::~MatcherHandle() {
  vocabulary_->api().free_cancellation(cancellation_);
  vocabulary_->api().free_matcher(matcher_);
}

std::unique_ptr<MatcherHandle> MatcherHandle::clone() const {
  return std::make_unique<MatcherHandle>(vocabulary_, vocabulary_->api().clone_matcher(matcher_));
}

std::string MatcherHandle::error() const {
  const char* const text = vocabulary_->api().matcher_error(matcher_);
  if (text == nullptr) return {};
  std::string_view view = text;
  view = view.substr(0, view.find("<non-verbose/>"));
  while (!view.empty() && view.back() == '\n') view.remove_suffix(1);
  if (view.starts_with("NoExtension")) return "no token can follow";
  if (view.find("operation cancelled") != std::string_view::npos) return "it takes too long";
  if (view.size() <= kLongestError) return std::string(view);
  return std::string(view.substr(0, kLongestError)) + "...";
}

GrammarMatcher::GrammarMatcher(std::unique_ptr<MatcherHandle> matcher)
    : matcher_(std::move(matcher)),
      api_(matcher_->vocabulary().api()),
      mask_(api_.mask_bytes(matcher_->get()) / sizeof(uint32_t)) {}

bool GrammarMatcher::next(std::span<uint32_t> allowed) {
  if (api_.compute_mask(matcher_->get(), mask_.data(), mask_.size() * sizeof(uint32_t)) != 0) {
    throw_error(ErrorCode::kLimitExceeded,
                "the grammar can't say what may follow: ", matcher_->error());
  }
  copy_mask(allowed);
  return api_.is_accepting(matcher_->get());
}

void GrammarMatcher::copy_mask(std::span<uint32_t> allowed) const {
  const GrammarVocabulary& vocabulary = matcher_->vocabulary();
  const auto ids = std::min<size_t>(static_cast<size_t>(vocabulary.size()), allowed.size() * 32);
  const size_t words = (ids + 31) / 32;
  std::copy_n(mask_.begin(), words, allowed.begin());
  if (ids % 32 != 0) allowed[words - 1] &= (1u << (ids % 32)) - 1;
  if (!at_start_) return;
  // A token that adds nothing may come if another can follow it.
  const bool goes_on = std::ranges::any_of(allowed, [](uint32_t word) { return word != 0; });
  for (const auto& [token, form] : vocabulary.first_forms()) {
    if (std::cmp_less(token, ids)) {
      set_bit(allowed, token,
              form >= 0 ? bit(mask_, form) : form == GrammarVocabulary::kNothing && goes_on);
    }
  }
}

void GrammarMatcher::append(int32_t token) {
  const GrammarVocabulary& vocabulary = matcher_->vocabulary();
  HEADRACE_CHECK(token >= 0 && token < vocabulary.size(), token);
  int32_t form = token;
  if (at_start_) {
    const auto found = vocabulary.first_forms().find(token);
    if (found != vocabulary.first_forms().end()) form = found->second;
  }
  HEADRACE_CHECK(form != GrammarVocabulary::kNever, token);
  if (vocabulary.is_special(token)) {
    at_start_ = at_start_ || vocabulary.special_restarts();
  } else {
    at_start_ = false;
  }
  if (form == GrammarVocabulary::kNothing) return;
  if (api_.consume_token(matcher_->get(), static_cast<uint32_t>(form)) != 0) {
    throw_error(ErrorCode::kLimitExceeded, "the grammar can't go on: ", matcher_->error());
  }
}

}  // namespace headrace::internal
