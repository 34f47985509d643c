#include "fakes/fake_constraint.h"

#include <algorithm>

#include "base/check.h"

namespace headrace::testing {

class FakeMatcher final : public TokenMatcher {
 public:
  explicit FakeMatcher(std::shared_ptr<const FakeConstraint> constraint)
      : constraint_(std::move(constraint)) {
    ++constraint_->started;
    ++constraint_->alive;
  }
  ~FakeMatcher() override { --constraint_->alive; }

  bool next(std::span<uint32_t> allowed) override {
    HEADRACE_CHECK(std::ranges::all_of(allowed, [](uint32_t word) { return word == 0; }));
    const Following following = constraint_->rule_(output_);
    for (const int32_t token : following.tokens) {
      allowed[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
    }
    last_ = following.tokens;
    return following.may_end;
  }

  void append(int32_t token) override {
    HEADRACE_CHECK(std::ranges::find(last_, token) != last_.end(), token, " was not allowed");
    output_.push_back(token);
  }

 private:
  const std::shared_ptr<const FakeConstraint> constraint_;
  std::vector<int32_t> output_, last_;
};

std::unique_ptr<TokenMatcher> FakeConstraint::start() const {
  return std::make_unique<FakeMatcher>(shared_from_this());
}

}  // namespace headrace::testing
