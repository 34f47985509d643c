#pragma once

// NFC, NFD, NFKC and NFKD of Unicode 9, as the `tokenizers` package has them (UAX 15).

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::text {

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

/// A stretch of a text.
struct FormSpan {
  size_t begin = 0;
  size_t end = 0;
};

/// The next stretch at `from` or behind it that may not be in this form: what is in front of it is,
/// and no stretch changes its neighbours. Both are the text's size if there is none. Looks at each
/// byte once. REQUIRES: `from` is 0 or the end of such a stretch.
FormSpan next_abnormal(std::string_view text, size_t from, NormalForm form) noexcept;

struct FormChar {
  char32_t value = 0;
  uint8_t combining = 0;  ///< canonical combining class
  /// What it takes the place of: 1 - change characters of the old text, taken in order (the
  /// package counts so, although marks may have changed places). 1: none.
  int32_t change = 0;
};

/// `chars` becomes the normal form of a stretch, in linear time, whatever marks it has.
void normalize_span(std::string_view span, NormalForm form, std::vector<FormChar>* chars);

std::string normalized(std::string_view text, NormalForm form);

}  // namespace headrace::text
