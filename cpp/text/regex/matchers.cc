#include "text/regex/matchers.h"

#include <algorithm>
#include <array>

#include "text/regex/scan.h"

namespace headrace::text {

namespace {

using scan::is_newline;
using scan::run;
using scan::run_without;
using scan::see;
using scan::Seen;

constexpr uint16_t kWordLike = kSpace | kLetter | kNumber;

enum class Case : uint8_t { kExact, kAny };

/// Behind `'s|'t|'re|'ve|'m|'ll|'d`, or `at`. Among characters of any case ſ is an s.
template <Case kCase>
const char* contraction(const char* at, const char* end) {
  if (end - at < 2 || *at != '\'') {
    return at;
  }
  constexpr char kFold = kCase == Case::kAny ? 0x20 : 0;
  const auto letter = [&](ptrdiff_t i) { return end - at > i ? at[i] | kFold : 0; };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return at + 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? at + 3 : at;
    case 'l':
      return letter(2) == 'l' ? at + 3 : at;
    default:
      break;
  }
  if (kCase == Case::kAny && std::string_view(at, end).substr(1).starts_with("\u017F")) {
    return at + 3;
  }
  return at;
}

/// `\s+(?!\S)|\s+`, of which `space_end` is the run's end: the last space before something else
/// stays with it, unless it is the only one.
const char* spaces(const char* at, const char* space_end, const char* end) {
  if (space_end == end) {
    return end;
  }
  const char* last = space_end - 1;
  while (utf8_continues(*last)) {
    --last;
  }
  return last > at ? last : space_end;
}

/// `\s*[\r\n]+|\s+(?!\S)|\s+`, or `at`.
const char* newlines_or_spaces(const char* at, const char* end) {
  const char* space_end = at;
  const char* line_end = nullptr;
  while (space_end < end) {
    const Seen seen = see(space_end);
    if ((seen.flags & kSpace) == 0) {
      break;
    }
    const bool newline = is_newline(*space_end);
    space_end += seen.size;
    line_end = newline ? space_end : line_end;
  }
  if (line_end != nullptr || space_end == at) {
    return line_end != nullptr ? line_end : at;
  }
  return spaces(at, space_end, end);
}

/// `[\r\n]*` or `[\r\n/]*`.
template <bool kSlash>
const char* newlines(const char* at, const char* end) {
  while (at < end && (is_newline(*at) || (kSlash && *at == '/'))) {
    ++at;
  }
  return at;
}

/// `\p{N}{1,kMost}`, of which the first number is `size` bytes.
template <int kMost>
const char* numbers(const char* at, const char* end, uint32_t size) {
  at += size;
  for (int count = 1; count < kMost && at < end; ++count) {
    const Seen seen = see(at);
    if ((seen.flags & kNumber) == 0) {
      break;
    }
    at += seen.size;
  }
  return at;
}

/// GPT-2.
struct Gpt2 {
  static const char* match(const char* at, const char* end) {
    if (const char* after = contraction<Case::kExact>(at, end); after != at) {
      return after;
    }
    const char* start = *at == ' ' && end - at > 1 ? at + 1 : at;
    const Seen first = see(start);
    if ((first.flags & kLetter) != 0) {
      return run(start + first.size, end, kLetter);
    }
    if ((first.flags & kNumber) != 0) {
      return run(start + first.size, end, kNumber);
    }
    if ((first.flags & kSpace) == 0) {
      return run_without(start + first.size, end, kWordLike);
    }
    return spaces(at, run(at, end, kSpace), end);
  }
};

/// Llama 3 (kNumbers 3), Qwen2 (1), Qwen3.5 (1, marks are as letters).
template <int kNumbers, uint16_t kLetters>
struct Cl100k {
  static constexpr uint16_t kNoSign = kWordLike | kLetters;

  static const char* match(const char* at, const char* end) {
    const Seen first = see(at);
    if ((first.flags & kLetters) != 0) {
      // A mark may be the one sign before letters, too: the same match.
      return run(at + first.size, end, kLetters);
    }
    if ((first.flags & kNumber) != 0) {
      return numbers<kNumbers>(at, end, first.size);
    }
    if (*at == '\'') {
      if (const char* after = contraction<Case::kAny>(at, end); after != at) {
        return after;
      }
    }
    const char* second = at + first.size;
    if (second < end) {
      const Seen next = see(second);
      if ((next.flags & kLetters) != 0 && !is_newline(*at)) {
        return run(second + next.size, end, kLetters);
      }
      if (*at == ' ' && (next.flags & kNoSign) == 0) {
        return newlines<false>(run_without(second + next.size, end, kNoSign), end);
      }
    }
    if ((first.flags & kSpace) == 0) {
      return newlines<false>(run_without(second, end, kNoSign), end);
    }
    return newlines_or_spaces(at, end);
  }
};

/// o200k (kNumbers 3, contractions) and Mistral's tekken (1, none).
template <int kNumbers, bool kContractions>
struct O200k {
  // Letters that are neither, and marks, are in both classes.
  static bool is_upper(uint16_t flags) {
    return (flags & kMark) != 0 || (flags & (kLetter | kLower)) == kLetter;
  }
  static bool is_lower(uint16_t flags) {
    return (flags & kMark) != 0 || (flags & (kLetter | kUpper)) == kLetter;
  }

