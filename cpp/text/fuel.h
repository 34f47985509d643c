#pragma once

// A bound on the work of one call that doesn't depend on any clock: the same input always ends the
// same way.

#include <cstdint>

namespace headrace::text {

class Fuel {
 public:
  /// `what`: what runs out, as an error names it ("tokenizing this text"). It must outlive this.
  Fuel(uint64_t steps, const char* what) : left_(steps), what_(what) {}

  /// Throws Error(kLimitExceeded) if so many steps aren't left.
  void spend(uint64_t steps) {
    if (steps > left_) [[unlikely]] {
      out();
    }
    left_ -= steps;
  }
  uint64_t left() const noexcept { return left_; }

 private:
  [[noreturn]] void out() const;

  uint64_t left_;
  const char* what_;
};

}  // namespace headrace::text
