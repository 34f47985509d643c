#pragma once

#include <cstdint>
#include <vector>

#include "model/blocks/block.h"
#include "model/sources/model_sources.h"
#include "model/weights/weight_reader.h"

namespace headrace {

/// What a token's embedding has beside the vocabulary's row: a row by its position, one by its
/// token type, and a norm.
class EmbeddingTables {
 public:
  /// For steps of up to `max_rows` rows.
  EmbeddingTables(WeightReader& reader, const ModelSources& sources, int32_t max_rows);

  /// Whether there is neither table.
  bool empty() const noexcept { return positions_.rows() + token_types_.rows() == 0; }
  /// step.residual = norm(residual + the rows' positions + their token types). step.delta is lost.
  /// Moves 8*T*H*act bytes with both tables. REQUIRES: with tables T rows of the batch, at
  /// positions and of types that the tables have.
  void add(const BlockContext& context, const StepBatch& batch, const StepRows& step) const;

 private:
  DeviceVector position_numbers_, type_numbers_;
  TensorView positions_, token_types_;  // [rows, H]; without a table [0, H]
  DeviceNorm norm_;
  const std::vector<int32_t> first_type_;  // of every row, where a batch names none
};

}  // namespace headrace
