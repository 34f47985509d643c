#pragma once

// Case as Rust's `str` has it but for the final sigma: what Lowercase and BertNormalizer do.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace headrace::text {

struct CasedChars {
  std::array<char32_t, 3> values{};
  size_t count = 0;
};

/// One table of tables/tables.h.
struct CaseTable {
  std::span<const uint32_t> runs;
  std::span<const uint16_t> specials;

  /// What a character becomes; itself if the table doesn't have it.
  CasedChars of(char32_t value) const noexcept;
};

/// What a character becomes in lower case.
CasedChars lower_chars(char32_t value) noexcept;

std::string lowered(std::string_view text);

}  // namespace headrace::text
