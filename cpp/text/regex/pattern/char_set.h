#pragma once

// Sets of characters as sorted ranges.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace::text {

struct CodeRange {
  char32_t first;
  char32_t last;

  friend bool operator==(const CodeRange&, const CodeRange&) = default;
};

inline constexpr char32_t kLastChar = 0x10FFFF;

/// A set that is being made.
class CharSet {
 public:
  CharSet() = default;
  explicit CharSet(std::span<const CodeRange> ranges) : ranges_(ranges.begin(), ranges.end()) {}

  void add(char32_t first, char32_t last);
  void add(const CharSet& other);
  void negate();
  void intersect(const CharSet& other);
  /// Sorted, none overlapping or touching.
  const std::vector<CodeRange>& ranges() const;
  bool empty() const { return ranges().empty(); }
  bool contains(char32_t value) const;

  friend bool operator==(const CharSet& a, const CharSet& b) { return a.ranges() == b.ranges(); }

 private:
  mutable std::vector<CodeRange> ranges_;
  mutable bool sorted_ = true;
};

/// A set for looking up.
class FastSet {
 public:
  explicit FastSet(const CharSet& set);

  bool has_ascii(uint8_t byte) const noexcept {
    return (ascii_[byte >> 6] >> (byte & 63) & 1) != 0;
  }
  bool has(char32_t value) const noexcept {
    return value < 128 ? has_ascii(static_cast<uint8_t>(value)) : find(value);
  }
  const std::vector<CodeRange>& ranges() const noexcept { return ranges_; }

 private:
  static constexpr int kPageBits = 12;

  bool find(char32_t value) const noexcept;

  std::vector<CodeRange> ranges_;
  std::array<uint64_t, 2> ascii_{};
  /// By page: the first range that doesn't end before it.
  std::array<uint16_t, (kLastChar >> kPageBits) + 2> first_{};
};

}  // namespace headrace::text
