#pragma once

// Finds many strings at once (Aho and Corasick, 1975): each byte of a text is looked at once,
// whatever the strings.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::text {

/// The automaton, for texts that come piece by piece. 17 bytes a state, one state a byte of the
/// strings at most. Immutable: any thread may use one.
class MultiMatch {
 public:
  static constexpr uint32_t kNone = static_cast<uint32_t>(-1);

  MultiMatch() = default;
  /// REQUIRES: no string is empty, and together they have less than 2^32 bytes. Of equal strings
  /// the first counts. reversed: the strings and texts are read from their ends, so that what ends
  /// in a state is what begins at a place of the text.
  explicit MultiMatch(std::span<const std::string> strings, bool reversed = false);

  bool empty() const noexcept { return labels_.size() <= 1; }

  /// States: 0 is the start.
  uint32_t step(uint32_t state, char byte) const noexcept {
    while (state != 0) {
      const uint32_t child = child_of(state, byte);
      if (child != kNone) return child;
      state = fail_[state];
    }
    return root_[static_cast<uint8_t>(byte)];
  }
  /// The number of the longest string that ends in this state, or kNone.
  uint32_t longest_at(uint32_t state) const noexcept { return longest_[state]; }
  /// How many of the last bytes may be the start of a string that goes on.
  uint32_t held(uint32_t state) const noexcept { return held_[state]; }
  /// Does no string begin with this byte (end, if reversed)?
  bool stays(char byte) const noexcept { return root_[static_cast<uint8_t>(byte)] == 0; }

  size_t memory_bytes() const noexcept;

 private:
  void add_states(const std::vector<std::string_view>& sorted, const std::vector<uint32_t>& order);
  void link();
  uint32_t child_of(uint32_t state, char byte) const noexcept;

  // States are numbered by breadth: the children of one stand side by side, ordered by their bytes.
  std::vector<char> labels_;           ///< the byte that leads to a state
  std::vector<uint32_t> first_child_;  ///< one more than states
  std::vector<uint32_t> fail_;         ///< the longest proper suffix that is a state
  std::vector<uint32_t> longest_;
  std::vector<uint32_t> held_;
  std::array<uint32_t, 256> root_{};
};

}  // namespace headrace::text
