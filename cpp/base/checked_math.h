#pragma once

// Overflow-checked arithmetic for sizes that come from files and callers.

#include <cstddef>
#include <cstdint>
#include <optional>

namespace headrace {

inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) noexcept {
  uint64_t out;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) noexcept {
  uint64_t out;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

/// REQUIRES: divisor > 0, value >= 0, and value + divisor does not overflow.
template <class T>
constexpr T ceil_div(T value, T divisor) noexcept {
  return (value + divisor - 1) / divisor;
}

template <class T>
constexpr T round_up(T value, T multiple) noexcept {
  return ceil_div(value, multiple) * multiple;
}

}  // namespace headrace
