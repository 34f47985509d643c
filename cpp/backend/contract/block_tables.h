#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

/// An entry of a block table whose block has been given back.
inline constexpr int32_t kNoBlock = -1;

/// A sequence's block tables, one for each group of the cache (cache_layout.h), all of one length,
/// or one for all groups, where what a block holds doesn't matter.
/// Entry i has positions [i * block_size, (i + 1) * block_size). The tables are the caller's.
class BlockTables {
 public:
  BlockTables() = default;
  /// Of the only group, or of each.
  template <class Range>
    requires std::convertible_to<const Range&, std::span<const int32_t>>
  BlockTables(const Range& table) : only_(table) {}  // NOLINT
  /// By group.
  template <class Range>
    requires std::convertible_to<const Range&, std::span<const std::vector<int32_t>>>
  BlockTables(const Range& tables) : tables_(tables) {}  // NOLINT

  std::span<const int32_t> operator[](int32_t group) const {
    return tables_.empty() ? only_ : tables_[static_cast<size_t>(group)];
  }
  /// 0: one table is for all groups.
  int32_t num_tables() const noexcept { return static_cast<int32_t>(tables_.size()); }
  bool has(int32_t group) const noexcept {
    return group >= 0 && (tables_.empty() || group < num_tables());
  }
  /// Entries of each.
  size_t size() const noexcept { return tables_.empty() ? only_.size() : tables_.front().size(); }

 private:
  std::span<const int32_t> only_;
  std::span<const std::vector<int32_t>> tables_;
};

}  // namespace headrace