  static const char* tail(const char* at, const char* end) {
    return kContractions ? contraction<Case::kAny>(at, end) : at;
  }

  static const char* lower_run(const char* at, const char* end) {
    for (; at < end;) {
      const Seen seen = see(at);
      if (!is_lower(seen.flags)) {
        break;
      }
      at += seen.size;
    }
    return at;
  }

  struct Upper {
    const char* end;        ///< of the run
    const char* last_both;  ///< behind its last character that is in both classes, or null
  };
  static Upper upper_run(const char* at, const char* end) {
    Upper upper{at, nullptr};
    while (upper.end < end) {
      const Seen seen = see(upper.end);
      if (!is_upper(seen.flags)) {
        break;
      }
      upper.end += seen.size;
      if (is_lower(seen.flags)) {
        upper.last_both = upper.end;
      }
    }
    return upper;
  }

  /// The two alternatives of words, whose sign in front ends at `start` (`at`: none). Null: none.
  static const char* word(const char* at, const char* start, bool mark_first, const char* end) {
    const Upper upper = upper_run(start, end);
    const char* lower_end = lower_run(upper.end, end);
    if (lower_end != upper.end) {
      return tail(lower_end, end);
    }
    if (upper.last_both != nullptr) {
      return tail(upper.last_both, end);  // `+` gets back the last it can have
    }
    if (mark_first) {
      return tail(start, end);  // the mark isn't the sign in front, but the word
    }
    return upper.end != start ? tail(upper.end, end) : at;
  }

  static const char* match(const char* at, const char* end) {
    const Seen first = see(at);
    if ((first.flags & kNumber) != 0) {
      return numbers<kNumbers>(at, end, first.size);
    }
    if (!is_newline(*at)) {
      const bool letter = (first.flags & kLetter) != 0;
      const char* start = letter ? at : at + first.size;
      const char* after = word(at, start, (first.flags & kMark) != 0, end);
      if (after != at) {
        return after;
      }
    }
    const char* second = at + first.size;
    if (*at == ' ' && second < end && (see(second).flags & kWordLike) == 0) {
      return newlines<true>(run_without(second, end, kWordLike), end);
    }
    if ((first.flags & kSpace) == 0) {
      return newlines<true>(run_without(second, end, kWordLike), end);
    }
    return newlines_or_spaces(at, end);
  }
};

/// The third step of DeepSeek V3. Numbers and controls that no letter follows aren't matched.
struct DeepSeekWords {
  static constexpr uint16_t kLetters = kLetter | kMark;
  static constexpr uint16_t kSigns = kPunctuation | kSymbol;

  static const char* ascii_letters(const char* at, const char* end) {
    while (at < end && (*at | 0x20) >= 'a' && (*at | 0x20) <= 'z') {
      ++at;
    }
    return at;
  }

  static const char* match(const char* at, const char* end) {
    const Seen first = see(at);
    const char* second = at + first.size;
    const bool sign = (first.flags & kSigns) != 0;
    if (sign && first.size == 1) {
      if (const char* after = ascii_letters(second, end); after != second) {
        return after;
      }
    }
    if (sign) {
      return newlines<false>(run(second, end, kSigns), end);
    }
    if ((first.flags & kLetters) != 0) {
      return run(second, end, kLetters);
    }
    if (second < end) {
      const Seen next = see(second);
      if ((next.flags & kLetters) != 0 && !is_newline(*at)) {
        return run(second, end, kLetters);
      }
      if (*at == ' ' && (next.flags & kSigns) != 0) {
        return newlines<false>(run(second, end, kSigns), end);
      }
    }
    return newlines_or_spaces(at, end);
  }
};

template <int kMost>
struct Numbers {
  static const char* match(const char* at, const char* end) {
    const Seen first = see(at);
    return (first.flags & kNumber) != 0 ? numbers<kMost>(at, end, first.size) : at;
  }
};

/// The second step of DeepSeek V3: Chinese and Japanese.
struct CjkRuns {
  static bool is_cjk(const char* at) {
    if (static_cast<uint8_t>(*at) < 0xE3) {
      return false;
    }
    size_t read = 0;
    const char32_t value = next_char({at, utf8_size(*at)}, &read);
    return (value >= 0x4E00 && value <= 0x9FA5) || (value >= 0x3040 && value <= 0x30FF);
  }

