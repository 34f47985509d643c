#pragma once

// The kinds of splitters.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/regex/regex.h"
#include "text/split/pieces.h"
#include "text/split/splitter.h"

namespace headrace::text {

class SequenceSplitter final : public Splitter {
 public:
  explicit SequenceSplitter(std::vector<std::unique_ptr<const Splitter>> steps)
      : steps_(std::move(steps)) {}
  void apply(Words* words, Fuel* fuel) const override;

 private:
  std::vector<std::unique_ptr<const Splitter>> steps_;
};

/// `Split`.
class RegexSplitter final : public Splitter {
 public:
  RegexSplitter(std::shared_ptr<const Regex> regex, Behavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}
  void apply(Words* words, Fuel* fuel) const override;

 private:
  std::shared_ptr<const Regex> regex_;
  Behavior behavior_;
  bool invert_;
};

/// `Digits`, `Punctuation`, `WhitespaceSplit`: each character with one of the flags is a match.
class FlagSplitter final : public Splitter {
 public:
  FlagSplitter(uint16_t flags, Behavior behavior) : flags_(flags), behavior_(behavior) {}
  void apply(Words* words, Fuel* fuel) const override;

 private:
  uint16_t flags_;
  Behavior behavior_;
};

/// `Whitespace`: runs of word characters and runs of what is neither those nor space.
class WordRunSplitter final : public Splitter {
 public:
  void apply(Words* words, Fuel* fuel) const override;
};

/// `FixedLength`, in characters.
class LengthSplitter final : public Splitter {
 public:
  explicit LengthSplitter(size_t length) : length_(length) {}
  void apply(Words* words, Fuel* fuel) const override;

 private:
  size_t length_;
};

/// ByteLevel's `add_prefix_space`: a space before each word that has none in front.
class PrefixSpacer final : public Splitter {
 public:
  void apply(Words* words, Fuel* fuel) const override;
};

/// `Metaspace`.
class MetaspaceSplitter final : public Splitter {
 public:
  enum class Prepend : uint8_t { kAlways, kFirst, kNever };
  MetaspaceSplitter(std::string mark, Prepend prepend, bool split)
      : mark_(std::move(mark)), prepend_(prepend), split_(split) {}
  void apply(Words* words, Fuel* fuel) const override;

 private:
  std::string mark_;  ///< one character
  Prepend prepend_;
  bool split_;
};

}  // namespace headrace::text
