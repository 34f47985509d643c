#pragma once

#include <cstdint>
#include <memory>

#include "backend/contract/backend.h"
#include "model/blocks/carver.h"
#include "model/decoder/scratch.h"
#include "model/sources/model_sources.h"
#include "model/weights/weight_reader.h"

namespace headrace {

/// What layers get of each token beside the residual (Gemma 4's per-layer embeddings). P numbers
/// for each of L layers; e is the token's embedding as the first layer gets it:
///   p_l = (norm(projection_l . e / sqrt(H)) + sqrt(P) * table_l[token]) / sqrt(2)
class PerLayerInputs {
 public:
  /// Reads the projection; the table is read first, because it lies in the file first.
  PerLayerInputs(const ModelConfig& config, const PerLayerInputSources& sources,
                 WeightReader& reader);

  void place(const ScratchSizes& sizes, Carver& carver);
  static void measure(const ScratchSizes& sizes, Carver& carver);

  /// step.per_layer = the inputs of the step's tokens, whose embeddings step.residual has.
  void run(Backend& backend, const StepRows& step) const;

  /// The table's bytes, of which a token reads a row.
  size_t idle_bytes() const { return table_->bytes(); }

 private:
  float projection_scale_, table_scale_, norm_eps_;
  int64_t size_;  // P
  std::unique_ptr<PackedWeight> table_, projection_;
  DeviceVector norm_;
  TensorView rows_;  // [T, L P] of the table
};

}  // namespace headrace
