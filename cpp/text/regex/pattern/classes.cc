#include "text/regex/pattern/classes.h"

#include <algorithm>
#include <array>
#include <string>

#include "text/regex/tables/tables.h"

namespace headrace::text {

namespace {

std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != ' ' && c != '-' && c != '_') {
      plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    }
  }
  return plain;
}

/// Runs of a table (start << 8 | index) whose index is `wanted`.
template <class Wanted>
CharSet runs_of(std::span<const uint32_t> table, const Wanted& wanted) {
  CharSet set;
  for (size_t i = 0; i < table.size(); ++i) {
    if (wanted(table[i] & 0xFF)) {
      set.add(table[i] >> 8, i + 1 < table.size() ? (table[i + 1] >> 8) - 1 : kLastChar);
    }
  }
  return set;
}

/// All categories named in `names`, each by its two letters, or by the first of them and a space.
CharSet categories(std::string_view names) {
  CharSet set = runs_of(tables::kCategories, [&](size_t index) {
    const std::string_view own = tables::kCategoryNames[index];
    for (size_t at = 0; at + 1 < names.size(); at += 2) {
      if (names[at] == own[0] && (names[at + 1] == ' ' || names[at + 1] == own[1])) {
        return true;
      }
    }
    return false;
  });
  if (names.find("Cn") != std::string_view::npos || names.find("C ") != std::string_view::npos ||
      names.find("Cs") != std::string_view::npos) {
    // Surrogates are no characters; the table doesn't tell them from what isn't assigned.
    CharSet surrogates;
    surrogates.add(0xD800, 0xDFFF);
    surrogates.negate();
    set.intersect(surrogates);
  }
  return set;
}

struct Alias {
  std::string_view name;
  std::string_view categories;  ///< as `categories` takes them
};

constexpr std::array kLongNames = {
    Alias{"letter", "L "},
    Alias{"lc", "LuLlLt"},
    Alias{"casedletter", "LuLlLt"},
    Alias{"uppercaseletter", "Lu"},
    Alias{"lowercaseletter", "Ll"},
    Alias{"titlecaseletter", "Lt"},
    Alias{"modifierletter", "Lm"},
    Alias{"otherletter", "Lo"},
    Alias{"mark", "M "},
    Alias{"combiningmark", "M "},
    Alias{"nonspacingmark", "Mn"},
    Alias{"spacingmark", "Mc"},
    Alias{"enclosingmark", "Me"},
    Alias{"number", "N "},
    Alias{"decimalnumber", "Nd"},
    Alias{"letternumber", "Nl"},
    Alias{"othernumber", "No"},
    Alias{"punctuation", "P "},
    Alias{"connectorpunctuation", "Pc"},
    Alias{"dashpunctuation", "Pd"},
    Alias{"openpunctuation", "Ps"},
    Alias{"closepunctuation", "Pe"},
    Alias{"initialpunctuation", "Pi"},
    Alias{"finalpunctuation", "Pf"},
    Alias{"otherpunctuation", "Po"},
    Alias{"symbol", "S "},
    Alias{"mathsymbol", "Sm"},
    Alias{"currencysymbol", "Sc"},
    Alias{"modifiersymbol", "Sk"},
    Alias{"othersymbol", "So"},
    Alias{"separator", "Z "},
    Alias{"spaceseparator", "Zs"},
    Alias{"lineseparator", "Zl"},
    Alias{"paragraphseparator", "Zp"},
    Alias{"other", "C "},
    Alias{"control", "Cc"},
    Alias{"format", "Cf"},
    Alias{"privateuse", "Co"},
    Alias{"unassigned", "Cn"},
};

std::optional<CharSet> category_set(std::string_view plain) {
  for (const std::string_view own : tables::kCategoryNames) {
    const std::string two = plain_name(own);
    if (plain == two) {
      return categories(own);
    }
    if (plain.size() == 1 && plain[0] == two[0]) {
      return categories(std::string{own[0], ' '});
    }
  }
  const auto* found = std::find_if(kLongNames.begin(), kLongNames.end(),
                                   [&](const Alias& alias) { return alias.name == plain; });
  return found == kLongNames.end() ? std::nullopt : std::optional(categories(found->categories));
}

std::optional<CharSet> script_set(std::string_view plain) {
  const auto names = tables::kScriptNames;
  const auto found = std::find(names.begin() + 1, names.end(), plain);
  if (found == names.end()) {
    return std::nullopt;
  }
  const auto index = static_cast<size_t>(found - names.begin());
  return runs_of(tables::kScripts, [&](size_t own) { return own == index; });
}

