#include "grammar/pattern/chars.h"

#include <algorithm>
#include <string>

namespace headrace::grammar {

using text::CharSet;
using text::CodeRange;

namespace {

struct ShortEscape {
  char value;
  char letter;
};
constexpr ShortEscape kShortEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                         {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
constexpr char32_t kDelete = 0x7F;

bool needs_hex(char32_t value) { return value < 0x20 || value == kDelete; }

CharSet all_but_surrogates() {
  CharSet out;
  out.add(0, 0xD7FF);
  out.add(0xE000, text::kLastChar);
  return out;
}

}  // namespace

Expr Chars::any_of(const CharSet& set, Spelling spelling) {
  std::vector<std::pair<char32_t, char32_t>> key;
  for (const CodeRange& range : set.ranges()) key.emplace_back(range.first, range.last);
  const auto [found, is_new] = known_.try_emplace({spelling, std::move(key)}, kNothing);
  if (!is_new) return found->second;
  CharSet valid = all_but_surrogates();
  valid.intersect(set);
  Expr out = kNothing;
  if (spelling == Spelling::kPlain) {
    out = utf8(valid);
  } else {
    CharSet bare;  // what stands for itself
    bare.add(0x20, '"' - 1);
    bare.add('"' + 1, '\\' - 1);
    bare.add('\\' + 1, kDelete - 1);
    bare.add(kDelete + 1, text::kLastChar);
    bare.intersect(valid);
    out = expressions_.choice({utf8(bare), escapes(valid)});
  }
  return found->second = out;
}

Expr Chars::any(Spelling spelling) {
  CharSet set;
  set.add(0, text::kLastChar);
  return any_of(set, spelling);
}

Expr Chars::escapes(const CharSet& set) {
  ByteSet letters;
  for (const ShortEscape& escape : kShortEscapes) {
    if (set.contains(static_cast<unsigned char>(escape.value))) {
      letters.add(static_cast<uint8_t>(escape.letter));
    }
  }
  std::vector<Expr> behind = {expressions_.bytes(letters)};
  const auto hex = [&](unsigned digit) {
    ByteSet out = ByteSet::of(static_cast<uint8_t>("0123456789abcdef"[digit]));
    if (digit > 9) out.add(static_cast<uint8_t>("ABCDEF"[digit - 10]));
    return expressions_.bytes(out);
  };
  std::vector<Expr> codes;
  for (char32_t value = 0; value <= kDelete; ++value) {
    if (needs_hex(value) && set.contains(value)) {
      codes.push_back(expressions_.concat(hex(value >> 4), hex(value & 15)));
    }
  }
  behind.push_back(
      expressions_.concat(expressions_.literal("u00"), expressions_.choice(std::move(codes))));
  return expressions_.concat(expressions_.byte('\\'), expressions_.choice(std::move(behind)));
}

Expr Chars::utf8(const CharSet& set) {
  constexpr CodeRange kSizes[] = {
      {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, text::kLastChar}};
  constexpr unsigned kLeads[] = {0x00, 0xC0, 0xE0, 0xF0};
  std::vector<Expr> parts;
  for (int size = 1; size <= 4; ++size) {
    CharSet own;
    own.add(kSizes[size - 1].first, kSizes[size - 1].last);
    own.intersect(set);
    if (!own.empty()) parts.push_back(led(own.ranges(), kLeads[size - 1], size - 1));
  }
  return expressions_.choice(std::move(parts));
}

/// By the byte that comes next: `lead` and the bits above those of `more` bytes behind it.
Expr Chars::led(const Ranges& ranges, unsigned lead, int more) {
  const int shift = 6 * more;
  std::map<Expr, ByteSet> leads;  // by what follows
  char32_t first = ranges.front().first;
  for (size_t i = 0; i < ranges.size();) {
    const char32_t block = first >> shift;
    const char32_t base = block << shift;
    const char32_t last = base + (char32_t{1} << shift) - 1;
    Ranges inside;
    while (i < ranges.size() && first <= last) {
      inside.push_back({first - base, std::min(ranges[i].last, last) - base});
      if (ranges[i].last > last) {
        first = last + 1;
      } else if (++i < ranges.size()) {
        first = ranges[i].first;
      }
    }
    leads[continued(inside, more)].add(static_cast<uint8_t>(lead | block));
  }
  std::vector<Expr> parts;
  for (const auto& [rest, set] : leads) {
    parts.push_back(expressions_.concat(expressions_.bytes(set), rest));
  }
  return expressions_.choice(std::move(parts));
}

Expr Chars::continued(const Ranges& ranges, int bytes) {
  constexpr unsigned kFirst = 0x80;
  if (bytes == 0) return kEmpty;
  const bool whole = ranges.front() == CodeRange{0, (char32_t{1} << (6 * bytes)) - 1};
  if (!whole) return led(ranges, kFirst, bytes - 1);
  const Expr any = expressions_.bytes(ByteSet::range(kFirst, 0xBF));
  return expressions_.concat(
      any,
      bytes == 1 ? kEmpty : continued({{0, (char32_t{1} << (6 * (bytes - 1))) - 1}}, bytes - 1));
}

std::string quoted_text(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto value = static_cast<unsigned char>(c);
    const auto* const escape = std::ranges::find(kShortEscapes, c, &ShortEscape::value);
    if (escape != std::end(kShortEscapes)) {
      out += {'\\', escape->letter};
    } else if (needs_hex(value)) {
      out += "\\u00";
      out += {kDigits[value >> 4], kDigits[value & 15]};
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace headrace::grammar
