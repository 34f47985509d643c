#pragma once

// Unicode 16 as Oniguruma has it within the `tokenizers` package (tools/regex_tables.py).

#include <cstdint>
#include <span>
#include <string_view>

#include "text/regex/pattern/char_set.h"

namespace headrace::text::tables {

/// Each run of one general category: start << 8 | index into the names.
extern const std::span<const std::string_view> kCategoryNames;
extern const std::span<const uint32_t> kCategories;

/// Each run of one script, as above. The names are small letters only; the first one, empty, is
/// for no script.
extern const std::span<const std::string_view> kScriptNames;
extern const std::span<const uint32_t> kScripts;

/// What these properties have beside the categories Lu, Ll, Lt, Lm, Lo and Nl; Lu; Ll; Zs, Zl and
/// Zp.
extern const std::span<const CodeRange> kOtherAlphabetic;
extern const std::span<const CodeRange> kOtherUppercase;
extern const std::span<const CodeRange> kOtherLowercase;
extern const std::span<const CodeRange> kOtherWhiteSpace;

/// For each `step`th character from first to last: it + delta is the next one that is the same in
/// another case; the last of such a cycle leads to its first.
struct Fold {
  char32_t first;
  char32_t last;
  int32_t step;
  int32_t delta;
};
extern const std::span<const Fold> kFolds;
/// Characters that are several characters in another case, as ß is ss; and how those begin (the
/// first and the second character).
extern const std::span<const uint32_t> kLongFolding;
extern const std::span<const CodeRange> kLongFoldStarts;

}  // namespace headrace::text::tables
