#pragma once

// Step 5 of encoding: the special tokens around a text, and where its tokens' offsets end.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/json/value.h"
#include "text/normalize/normal_text.h"

namespace headrace::text {

class PostProcessor {
 public:
  PostProcessor() = default;
  /// From a `post_processor` of tokenizer.json, or null. Throws Error(kUnsupported) that names the
  /// component, Error(kCorruptFile).
  explicit PostProcessor(const json::Value& spec);

  /// Of the special tokens' ids; -1 without any.
  int32_t largest_id() const noexcept;

  bool trims() const noexcept { return !trims_.empty(); }
  /// Moves a token's range of `text` inward, over spaces that its spelling has at its ends.
  /// `first`: no token is before it.
  void trim(std::string_view text, std::string_view spelling, bool first, Range* range) const;

  /// Puts a text's ids and ranges (null: not wanted) where they belong among the special tokens,
  /// which are left out unless `special`.
  void apply(bool special, std::vector<int32_t>* ids, std::vector<Range>* ranges) const;

  /// Whether it says how two texts become one.
  bool has_pair() const noexcept { return !pair_.empty(); }
  /// The ids of two texts, with special tokens, and the type of each. REQUIRES: has_pair().
  void join(std::span<const int32_t> first, std::span<const int32_t> second,
            std::vector<int32_t>* ids, std::vector<int32_t>* types) const;

 private:
  enum class Place : uint8_t { kSpecial, kFirst, kSecond };
  struct Piece {
    Place place = Place::kSpecial;  ///< a text's own ids, or these
    std::vector<int32_t> ids = {};
    int32_t type = 0;  ///< in pair_
  };
  void add(const json::Value& spec, int depth);
  void add_template(const json::Value& spec);
  std::vector<Piece> read_template(const json::Value& spec, const char* key, bool pair) const;
  /// `between`: the end of the first of two texts; `type`: the second's.
  void add_classifier(const json::Value& spec, int between, int32_t type);
  void add_trim(const json::Value& spec);
  void check_alone() const;

  std::vector<bool> trims_;      ///< by step: was a space put in front?
  std::vector<Piece> pieces_;    ///< empty: just the text
  std::vector<Piece> pair_;      ///< of two texts; empty: it doesn't say
  bool without_special_ = true;  ///< pieces_ holds without special tokens, too
};

}  // namespace headrace::text
