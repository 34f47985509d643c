#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "headrace/token_constraint.h"

namespace headrace::testing {

/// What may follow an output.
struct Following {
  std::vector<int32_t> tokens;
  bool may_end = false;
};

/// A constraint given by a function of the output so far. It counts its matchers, and fails the
/// calls that the engine must not make.
class FakeConstraint final : public TokenConstraint,
                             public std::enable_shared_from_this<FakeConstraint> {
 public:
  using Rule = std::function<Following(std::span<const int32_t> output)>;

  static std::shared_ptr<FakeConstraint> make(Rule rule) {
    return std::make_shared<FakeConstraint>(std::move(rule));
  }
  explicit FakeConstraint(Rule rule) : rule_(std::move(rule)) {}

  std::unique_ptr<TokenMatcher> start() const override;

  mutable std::atomic<int> started{0}, alive{0};

 private:
  friend class FakeMatcher;
  const Rule rule_;
};

}  // namespace headrace::testing
