#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace headrace {

/// The n-grams of a growing sequence, and which tokens would repeat one. A token costs O(n), the
/// memory is linear in the sequence, whatever its tokens are. Not thread safe.
class NgramIndex {
 public:
  /// REQUIRES: n >= 1.
  NgramIndex(int32_t n, std::span<const int32_t> tokens);
  NgramIndex(const NgramIndex&) = delete;
  NgramIndex& operator=(const NgramIndex&) = delete;

  void append(int32_t token);

  /// The tokens that have followed the last n - 1 ones earlier, each once. Valid until the next
  /// call of any method.
  std::span<const int32_t> followers();

 private:
  /// Keys of the tables are places in tokens_: of the last token of an n-gram, or of the token
  /// behind n - 1 others. Tokens are compared where hashes are equal.
  struct Hash {
    const NgramIndex* index;
    bool with_last;
    size_t operator()(size_t place) const;
  };
  struct Equal {
    const NgramIndex* index;
    bool with_last;
    bool operator()(size_t a, size_t b) const;
  };

  /// The n - 1 tokens before `place`, and the one there too.
  std::span<const int32_t> tokens_at(size_t place, bool with_last) const;

  static constexpr size_t kNone = static_cast<size_t>(-1);

  const size_t before_;  ///< n - 1
  std::vector<int32_t> tokens_;
  std::unordered_set<size_t, Hash, Equal> ngrams_;
  /// Behind n - 1 tokens -> the last place where they got a new follower.
  std::unordered_map<size_t, size_t, Hash, Equal> contexts_;
  std::vector<size_t> earlier_;  ///< for each such place the one before it, or kNone
  std::vector<int32_t> followers_;
};

}  // namespace headrace
