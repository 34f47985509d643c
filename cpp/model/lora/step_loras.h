#pragma once

// Which rows of a step use which adapter, as Backend::lora wants it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/contract/backend.h"
#include "model/lora/lora_adapter.h"
#include "model/sources/sources.h"

namespace headrace {

/// Allocates at construction only.
class StepLoras {
 public:
  StepLoras(int32_t max_rows, int32_t max_loras);

  /// A new step: rows are those of `seqs`, which name `adapters` by number. REQUIRES: at most
  /// max_rows, at most max_loras adapters, none of them null.
  void begin(std::span<const SeqSlice> seqs, std::span<const LoraAdapter* const> adapters);
  /// From now on row i is row rows[i] of the step.
  void choose(std::span<const int32_t> rows);
  /// Empty if no row's adapter adds to the linear of that number (MatrixSource::site). Valid until
  /// the next call of any method.
  std::span<const LoraGroup> groups(int32_t site);

 private:
  void sort_rows();

  size_t max_loras_;
  std::vector<const LoraAdapter*> adapters_;  // of the step
  std::vector<int32_t> step_rows_;            // [T] SeqSlice::adapter of each row
  std::vector<int32_t> chosen_;               // the same of the rows in use
  std::vector<int32_t> rows_;                 // rows in use that have an adapter, by adapter
  std::vector<size_t> ends_;                  // of each adapter's share of rows_
  std::vector<LoraGroup> groups_;
};

}  // namespace headrace
