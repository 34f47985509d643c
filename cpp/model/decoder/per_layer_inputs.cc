#include "model/decoder/per_layer_inputs.h"

#include <cmath>
#include <numbers>

namespace headrace {

namespace {

TensorView place_rows(const ScratchSizes& sizes, Carver& carver) {
  return carver.matrix(sizes.limits.rows, sizes.per_layer, sizes.limits.activation);
}

}  // namespace

PerLayerInputs::PerLayerInputs(const ModelConfig& config, const PerLayerInputSources& sources,
                               WeightReader& reader)
    : projection_scale_(1.0f / std::sqrt(static_cast<float>(config.hidden_size))),
      table_scale_(std::sqrt(static_cast<float>(config.per_layer_input))),
      norm_eps_(config.norm.eps),
      size_(config.per_layer_input),
      table_(reader.matrix(sources.table)),
      projection_(reader.matrix(sources.projection)),
      norm_(reader.vector(sources.norm)) {}

void PerLayerInputs::measure(const ScratchSizes& sizes, Carver& carver) {
  place_rows(sizes, carver);
}

void PerLayerInputs::place(const ScratchSizes& sizes, Carver& carver) {
  rows_ = place_rows(sizes, carver);
}

void PerLayerInputs::run(Backend& backend, const StepRows& step) const {
  const TensorView& out = step.per_layer;
  const TensorView rows = rows_.first_rows(out.rows());
  backend.linear(step.residual, *projection_, {}, out);
  backend.scale(out, projection_scale_, out);
  const TensorView pieces(out.data, out.dtype, {out.rows() * out.cols() / size_, size_});
  backend.rms_norm(pieces, norm_.view, norm_eps_, pieces);
  backend.embed(*table_, rows);
  backend.scale(rows, table_scale_, rows);
  backend.add(rows, out);
  backend.scale(out, std::numbers::sqrt2_v<float> / 2.0f, out);
}

}  // namespace headrace
