#pragma once

// Result<T>: a value, or the reason why an expected outcome did not come about.

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace headrace {

struct Failure {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}            // NOLINT
  Result(Failure failure) : state_(std::in_place_index<1>, std::move(failure)) {}  // NOLINT

  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  /// REQUIRES: ok().
  T& value() & { return require(), std::get<0>(state_); }
  const T& value() const& { return require(), std::get<0>(state_); }
  T&& value() && { return require(), std::get<0>(std::move(state_)); }
  /// REQUIRES: !ok().
  const Failure& failure() const { return std::get<1>(state_); }

 private:
  void require() const { HEADRACE_CHECK(ok(), failure().message); }
  std::variant<T, Failure> state_;
};

}  // namespace headrace
