#include "model/decoder/layer.h"

namespace headrace {

namespace {

/// The rows for a block that reads their norm, or without one the residual itself.
StepRows reading(const StepRows& step, bool has_norm) {
  StepRows out = step;
  out.input = has_norm ? step.normed : step.residual;
  return out;
}

}  // namespace

Layer load_layer(WeightReader& reader, const LayerSources& sources, int32_t number) {
  Layer layer;
  layer.mixer_norm = reader.norm(sources.mixer_norm);
  layer.mixer = sources.mixer->load(reader, number);
  layer.mixer_post_norm = reader.norm(sources.mixer_post_norm);
  layer.mixer_sum_norm = reader.norm(sources.mixer_sum_norm);
  layer.feed_forward_norm = reader.norm(sources.feed_forward_norm);
  layer.feed_forward = sources.feed_forward->load(reader);
  layer.feed_forward_post_norm = reader.norm(sources.feed_forward_post_norm);
  layer.feed_forward_sum_norm = reader.norm(sources.feed_forward_sum_norm);
  layer.parallel = sources.parallel;
  layer.mixed_columns = sources.mixer->mixed_columns();
  return layer;
}

StepRows mixer_rows(const Layer& layer, const StepRows& step) {
  StepRows out = reading(step, !layer.mixer_norm.empty());
  out.mixed = step.mixed.columns(0, layer.mixed_columns);
  return out;
}

void finish_layer(const BlockContext& context, const Layer& layer, const StepRows& step,
                  const NormView& next_norm, const PackedWeight& next_weight) {
  layer.mixer->add(context, mixer_rows(layer, step),
                   {layer.mixer_post_norm.view(), layer.mixer_sum_norm.view(),
                    layer.feed_forward_norm.view(), layer.feed_forward->first_weight()});
  const DeviceNorm& read = layer.parallel ? layer.mixer_norm : layer.feed_forward_norm;
  layer.feed_forward->add(context, reading(step, !read.empty()),
                          {layer.feed_forward_post_norm.view(), layer.feed_forward_sum_norm.view(),
                           next_norm, next_weight});
}

}  // namespace headrace
