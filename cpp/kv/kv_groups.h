#pragma once

// KvGroups: which blocks of a sequence each group of a cache's layers needs (CacheLayout).
// KvTables: a sequence's blocks.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/checked_math.h"

namespace headrace {

/// A column is a block of each group for the same block_size positions.
struct KvGroups {
  int32_t block_size = 64;
  /// By group: a row at position p reads the group's blocks of positions (p - window, p]; 0: of
  /// [0, p]. Blocks behind a window are given back.
  std::vector<int32_t> windows = {0};
  int32_t step_rows = 512;  ///< most rows of a sequence in one step

  size_t size() const noexcept { return windows.size(); }
  bool slides(size_t group) const noexcept { return windows[group] > 0; }
  bool any_slides() const noexcept {
    return std::ranges::any_of(windows, [](int32_t w) { return w > 0; });
  }
  bool all_slide() const noexcept {
    return std::ranges::all_of(windows, [](int32_t w) { return w > 0; });
  }
  /// The first column whose block a row at `position`, or behind it, reads.
  int32_t first_read(size_t group, int32_t position) const noexcept {
    return slides(group) ? std::max(0, position - windows[group] + 1) / block_size : 0;
  }
  /// Columns of which a group holds a block at a time, if a sequence of `columns` has up to `rows`
  /// rows that are planned but not committed, or planned next. Beside what those read and write,
  /// that is a block to grow into, and the last one published.
  int64_t held_columns(size_t group, int64_t columns, int64_t rows) const noexcept {
    if (!slides(group)) return columns;
    rows = std::min(rows, 2 * int64_t{step_rows});
    return std::min(columns, ceil_div(windows[group] - 1 + rows, int64_t{block_size}) + 2);
  }
  /// Most blocks that a sequence of so many tokens holds at a time.
  int64_t most_blocks(int64_t tokens) const noexcept {
    const int64_t columns = ceil_div(tokens, int64_t{block_size});
    int64_t blocks = 0;
    for (size_t g = 0; g < size(); ++g) blocks += held_columns(g, columns, tokens);
    return blocks;
  }
  /// Most tokens of a sequence that has so many blocks for itself.
  int64_t most_tokens(int32_t blocks) const noexcept {
    constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
    // A group that keeps all rows has a block of every column.
    int64_t low = 0, high = all_slide() ? kMostTokens / block_size : blocks;
    while (low < high) {
      const int64_t middle = high - (high - low) / 2;
      if (most_blocks(middle * block_size) <= blocks) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low * block_size;
  }
};

struct KvTables {
  explicit KvTables(size_t num_groups) : groups(num_groups), first(num_groups, 0) {}

  /// By group, all of one length: the blocks of columns 0, 1, ...
  std::vector<std::vector<int32_t>> groups;
  std::vector<int32_t>
      first;  ///< by group: blocks of columns before it are given back, or not held
  /// Columns that were found cached for its tokens: with states more than it has begun with,
  /// perhaps.
  int32_t found = 0;
  /// False: the index had no room for its chain. From there on nothing of it is published.
  bool listed = true;

  int32_t columns() const noexcept { return static_cast<int32_t>(groups.front().size()); }
  int32_t held(size_t group) const noexcept { return columns() - first[group]; }
  void reserve(int32_t columns) {
    for (auto& table : groups) table.reserve(static_cast<size_t>(columns));
  }
};

}  // namespace headrace
