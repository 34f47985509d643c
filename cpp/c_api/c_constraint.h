#pragma once

#include <memory>

#include "headrace/c.h"
#include "headrace/token_constraint.h"

namespace headrace::c_api {

/// A caller's constraint. Throws Error(kInvalidArgument) if a function is missing.
class ForeignConstraint final : public TokenConstraint {
 public:
  explicit ForeignConstraint(const headrace_constraint& functions);
  ~ForeignConstraint() override;

  std::unique_ptr<TokenMatcher> start() const override;

  /// From now on it is ours to release.
  void accept() noexcept { accepted_ = true; }

 private:
  const headrace_constraint functions_;
  bool accepted_ = false;  // written before the last reference of submit() is gone
};

}  // namespace headrace::c_api
