#pragma once

// Step 3 of encoding (a "pre-tokenizer"): cuts a text into words, which the model sees one by one.

#include <memory>
#include <vector>

#include "text/fuel.h"
#include "text/json/value.h"
#include "text/normalize/normal_text.h"

namespace headrace::text {

/// A text and the words it is cut into, front to back, none empty, none overlapping. What no word
/// has was removed.
struct Words {
  NormalText text;
  std::vector<Range> ranges;

  /// For splitters, so that they allocate nothing when these live on.
  std::vector<Range> next_ranges;
  std::vector<Range> matches;
};

class Splitter {
 public:
  virtual ~Splitter() = default;
  /// Cuts each word further, as if it were alone (look-ahead ends at its end). May change the text.
  virtual void apply(Words* words, Fuel* fuel) const = 0;
};

/// What a file's `pre_tokenizer` comes to.
struct SplitterSpec {
  std::unique_ptr<const Splitter> splitter;  ///< null: all of a text is one word
  /// It ends with ByteLevel: words are bytes, which the vocabulary spells in the byte-level
  /// alphabet. (The splitter leaves the bytes as they are.)
  bool byte_level = false;
};

/// From a `pre_tokenizer` of tokenizer.json: an object with "type", or null. Throws
/// Error(kUnsupported) that names the component or the regex's part, Error(kCorruptFile).
SplitterSpec make_splitter(const json::Value& spec);

}  // namespace headrace::text
