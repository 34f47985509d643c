#include "model/blocks/modality_rows.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {

ModalityRows::ModalityRows(int32_t max_rows) {
  const auto count = static_cast<size_t>(max_rows);
  for (auto* rows : {&step_rows_, &chosen_}) rows->reserve(count);
  for (auto* rows : {&sorted_, &places_}) rows->reserve(count);
}

void ModalityRows::begin(std::span<const Modality> modalities, int64_t rows) {
  HEADRACE_CHECK(modalities.empty() || static_cast<int64_t>(modalities.size()) == rows, rows);
  step_rows_.assign(modalities.begin(), modalities.end());
  chosen_ = step_rows_;
  num_rows_ = rows;
  sort_rows();
}

void ModalityRows::choose(std::span<const int32_t> rows) {
  num_rows_ = static_cast<int64_t>(rows.size());
  chosen_.clear();
  for (size_t i = 0; i < rows.size() && !step_rows_.empty(); ++i) {
    chosen_.push_back(step_rows_[static_cast<size_t>(rows[i])]);
  }
  sort_rows();
}

void ModalityRows::sort_rows() {
  sorted_.clear();
  places_.clear();
  const auto num_vision = std::ranges::count(chosen_, Modality::kVision);
  num_text_ = num_rows_ - num_vision;
  if (num_vision == 0 || num_text_ == 0) return;
  for (const Modality wanted : {Modality::kText, Modality::kVision}) {
    for (size_t i = 0; i < chosen_.size(); ++i) {
      if (chosen_[i] == wanted) sorted_.push_back(static_cast<int32_t>(i));
    }
  }
  places_.resize(sorted_.size());
  for (size_t i = 0; i < sorted_.size(); ++i) {
    places_[static_cast<size_t>(sorted_[i])] = static_cast<int32_t>(i);
  }
}

}  // namespace headrace
