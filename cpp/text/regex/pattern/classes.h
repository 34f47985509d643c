#pragma once

// Named classes of characters, and characters that differ only in case.

#include <optional>
#include <string_view>
#include <vector>

#include "text/regex/pattern/char_set.h"

namespace headrace::text {

/// `\p{name}`: a general category, a script, or one of a few properties. Spaces, hyphens,
/// underscores and case don't matter. Nothing: not known. words: what \p{Word} is here.
std::optional<CharSet> property_set(std::string_view name, CharSet (*words)());

/// `[[:name:]]`.
std::optional<CharSet> posix_set(std::string_view name);

CharSet word_set();        ///< \w within brackets: as [[:word:]]
CharSet outer_word_set();  ///< \w elsewhere, and what \b goes by: six characters more
CharSet digit_set();       ///< \d
CharSet space_set();       ///< \s
CharSet hex_set();         ///< \h

/// All characters that are this one in some case, itself too.
std::vector<char32_t> same_but_case(char32_t value);

/// Adds what differs from a character of the set only in case.
void close_over_case(CharSet* set);

/// May this character, alone or with the one behind it, be another number of characters in another
/// case, as ß is ss? `next` 0: no character behind it.
bool folds_to_several(char32_t value, char32_t next);
bool any_folds_to_several(const CharSet& set);

}  // namespace headrace::text