CharSet united(CharSet set, const CharSet& other) {
  set.add(other);
  return set;
}

CharSet between(char32_t first, char32_t last) {
  CharSet set;
  set.add(first, last);
  return set;
}

}  // namespace

CharSet alphabetic_set() { return united(categories("L Nl"), CharSet(tables::kOtherAlphabetic)); }
CharSet word_set() { return united(alphabetic_set(), categories("M NdPc")); }
CharSet outer_word_set() {
  // Superscript digits and fractions of Latin-1.
  CharSet set = word_set();
  set.add(0xB2, 0xB3);
  set.add(0xB9, 0xB9);
  set.add(0xBC, 0xBE);
  return set;
}
CharSet digit_set() { return categories("Nd"); }
CharSet space_set() { return united(categories("Z "), CharSet(tables::kOtherWhiteSpace)); }
CharSet hex_set() {
  return united(united(between('0', '9'), between('A', 'F')), between('a', 'f'));
}

std::optional<CharSet> posix_set(std::string_view name) {
  if (name == "alpha") {
    return alphabetic_set();
  }
  if (name == "alnum") {
    return united(alphabetic_set(), digit_set());
  }
  if (name == "upper") {
    return united(categories("Lu"), CharSet(tables::kOtherUppercase));
  }
  if (name == "lower") {
    return united(categories("Ll"), CharSet(tables::kOtherLowercase));
  }
  if (name == "digit") {
    return digit_set();
  }
  if (name == "space") {
    return space_set();
  }
  if (name == "word") {
    return word_set();
  }
  if (name == "xdigit") {
    return hex_set();
  }
  if (name == "ascii") {
    return between(0, 0x7F);
  }
  if (name == "blank") {
    return united(categories("Zs"), between('\t', '\t'));
  }
  if (name == "cntrl") {
    return categories("Cc");
  }
  if (name == "punct") {
    return categories("P S ");
  }
  return std::nullopt;
}

std::optional<CharSet> property_set(std::string_view name, CharSet (*words)()) {
  const std::string plain = plain_name(name);
  if (plain == "any") {
    return between(0, kLastChar);
  }
  if (plain == "alphabetic" || plain == "uppercase" || plain == "lowercase") {
    return posix_set(plain.substr(0, 5));
  }
  if (plain == "punct") {
    return categories("P ");
  }
  if (plain == "word") {
    return words();
  }
  if (plain == "whitespace") {
    return space_set();
  }
  for (const auto& find : {category_set, posix_set, script_set}) {
    if (std::optional<CharSet> set = find(plain)) {
      return set;
    }
  }
  return std::nullopt;
}

namespace {

/// The next character that is `value` in another case; itself if there is none.
char32_t next_case(char32_t value) {
  const auto folds = tables::kFolds;
  const auto found = std::partition_point(
      folds.begin(), folds.end(), [&](const tables::Fold& fold) { return fold.last < value; });
  if (found == folds.end() || value < found->first ||
      (value - found->first) % static_cast<uint32_t>(found->step) != 0) {
    return value;
  }
  return static_cast<char32_t>(static_cast<int32_t>(value) + found->delta);
}

}  // namespace

std::vector<char32_t> same_but_case(char32_t value) {
  std::vector<char32_t> all = {value};
  for (char32_t next = next_case(value); next != value; next = next_case(next)) {
    all.push_back(next);
  }
  return all;
}

void close_over_case(CharSet* set) {
  CharSet others;
  for (const tables::Fold& fold : tables::kFolds) {
    for (char32_t c = fold.first; c <= fold.last; c += static_cast<uint32_t>(fold.step)) {
      if (set->contains(c)) {
        for (const char32_t other : same_but_case(c)) {
          others.add(other, other);
        }
      }
    }
  }
  set->add(others);
}

bool folds_to_several(char32_t value, char32_t next) {
  const auto folding = tables::kLongFolding;
  if (std::binary_search(folding.begin(), folding.end(), static_cast<uint32_t>(value))) {
    return true;
  }
  const auto values = same_but_case(value);
  const auto nexts = same_but_case(next);
  const auto has = [](const std::vector<char32_t>& all, char32_t wanted) {
    return std::find(all.begin(), all.end(), wanted) != all.end();
  };
  return std::any_of(
      tables::kLongFoldStarts.begin(), tables::kLongFoldStarts.end(),
      [&](const CodeRange& start) { return has(values, start.first) && has(nexts, start.last); });
}

bool any_folds_to_several(const CharSet& set) {
  return std::any_of(tables::kLongFolding.begin(), tables::kLongFolding.end(),
                     [&](uint32_t value) { return set.contains(value); });
}

}  // namespace headrace::text
