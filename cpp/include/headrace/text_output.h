#pragma once

// The text of an output as it grows: ids in, text out, and where a stop string ends it.
//
//   auto tokenizer = headrace::Tokenizer::load(folder);
//   headrace::OutputText text(headrace::Detokenizer(*tokenizer), headrace::StopStrings({"\n\n"}));
//   for (const int32_t id : output.token_ids) std::cout << text.push(id);
//   if (text.match()) request.cancel();
//
// Text is UTF-8, and is given in whole characters: an id's text may come with a later one.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/abi.h"

namespace headrace::text {
class TokenDecoder;
}

namespace headrace::inline v0 {

class Tokenizer;

struct DetokenizerOptions {
  /// Special tokens, such as the one that ends a turn, have no text.
  bool skip_special_tokens = true;
  /// Special tokens that have theirs nevertheless, by name.
  std::vector<std::string> shown;
  /// The ids that the output goes on from, if it is no text of its own: they decide whether its
  /// first space stays.
  std::vector<int32_t> after;
};

/// Turns the ids of one output into text. The texts of all calls, joined, are what the tokenizer
/// decodes from all ids at once; of an output that goes on from a prompt, what it adds to the
/// prompt's text. Copies go on from where the original stands. One thread at a time.
class HEADRACE_API Detokenizer {
 public:
  /// For models without a tokenizer: outputs have ids and no text.
  Detokenizer();
  explicit Detokenizer(const Tokenizer& tokenizer, const DetokenizerOptions& options = {});
  /// Throws Error(kInvalidArgument) for a null one.
  Detokenizer(std::shared_ptr<const text::TokenDecoder> decoder, const DetokenizerOptions& options);
  ~Detokenizer();
  Detokenizer(const Detokenizer& other);
  Detokenizer(Detokenizer&& other) noexcept;
  Detokenizer& operator=(const Detokenizer& other);
  Detokenizer& operator=(Detokenizer&& other) noexcept;

  /// The text that this id settles; "" while later ids could still change it, and for ids that the
  /// tokenizer doesn't have. Throws Error(kLimitExceeded) where a tokenizer's expressions take too
  /// long.
  std::string push(int32_t id);
  /// The text still held back, after the last id.
  std::string finish();
  /// Has an id's text not been given yet?
  bool holding() const noexcept;
  /// False: this tokenizer's decoder gives all text with finish().
  bool streams() const noexcept;

 private:
  class HEADRACE_LOCAL Impl;
  std::unique_ptr<Impl> impl_;  ///< null: no text
};

/// Where a stop string was found, from the start of the output.
struct StopMatch {
  std::string string;
  size_t start = 0;  ///< in bytes
  size_t end = 0;
  size_t start_char = 0;  ///< in characters (code points)
  size_t end_char = 0;

  friend bool operator==(const StopMatch&, const StopMatch&) = default;
};

/// A set of stop strings. Immutable; copies share what searches for them.
class HEADRACE_API StopStrings {
 public:
  /// Throws Error(kInvalidArgument) for an empty one and for one that isn't UTF-8.
  explicit StopStrings(std::span<const std::string> strings);
  StopStrings(std::initializer_list<std::string> strings)
      : StopStrings(std::span<const std::string>(strings.begin(), strings.size())) {}

  struct HEADRACE_LOCAL Set;
  const std::shared_ptr<const Set>& set() const noexcept { return set_; }

 private:
  std::shared_ptr<const Set> set_;
};

struct OutputTextOptions {
  /// Stop strings end the output, but not before it has so many tokens.
  size_t min_tokens = 0;
  /// The stop string that ends the text is part of it.
  bool keeps_string = false;
  /// After a stop string, released() leaves out the tokens whose text isn't part of the output's.
  bool cuts_tokens = true;
};

/// Gives the text that each token settles: nothing later takes it back.
///
/// Without stop strings, text goes out as soon as the detokenizer gives it. With stop strings, text
/// that may be the start of one is held back. When one is found, the text ends before it, and what
/// is pushed after that is ignored. The texts of all calls, joined, are the text of the output. One
/// thread at a time.
class HEADRACE_API OutputText {
 public:
  /// `detokenizer`: a fresh one.
  explicit OutputText(Detokenizer detokenizer, std::optional<StopStrings> stops = std::nullopt,
                      const OutputTextOptions& options = {});
  ~OutputText();
  OutputText(OutputText&& other) noexcept;
  OutputText& operator=(OutputText&& other) noexcept;

  /// Takes a token. `has_text` false: it ends the output and isn't part of its text.
  std::string push(int32_t id, bool has_text = true);
  /// No more tokens: gives what was held back, unless a stop string takes it.
  std::string finish();

  /// The stop string that ended the output.
  const std::optional<StopMatch>& match() const noexcept;
  /// How many of the first tokens are sure to be part of the output. Without stop strings: all.
  /// With stop strings: those whose text has gone out whole. Once one has been found: those whose
  /// decoded text is a prefix of the output's (where the text of thousands of tokens settles at
  /// once, perhaps a few less); all, if the stop string is kept, or without `cuts_tokens`.
  size_t released() const noexcept;

 private:
  class HEADRACE_LOCAL Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace::inline v0
