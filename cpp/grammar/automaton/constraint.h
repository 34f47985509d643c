#pragma once

#include <memory>

#include "base/mutex.h"
#include "grammar/automaton/follower.h"
#include "headrace/grammar.h"
#include "headrace/token_constraint.h"

namespace headrace::grammar {

/// A constraint of the own engine. What its matchers find out serves all of them.
class OwnConstraint final : public TokenConstraint,
                            public std::enable_shared_from_this<OwnConstraint> {
 public:
  /// Finds the first mask. Throws Error(kInvalidArgument) if no output can begin, and
  /// Error(kLimitExceeded).
  static std::shared_ptr<OwnConstraint> make(std::shared_ptr<const Vocabulary> vocabulary,
                                             Automaton automaton, const GrammarLimits& limits);
  ~OwnConstraint() override;

  std::unique_ptr<TokenMatcher> start() const override;

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const GrammarLimits& limits() const { return limits_; }
  /// The one that all matchers begin with.
  std::shared_ptr<Follower> shared() const;
  /// One that has found out nothing yet. `full`: if it is the shared one, another takes its place.
  std::shared_ptr<Follower> fresh(const std::shared_ptr<Follower>& full) const;

 private:
  OwnConstraint(std::shared_ptr<const Vocabulary> vocabulary, Automaton automaton,
                const GrammarLimits& limits);

  const std::shared_ptr<const Vocabulary> vocabulary_;
  const Automaton automaton_;
  const GrammarLimits limits_;
  mutable Mutex mutex_;
  mutable std::shared_ptr<Follower> shared_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace::grammar
