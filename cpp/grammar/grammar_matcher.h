#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grammar/grammar_vocabulary.h"
#include "headrace/token_constraint.h"

namespace headrace::internal {

/// An LlgMatcher and the vocabulary that it needs.
class MatcherHandle {
 public:
  /// Takes `matcher`.
  MatcherHandle(std::shared_ptr<const GrammarVocabulary> vocabulary, LlgMatcher* matcher);
  ~MatcherHandle();
  MatcherHandle(const MatcherHandle&) = delete;
  MatcherHandle& operator=(const MatcherHandle&) = delete;

  std::unique_ptr<MatcherHandle> clone() const;
  const GrammarVocabulary& vocabulary() const noexcept { return *vocabulary_; }
  LlgMatcher* get() const noexcept { return matcher_; }
  /// From any thread: its calls fail soon.
  void cancel() const noexcept { vocabulary_->api().cancel(cancellation_); }
  /// What is wrong with it, in a line or two; "" if nothing is.
  std::string error() const;

 private:
  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  LlgMatcher* const matcher_;
  LlgCancellation* const cancellation_;
};

class GrammarMatcher final : public TokenMatcher {
 public:
  explicit GrammarMatcher(std::unique_ptr<MatcherHandle> matcher);

  bool next(std::span<uint32_t> allowed) override;
  void append(int32_t token) override;
  void interrupt() noexcept override { matcher_->cancel(); }

  std::unique_ptr<MatcherHandle> release() && { return std::move(matcher_); }

 private:
  void copy_mask(std::span<uint32_t> allowed) const;

  std::unique_ptr<MatcherHandle> matcher_;
  const Llguidance& api_;
  std::vector<uint32_t> mask_;
  bool at_start_ = true;
};

class GrammarConstraint final : public TokenConstraint {
 public:
  /// `compiled`: at the start of an output; nobody changes it any more.
  explicit GrammarConstraint(std::unique_ptr<const MatcherHandle> compiled)
      : compiled_(std::move(compiled)) {}

  std::unique_ptr<TokenMatcher> start() const override {
    return std::make_unique<GrammarMatcher>(compiled_->clone());
  }

 private:
  const std::unique_ptr<const MatcherHandle> compiled_;
};

}  // namespace headrace::internal
