#include "c_api/c_constraint.h"

#include "c_api/c_error.h"

namespace headrace::c_api {

namespace {

class ForeignMatcher final : public TokenMatcher {
 public:
  ForeignMatcher(const headrace_constraint& functions, void* matcher)
      : functions_(functions), matcher_(matcher) {}
  ~ForeignMatcher() override { functions_.end(matcher_); }
  ForeignMatcher(const ForeignMatcher&) = delete;
  ForeignMatcher& operator=(const ForeignMatcher&) = delete;

  bool next(std::span<uint32_t> allowed) override {
    const int32_t answer = functions_.next(matcher_, allowed.data(), allowed.size());
    if (answer < 0) throw_error(ErrorCode::kInvalidState, "the constraint's next() failed.");
    return answer != 0;
  }

  void append(int32_t token) override {
    if (functions_.append(matcher_, token) < 0) {
      throw_error(ErrorCode::kInvalidState, "the constraint's append(", token, ") failed.");
    }
  }

 private:
  const headrace_constraint functions_;
  void* const matcher_;
};

}  // namespace

ForeignConstraint::ForeignConstraint(const headrace_constraint& functions) : functions_(functions) {
  if (!functions.start || !functions.next || !functions.append || !functions.end) {
    throw_error(ErrorCode::kInvalidArgument,
                "a constraint needs the functions start, next, append and end.");
  }
}

ForeignConstraint::~ForeignConstraint() {
  if (accepted_ && functions_.release) functions_.release(functions_.user_data);
}

std::unique_ptr<TokenMatcher> ForeignConstraint::start() const {
  void* const matcher = functions_.start(functions_.user_data);
  if (matcher == nullptr) {
    throw_error(ErrorCode::kInvalidState, "the constraint's start() failed.");
  }
  try {
    return std::make_unique<ForeignMatcher>(functions_, matcher);
  } catch (...) {
    functions_.end(matcher);
    throw;
  }
}

}  // namespace headrace::c_api
