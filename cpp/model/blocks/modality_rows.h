#pragma once

// Says which rows of a step are text and which are vision, for blocks that treat them differently.

#include <cstdint>
#include <span>
#include <vector>

#include "backend/contract/step_batch.h"

namespace headrace {

/// Allocates at construction only.
class ModalityRows {
 public:
  explicit ModalityRows(int32_t max_rows);

  /// Begins a step of `rows` rows. REQUIRES: `modalities` has one entry for each row, or is empty
  /// (all rows are text).
  void begin(std::span<const Modality> modalities, int64_t rows);
  /// From now on row i is row rows[i] of the step.
  void choose(std::span<const int32_t> rows);

  int64_t num_text() const noexcept { return num_text_; }
  int64_t num_vision() const noexcept { return num_rows_ - num_text_; }
  /// If the step has rows of both kinds: all rows, text first, each kind in order. Otherwise empty.
  /// This and places() are valid until the next call of begin() or choose().
  std::span<const int32_t> sorted() const noexcept { return sorted_; }
  /// The index of each row in sorted().
  std::span<const int32_t> places() const noexcept { return places_; }

 private:
  void sort_rows();

  std::vector<Modality> step_rows_;  // all rows of the step; empty: all text
  std::vector<Modality> chosen_;     // the rows in use
  int64_t num_rows_ = 0, num_text_ = 0;
  std::vector<int32_t> sorted_, places_;
};

}  // namespace headrace
