#pragma once

#include <optional>
#include <span>
#include <vector>

#include "model/blocks/linear.h"
#include "model/decoder/scratch.h"
#include "model/sources/model_sources.h"

namespace headrace {

/// The layers behind pooling (ModelSources::pool_head), with their weights and scratch. A row's
/// result depends on that row alone.
class PoolHead {
 public:
  void read(WeightReader& reader, const ModelSources& sources);
  /// Takes its scratch, for the largest number of logit rows.
  void place(const ScratchSizes& sizes, Carver& carver);
  static void measure(const ModelSources& sources, const ScratchSizes& sizes, Carver& carver);

  /// [n, outputs] act, until the next call, of rows [n, H] in host memory. REQUIRES: layers.
  TensorView run(const BlockContext& context, std::span<const float> pooled) const;

 private:
  struct Layer {
    Linear linear;
    std::optional<Activation> activation;
    DeviceNorm norm;
    TensorView out;  // [S, outputs]
  };

  std::vector<Layer> layers_;
  TensorView in_;  // [S, H]
};

}  // namespace headrace
