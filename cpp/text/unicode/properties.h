#pragma once

// What kind of character one is, each kind in the version of Unicode in which the `tokenizers`
// package has it (tables/, made by tools/unicode_tables.py).

#include <cstddef>
#include <cstdint>

namespace headrace::text {

/// Flags of a character, in regex classes of Unicode 16 (Oniguruma) unless said otherwise.
enum CharFlag : uint16_t {
  kLetter = 1 << 0,         ///< \p{L}
  kNumber = 1 << 1,         ///< \p{N}
  kMark = 1 << 2,           ///< \p{M}
  kSpace = 1 << 3,          ///< \s: White_Space
  kUpper = 1 << 4,          ///< \p{Lu}, \p{Lt}
  kLower = 1 << 5,          ///< \p{Ll}
  kPunctuation = 1 << 6,    ///< \p{P}
  kSymbol = 1 << 7,         ///< \p{S}
  kOnigWord = 1 << 8,       ///< Oniguruma's \w
  kRustWord = 1 << 9,       ///< Rust's \w, of the `regex` crate
  kNumeric = 1 << 10,       ///< Rust's char::is_numeric (Unicode 17)
  kPunctuation8 = 1 << 11,  ///< category P in Unicode 8, or ASCII punctuation: BERT's
  kControl8 = 1 << 12,      ///< Cc, Cf, Co in Unicode 8, but not U+0000
  kMark9 = 1 << 13,         ///< combining mark in Unicode 9
  kNonspacing8 = 1 << 14,   ///< Mn in Unicode 8
  kHan = 1 << 15,           ///< \p{Han}
};

/// What a character does at the ends of grapheme clusters (Unicode 16 or 17: UAX 29). Syllables of
/// Hangul are kOther here.
enum class GraphemeKind : uint8_t {
  kOther,
  kCarriageReturn,
  kLineFeed,
  kControl,
  kExtend,
  kConjunctExtend,  ///< kExtend, and Indic_Conjunct_Break=Extend
  kLinker,          ///< kExtend, and Indic_Conjunct_Break=Linker
  kZwj,
  kRegionalIndicator,
  kPrepend,
  kSpacingMark,
  kLeadingJamo,
  kVowelJamo,
  kTrailingJamo,
  kPictographic,
  kConsonant,  ///< Indic_Conjunct_Break=Consonant
};

/// What changes a character (normal forms: Unicode 9).
enum FormFlag : uint8_t {
  kChangedByNfc = 1 << 0,   ///< alone, or it may be composed with what is before it
  kChangedByNfkc = 1 << 1,  ///< the same in NFKC
  kDecomposes = 1 << 2,
  kDecomposesCompat = 1 << 3,
  kChangedByLower = 1 << 4,  ///< Rust's lowercase
};

/// All that is known of a character.
struct CharClass {
  uint16_t flags = 0;  ///< CharFlags
  uint8_t combining = 0;
  GraphemeKind kind = GraphemeKind::kOther;
  uint8_t forms = 0;  ///< FormFlags
};

/// The class of each character, expanded when it is first asked for (86 KB that are made once).
/// Loops over texts keep a reference.
class CharTable {
 public:
  static const CharTable& get() noexcept;

  /// Of U+0000's class if it is no character.
  const CharClass& of(char32_t value) const noexcept {
    return classes_[value < kEnd ? pages_[index_[value >> kPageBits]][value & kPageMask] : 0];
  }
  uint16_t flags(char32_t value) const noexcept { return of(value).flags; }

 private:
  CharTable() noexcept;

  static constexpr char32_t kEnd = 0x110000;
  static constexpr unsigned kPageBits = 7;
  static constexpr char32_t kPageMask = (1u << kPageBits) - 1;
  static constexpr size_t kMaxPages = 400;

  uint8_t pages_[kMaxPages][1u << kPageBits];
  uint16_t index_[kEnd >> kPageBits];
  CharClass classes_[256];
};

/// All flags of a character; 0 for no character.
inline uint16_t char_flags(char32_t value) noexcept { return CharTable::get().flags(value); }

inline bool has_flag(char32_t value, uint16_t flags) noexcept {
  return (char_flags(value) & flags) != 0;
}

}  // namespace headrace::text
