#pragma once

// Which rows go to which experts.

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/contract/backend.h"

namespace headrace {

/// Pairs [first, first + rows) of an ExpertPairs: rows that an expert meets together.
struct ExpertGroup {
  int32_t expert;
  int32_t first;
  int32_t rows;
};

/// Pairs of a row and one of its experts, of those that a backend has, sorted by expert, then by
/// row, in memory that is given.
class ExpertPairs {
 public:
  /// Most rows of a group: more of one expert make several groups.
  static constexpr int64_t kMostGroupRows = 2048;

  /// What `rows` rows with `top_k` of `experts` experts take, whatever their ids.
  static size_t bytes(int64_t rows, int64_t top_k, int64_t experts);

  /// `memory`: bytes(), aligned to 64. Throws InternalError for an id out of [0, experts), unless
  /// others have experts, too (Experts::first).
  ExpertPairs(std::byte* memory, const Experts& args);

  /// Of each pair.
  const int32_t* rows() const noexcept { return rows_; }
  const float* weights() const noexcept { return weights_; }
  /// Expert by expert.
  std::span<const ExpertGroup> groups() const noexcept { return groups_; }

 private:
  void count(const Experts& args, int64_t experts);
  void sort(const Experts& args, int64_t experts);
  void group(int64_t experts);

  int32_t* rows_;
  float* weights_;
  int32_t* ends_;  ///< [experts], while sorting: where an expert's next pair goes
  ExpertGroup* group_memory_;
  std::span<ExpertGroup> groups_;
};

}  // namespace headrace
