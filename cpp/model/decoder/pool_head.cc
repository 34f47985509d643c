#include "model/decoder/pool_head.h"

#include "base/check.h"
#include "model/blocks/join.h"

namespace headrace {

namespace {

/// Matrices for inputs of that width.
TensorView place_rows(int64_t width, const ScratchSizes& sizes, Carver& carver) {
  return carver.aligned_matrix(sizes.logit_rows, width, sizes.limits.activation);
}

}  // namespace

void PoolHead::read(WeightReader& reader, const ModelSources& sources) {
  for (const HeadLayerSources& source : sources.pool_head) {
    Linear linear = load_linear(reader, source.linear);
    layers_.push_back({std::move(linear), source.activation, reader.norm(source.norm), {}});
  }
}

void PoolHead::measure(const ModelSources& sources, const ScratchSizes& sizes, Carver& carver) {
  if (sources.pool_head.empty()) return;
  place_rows(sizes.hidden, sizes, carver);
  for (const HeadLayerSources& layer : sources.pool_head) {
    place_rows(layer.linear.matrix.n(), sizes, carver);
  }
}

void PoolHead::place(const ScratchSizes& sizes, Carver& carver) {
  if (layers_.empty()) return;
  in_ = place_rows(sizes.hidden, sizes, carver);
  for (Layer& layer : layers_) layer.out = place_rows(layer.linear.weight->n(), sizes, carver);
}

TensorView PoolHead::run(const BlockContext& context, std::span<const float> pooled) const {
  HEADRACE_CHECK(!layers_.empty());
  const int64_t width = in_.cols(), count = static_cast<int64_t>(pooled.size()) / width;
  HEADRACE_CHECK(std::cmp_equal(pooled.size(), count * width) && count >= 1 && count <= in_.rows(),
                 pooled.size());
  Backend& backend = context.backend;
  TensorView rows = in_.first_rows(count);
  backend.write_rows(pooled, rows);
  for (const Layer& layer : layers_) {
    const TensorView out = layer.out.first_rows(count);
    backend.linear(rows, *layer.linear.weight, layer.linear.bias.view, out);
    if (layer.activation) backend.activate(*layer.activation, out);
    if (!layer.norm.empty()) run_norm(context, out, layer.norm.view(), out);
    rows = out;
  }
  return rows;
}

}  // namespace headrace
