#pragma once

// What a tokenizer.json's `decoder` comes to: a chain of stages from tokens to text.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/decode/stage.h"
#include "text/json/value.h"

namespace headrace::text {

/// Immutable: any thread may use one.
class Decoder {
 public:
  /// REQUIRES: `fused` <= the number of stages.
  Decoder(std::vector<Stage> stages, size_t fused);

  std::span<const Stage> stages() const noexcept { return stages_; }
  /// So many stages at the front are functions of each token alone, whatever stands around it.
  size_t alone() const noexcept { return alone_; }
  /// From this stage on, all tokens are one.
  size_t fused() const noexcept { return fused_; }
  /// From this stage on, text is only known once all of it is there.
  size_t streamed() const noexcept { return streamed_; }
  bool streams() const noexcept { return streamed_ == stages_.size(); }
  bool has(StageKind kind) const noexcept;
  /// It is ByteLevel, and nothing else.
  bool is_byte_level() const noexcept;

  /// What the stages that see a token alone make of it.
  void prepare(std::string* token) const;

 private:
  std::vector<Stage> stages_;
  size_t alone_ = 0;
  size_t fused_ = 0;
  size_t streamed_ = 0;
};

/// From a `decoder` of tokenizer.json: an object with "type", or null. Throws Error(kUnsupported)
/// that names the component, Error(kCorruptFile), and Error(kLimitExceeded) for a chain that is too
/// long or makes texts too long.
Decoder make_decoder(const json::Value& spec);

}  // namespace headrace::text