  static const char* match(const char* at, const char* end) {
    while (at < end && is_cjk(at)) {
      at += 3;
    }
    return at;
  }
};

/// Gemma 4: `[^\n]+|[\n]+`.
struct Lines {
  static const char* match(const char* at, const char* end) {
    const bool newline = *at == '\n';
    return std::find_if(at, end, [&](char byte) { return (byte == '\n') != newline; });
  }
};

/// Falcon.
struct ThreeDigits {
  static const char* match(const char* at, const char* end) {
    const auto digit = [](char byte) { return byte >= '0' && byte <= '9'; };
    return end - at >= 3 && std::all_of(at, at + 3, digit) ? at + 3 : at;
  }
};

/// `Pattern::match` gives the end of the match at `at`, which is `at` if there is none. (None of
/// these patterns matches nothing.)
template <class Pattern>
class Matcher final : public Regex {
 public:
  std::optional<Range> find(std::string_view text, size_t from, Fuel* fuel) const override {
    const char* begin = text.data();
    const char* end = begin + text.size();
    for (const char* at = begin + from; at < end; at += utf8_size(*at)) {
      const char* after = Pattern::match(at, end);
      if (after != at) {
        fuel->spend(static_cast<size_t>(after - begin) - from);
        return Range{static_cast<uint32_t>(at - begin), static_cast<uint32_t>(after - begin)};
      }
    }
    fuel->spend(1 + text.size() - from);
    return std::nullopt;
  }

  void find_all(std::string_view text, uint32_t shift, std::vector<Range>* matches,
                Fuel* fuel) const override {
    fuel->spend(1 + text.size());
    const char* begin = text.data();
    const char* end = begin + text.size();
    for (const char* at = begin; at < end;) {
      const char* after = Pattern::match(at, end);
      if (after == at) {
        at += utf8_size(*at);
        continue;
      }
      matches->push_back({shift + static_cast<uint32_t>(at - begin),
                          shift + static_cast<uint32_t>(after - begin)});
      at = after;
    }
  }
};

template <class Pattern>
std::shared_ptr<const Regex> make() {
  return std::make_shared<Matcher<Pattern>>();
}

/// As they stand in the families' tokenizer.json.
constexpr std::array kPatterns = {
    // GPT-2, as `ByteLevel` has it, too
    std::string_view(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+)"
                     R"(|\s+(?!\S)|\s+)"),
    // Llama 3, GLM-4, LFM2
    std::string_view(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
                     R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    // Qwen2, Qwen3
    std::string_view(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                     R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    // Qwen3.5
    std::string_view(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
                     R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    // o200k: gpt-oss, Llama 4, Phi-4-mini
    std::string_view(
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
        R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
        R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    // Mistral's tekken
    std::string_view(
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
        R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
        R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    // DeepSeek V3, three steps; newlines stand there as themselves
    std::string_view(R"(\p{N}{1,3})"),
    std::string_view("[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"),
    std::string_view("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
                     "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
                     "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
    std::string_view(R"(\p{N})"),
    std::string_view(R"([^\n]+|[\n]+)"),     // Gemma 4
    std::string_view(R"([0-9][0-9][0-9])"),  // Falcon
};

using Make = std::shared_ptr<const Regex> (*)();
constexpr std::array<Make, kPatterns.size()> kMakers = {
    make<Gpt2>,
    make<Cl100k<3, kLetter>>,
    make<Cl100k<1, kLetter>>,
    make<Cl100k<1, kLetter | kMark>>,
    make<O200k<3, true>>,
    make<O200k<1, false>>,
    make<Numbers<3>>,
    make<CjkRuns>,
    make<DeepSeekWords>,
    make<Numbers<1>>,
    make<Lines>,
    make<ThreeDigits>,
};

}  // namespace

const std::string_view kGpt2Pattern = kPatterns[0];

std::span<const std::string_view> own_patterns() { return kPatterns; }

std::shared_ptr<const Regex> own_matcher(std::string_view pattern) {
  const auto* found = std::find(kPatterns.begin(), kPatterns.end(), pattern);
  return found == kPatterns.end() ? nullptr
                                  : kMakers[static_cast<size_t>(found - kPatterns.begin())]();
}

}  // namespace headrace::text
