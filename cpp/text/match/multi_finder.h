#pragma once

// Cuts texts at the strings of a set, as a lexer does: leftmost first, the longest of those.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/match/multi_match.h"

namespace headrace::text {

/// Immutable: any thread may use one.
class MultiFinder {
 public:
  MultiFinder() = default;
  /// REQUIRES: no string is empty. Of equal strings the first counts.
  explicit MultiFinder(std::span<const std::string> strings);

  bool empty() const noexcept { return lengths_.empty(); }
  size_t memory_bytes() const noexcept {
    return automaton_.memory_bytes() + sizeof(uint32_t) * lengths_.size();
  }

  struct Found {
    uint32_t string = 0;  ///< its number
    size_t begin = 0;
    size_t end = 0;
  };

  /// One walk over a text, which has to stay, as has the finder.
  class Search {
   public:
    Search(const MultiFinder& finder, std::string_view text) : finder_(finder), text_(text) {}
    /// The leftmost string that begins behind the last one's end, and of those at one place the
    /// longest. All calls together look at each byte twice at most, whatever the strings: the text
    /// is read from its end, a block at a time, so that nothing is tried in vain.
    std::optional<Found> next();

   private:
    void read_block();

    const MultiFinder& finder_;
    const std::string_view text_;
    size_t at_ = 0;                                    ///< where the next string may begin
    size_t block_end_ = 0;                             ///< beginnings before it have been read
    std::vector<std::pair<size_t, uint32_t>> starts_;  ///< in the block, the last one first
  };

 private:
  MultiMatch automaton_;  ///< of the strings read backwards
  std::vector<uint32_t> lengths_;
  size_t longest_ = 0;
  int only_last_byte_ = -1;  ///< the one that all strings end with; -1: there are several
};

}  // namespace headrace::text
