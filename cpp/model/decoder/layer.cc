#include "model/decoder/layer.h"

#include "model/blocks/join.h"

namespace headrace {

namespace {

/// The rows for a block that reads their norm, or without one the residual itself.
StepRows reading(const StepRows& step, bool has_norm) {
  StepRows out = step;
  out.input = has_norm ? step.normed : step.residual;
  return out;
}

bool has(const DeviceVector& vector) { return vector.view.data != nullptr; }

}  // namespace

Layer load_layer(Backend& backend, WeightReader& reader, const LayerSources& sources,
                 int32_t number) {
  Layer layer;
  layer.mixer_norm = reader.vector(sources.mixer_norm);
  layer.mixer = sources.mixer->load(reader, number);
  layer.mixer_post_norm = reader.vector(sources.mixer_post_norm);
  layer.feed_forward_norm = reader.vector(sources.feed_forward_norm);
  layer.feed_forward = sources.feed_forward->load(reader);
  layer.feed_forward_post_norm = reader.vector(sources.feed_forward_post_norm);
  if (sources.last != nullptr) layer.last = sources.last->load(reader);
  layer.last_post_norm = reader.vector(sources.last_post_norm);
  const DeviceVector scalar = reader.vector(sources.scalar);
  if (has(scalar)) backend.read_back(scalar.view.data, &layer.scalar, sizeof layer.scalar);
  layer.parallel = sources.parallel;
  layer.mixed_columns = sources.mixer->mixed_columns();
  return layer;
}

StepRows mixer_rows(const Layer& layer, const StepRows& step) {
  StepRows out = reading(step, has(layer.mixer_norm));
  out.mixed = step.mixed.columns(0, layer.mixed_columns);
  return out;
}

void finish_layer(const BlockContext& context, const Layer& layer, const StepRows& step,
                  const TensorView& next_norm, const PackedWeight& next_weight) {
  layer.mixer->add(context, mixer_rows(layer, step),
                   {layer.mixer_post_norm.view, layer.feed_forward_norm.view,
                    layer.feed_forward->first_weight()});
  const bool reads_norm = layer.parallel ? has(layer.mixer_norm) : has(layer.feed_forward_norm);
  // A scalar comes between what the last block adds and the next norm.
  const bool scales = layer.scalar != 1.0f;
  const TensorView norm = scales ? TensorView() : next_norm;
  const bool more = layer.last != nullptr;
  layer.feed_forward->add(context, reading(step, reads_norm),
                          {layer.feed_forward_post_norm.view, more ? TensorView() : norm,
                           more ? layer.last->first_weight() : next_weight});
  if (more) {
    layer.last->add(context, reading(step, false), {layer.last_post_norm.view, norm, next_weight});
  }
  if (!scales) return;
  context.backend.scale(step.residual, layer.scalar);
  if (next_norm.data != nullptr) run_norm(context, step.residual, next_norm, step.normed);
}

}  // namespace headrace
