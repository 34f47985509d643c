#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

/// Guesses what comes next by what came after the same tokens before: the longest suffix of
/// min_ngram to max_ngram tokens that occurs earlier, of equals the latest. A token costs O(1), a
/// guess O(max_ngram x candidates), whatever the tokens are. Not thread safe.
class PromptLookup {
 public:
  /// REQUIRES: 1 <= min_ngram <= max_ngram.
  PromptLookup(int32_t min_ngram, int32_t max_ngram, std::span<const int32_t> tokens);

  void append(int32_t token);
  /// Replaces `out` by `count` tokens that may come next, or by none. What was found may be the
  /// beginning of a loop: then it is repeated.
  void guess(int32_t count, std::vector<int32_t>& out) const;

 private:
  /// Earlier places of one suffix that are looked at.
  static constexpr int kMaxCandidates = 16;
  static constexpr int32_t kNone = -1;

  void rehash();
  size_t bucket_of(size_t end) const;
  int32_t match_length(size_t end) const;

  const size_t min_ngram_;
  const int32_t max_ngram_;
  std::vector<int32_t> tokens_;
  // A place is the end (one past the last token) of min_ngram tokens.
  std::vector<int32_t> latest_;   // [a power of 2] by hash; place or kNone
  std::vector<int32_t> earlier_;  // [tokens + 1] the place before it in the same bucket
};

}  // namespace headrace
