#include "text/unicode/decompositions.h"

#include "text/unicode/tables/tables.h"

namespace headrace::text {
namespace {

// Syllables of Hangul follow from their numbers (Unicode 3.12).
constexpr char32_t kSyllables = 0xAC00;
constexpr char32_t kFirstLeading = 0x1100;
constexpr char32_t kVowels = 0x1161;
constexpr char32_t kBeforeTrailing = 0x11A7;  // one in front of the first
constexpr char32_t kLeadingCount = 19;
constexpr char32_t kVowelCount = 21;
constexpr char32_t kTrailingCount = 28;
constexpr char32_t kSyllableCount = kLeadingCount * kVowelCount * kTrailingCount;

char32_t compose_hangul(char32_t first, char32_t second) noexcept {
  const char32_t leading = first - kFirstLeading;
  const char32_t vowel = second - kVowels;
  if (leading < kLeadingCount && vowel < kVowelCount) {
    return kSyllables + (leading * kVowelCount + vowel) * kTrailingCount;
  }
  const char32_t syllable = first - kSyllables;
  const char32_t trailing = second - kBeforeTrailing;
  const bool open = syllable < kSyllableCount && syllable % kTrailingCount == 0;
  return open && trailing - 1 < kTrailingCount - 1 ? first + trailing : 0;
}

char32_t next_utf16(const uint16_t* words, size_t* at) noexcept {
  const char32_t first = words[(*at)++];
  if (first < 0xD800 || first >= 0xDC00) {
    return first;
  }
  return 0x10000 + ((first - 0xD800) << 10) + (words[(*at)++] - 0xDC00u);
}

size_t slot(char32_t first, char32_t second) noexcept {
  return (first * 0x9E3779B1u ^ second * 0x85EBCA6Bu) >> 20;
}

}  // namespace

const Decompositions& Decompositions::get() noexcept {
  static const Decompositions table;
  return table;
}

Decompositions::Decompositions() noexcept : canonical_{}, compatible_{}, pairs_{} {
  expand(tables::kCanonical, tables::kCanonicalSize, &canonical_);
  expand(tables::kCompatible, tables::kCompatibleSize, &compatible_);
  for (size_t at = 0; at < tables::kCompositionsSize;) {
    const char32_t composed = next_utf16(tables::kCompositions, &at);
    const char32_t first = next_utf16(tables::kCompositions, &at);
    const char32_t second = next_utf16(tables::kCompositions, &at);
    size_t place = slot(first, second);
    while (pairs_[place].composed != 0) {
      place = (place + 1) % kSlots;
    }
    pairs_[place] = {first, second, composed};
  }
}

void Decompositions::expand(const uint16_t* words, size_t count, Places* places) noexcept {
  uint8_t pages = 1;  // the first one stays empty
  for (size_t at = 0; at < count;) {
    const char32_t first = words[at] | (words[at + 1] >> 13) << 16;
    const uint32_t length = words[at + 1] >> 8 & 31;
    const uint32_t chars = words[at + 1] & 0xFF;
    at += 2;
    for (char32_t value = first; value < first + chars; ++value, at += length) {
      uint8_t& page = places->index[value >> kPageBits];
      if (page == 0) {
        page = pages++;
      }
      places->pages[page][value & ((1u << kPageBits) - 1)] = static_cast<Place>(at << 5 | length);
    }
  }
}

Decompositions::Place Decompositions::Places::at(char32_t value) const noexcept {
  return value < kEnd ? pages[index[value >> kPageBits]][value & ((1u << kPageBits) - 1)] : 0;
}

DecomposedChars Decompositions::decompose(char32_t value, bool compatible) const noexcept {
  DecomposedChars result;
  if (const char32_t syllable = value - kSyllables; syllable < kSyllableCount) {
    const char32_t trailing = syllable % kTrailingCount;
    result.values[0] = kFirstLeading + syllable / (kVowelCount * kTrailingCount);
    result.values[1] = kVowels + syllable / kTrailingCount % kVowelCount;
    result.values[2] = kBeforeTrailing + trailing;
    result.count = trailing > 0 ? 3 : 2;
    return result;
  }
  const uint16_t* words = tables::kCompatible;
  Place place = compatible ? compatible_.at(value) : 0;
  if (place == 0) {
    words = tables::kCanonical;
    place = canonical_.at(value);
  }
  if (place == 0) {
    result.values[0] = value;
    result.count = 1;
    return result;
  }
  size_t at = place >> 5;
  for (const size_t end = at + (place & 31); at < end;) {
    result.values[result.count++] = next_utf16(words, &at);
  }
  return result;
}

char32_t Decompositions::compose(char32_t first, char32_t second) const noexcept {
  if (const char32_t syllable = compose_hangul(first, second)) {
    return syllable;
  }
  for (size_t place = slot(first, second); pairs_[place].composed != 0;
       place = (place + 1) % kSlots) {
    if (pairs_[place].first == first && pairs_[place].second == second) {
      return pairs_[place].composed;
    }
  }
  return 0;
}

}  // namespace headrace::text
