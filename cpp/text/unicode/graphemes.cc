#include "text/unicode/graphemes.h"

#include <cstdint>

#include "text/unicode/properties.h"
#include "text/unicode/utf8.h"

namespace headrace::text {
namespace {

using enum GraphemeKind;

/// What of Hangul a character is.
enum class Jamo : uint8_t { kNone, kLead, kVowel, kTrail, kOpenSyllable, kSyllable };

Jamo jamo_of(char32_t value, GraphemeKind kind) noexcept {
  if (const char32_t syllable = value - 0xAC00; syllable < 11172) {
    return syllable % 28 == 0 ? Jamo::kOpenSyllable : Jamo::kSyllable;
  }
  return kind == kLeadingJamo    ? Jamo::kLead
         : kind == kVowelJamo    ? Jamo::kVowel
         : kind == kTrailingJamo ? Jamo::kTrail
                                 : Jamo::kNone;
}

bool joins(Jamo left, Jamo right) noexcept {
  switch (left) {
    case Jamo::kLead:
      return right != Jamo::kNone && right != Jamo::kTrail;
    case Jamo::kVowel:
    case Jamo::kOpenSyllable:
      return right == Jamo::kVowel || right == Jamo::kTrail;
    case Jamo::kTrail:
    case Jamo::kSyllable:
      return right == Jamo::kTrail;
    default:
      return false;
  }
}

bool is_extend(GraphemeKind kind) noexcept {
  return kind == kExtend || kind == kConjunctExtend || kind == kLinker;
}

bool is_control(GraphemeKind kind) noexcept {
  return kind == kControl || kind == kCarriageReturn || kind == kLineFeed;
}

/// What a cluster's characters so far say about the next one.
class Cluster {
 public:
  Cluster(char32_t value, GraphemeKind kind) noexcept { step(value, kind); }

  /// Is this one part of it?
  bool takes(char32_t value, GraphemeKind kind) const noexcept {
    if (last_ == kCarriageReturn) {
      return kind == kLineFeed;
    }
    if (is_control(last_) || is_control(kind)) {
      return false;
    }
    if (is_extend(kind) || kind == kZwj || kind == kSpacingMark || last_ == kPrepend) {
      return true;
    }
    return joins(jamo_, jamo_of(value, kind)) || (kind == kConsonant && linked_) ||
           (kind == kPictographic && last_ == kZwj && joined_) ||
           (kind == kRegionalIndicator && half_flag_);
  }

  void step(char32_t value, GraphemeKind kind) noexcept {
    const bool conjunct = kind == kConjunctExtend || kind == kLinker || kind == kZwj;
    linked_ = consonant_ && conjunct && (linked_ || kind == kLinker);
    consonant_ = kind == kConsonant || (consonant_ && conjunct);
    joined_ = pictographic_ && kind == kZwj;
    pictographic_ = kind == kPictographic || (pictographic_ && is_extend(kind));
    half_flag_ = kind == kRegionalIndicator && !half_flag_;
    jamo_ = jamo_of(value, kind);
    last_ = kind;
  }

 private:
  GraphemeKind last_ = kOther;
  Jamo jamo_ = Jamo::kNone;
  bool consonant_ = false;     ///< a consonant, and what may be between it and the next one
  bool linked_ = false;        ///< with a linker
  bool pictographic_ = false;  ///< a pictographic character, extended
  bool joined_ = false;        ///< and a joiner
  bool half_flag_ = false;
};

}  // namespace

size_t grapheme_end(std::string_view text, size_t at) noexcept {
  const CharTable& table = CharTable::get();
  const char32_t first = next_char(text, &at);
  Cluster cluster(first, table.of(first).kind);
  while (at < text.size()) {
    size_t next = at;
    const char32_t value = next_char(text, &next);
    const GraphemeKind kind = table.of(value).kind;
    if (!cluster.takes(value, kind)) {
      break;
    }
    cluster.step(value, kind);
    at = next;
  }
  return at;
}

}  // namespace headrace::text
