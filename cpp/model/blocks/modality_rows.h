#pragma once

// Which rows of a step are text and which are vision, for blocks that treat them apart.

#include <cstdint>
#include <span>
#include <vector>

#include "backend/contract/step_batch.h"

namespace headrace {

/// Allocates at construction only.
class ModalityRows {
 public:
  explicit ModalityRows(int32_t max_rows);

  /// A new step of `rows` rows. REQUIRES: `modalities` has one for each, or is empty: all text.
  void begin(std::span<const Modality> modalities, int64_t rows);
  /// From now on row i is row rows[i] of the step.
  void choose(std::span<const int32_t> rows);

  int64_t num_text() const noexcept { return num_text_; }
  int64_t num_vision() const noexcept { return num_rows_ - num_text_; }
  /// With rows of both: all of them, those of text first, each kind in order. Else empty. Valid
  /// until the next call of begin() or choose(), likewise below.
  std::span<const int32_t> sorted() const noexcept { return sorted_; }
  /// Where each row is among those.
  std::span<const int32_t> places() const noexcept { return places_; }

 private:
  void sort_rows();

  std::vector<Modality> step_rows_;  // of the step; empty: all text
  std::vector<Modality> chosen_;     // of the rows in use
  int64_t num_rows_ = 0, num_text_ = 0;
  std::vector<int32_t> sorted_, places_;
};

}  // namespace headrace
