#pragma once

// How matches of a pattern cut a word: the `behavior` of tokenizer files.

#include <cstdint>
#include <vector>

#include "text/normalize/normal_text.h"

namespace headrace::text {

enum class Behavior : uint8_t {
  kRemoved,             ///< matches vanish
  kIsolated,            ///< each match is a word of its own
  kMergedWithPrevious,  ///< a match belongs to the word in front of it
  kMergedWithNext,      ///< a match belongs to the word behind it
  kContiguous,          ///< neighbouring matches are one word
};

/// Appends the words that `word` is cut into. Without `invert`, matches are as the behavior says
/// and what is between them are the words; with it, the other way round.
void cut_word(Range word, const std::vector<Range>& matches, Behavior behavior, bool invert,
              std::vector<Range>* words);

}  // namespace headrace::text
