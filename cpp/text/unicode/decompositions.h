#pragma once

// What characters are made of (Unicode 9), expanded from tables/ when it is first asked for.

#include <array>
#include <cstddef>
#include <cstdint>

namespace headrace::text {

struct DecomposedChars {
  std::array<char32_t, 18> values;  ///< the longest is U+FDFA's
  size_t count = 0;
};

class Decompositions {
 public:
  static const Decompositions& get() noexcept;

  /// The full decomposition; the character itself if it has none.
  DecomposedChars decompose(char32_t value, bool compatible) const noexcept;
  /// The character that two make; 0 if they make none.
  char32_t compose(char32_t first, char32_t second) const noexcept;

 private:
  /// A decomposition in UTF-16: where it begins in its table << 5 | its length. 0: none.
  using Place = uint32_t;
  static constexpr unsigned kPageBits = 6;
  static constexpr size_t kMaxPages = 256;
  static constexpr char32_t kEnd = 0x30000;  ///< none has more
  struct Places {
    uint8_t index[kEnd >> kPageBits];
    Place pages[kMaxPages][1u << kPageBits];

    Place at(char32_t value) const noexcept;
  };
  struct Pair {
    char32_t first;
    char32_t second;
    char32_t composed;  ///< 0: a free slot
  };
  static constexpr size_t kSlots = 4096;

  Decompositions() noexcept;
  static void expand(const uint16_t* words, size_t count, Places* places) noexcept;

  Places canonical_;
  Places compatible_;
  Pair pairs_[kSlots];
};

}  // namespace headrace::text
