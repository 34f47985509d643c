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

}  // namespace

Layer load_layer(Backend& backend, WeightReader& reader, const LayerSources& sources,
                 int32_t number) {
  Layer layer;
  layer.mixer_norm = reader.norm(sources.mixer_norm);
  if (sources.mixer != nullptr) {
    layer.mixer = sources.mixer->load(reader, number);
    layer.mixed_columns = sources.mixer->mixed_columns();
  }
  layer.mixer_post_norm = reader.norm(sources.mixer_post_norm);
  layer.mixer_sum_norm = reader.norm(sources.mixer_sum_norm);
  layer.feed_forward_norm = reader.norm(sources.feed_forward_norm);
  if (sources.feed_forward != nullptr) layer.feed_forward = sources.feed_forward->load(reader);
  layer.feed_forward_post_norm = reader.norm(sources.feed_forward_post_norm);
  layer.feed_forward_sum_norm = reader.norm(sources.feed_forward_sum_norm);
  if (sources.last != nullptr) layer.last = sources.last->load(reader);
  layer.last_post_norm = reader.norm(sources.last_post_norm);
  const DeviceVector scalar = reader.vector(sources.scalar);
  if (scalar.view.data != nullptr) {
    backend.read_back(scalar.view.data, &layer.scalar, sizeof layer.scalar);
  }
  layer.mixer_scale = sources.mixer_scale;
  layer.feed_forward_scale = sources.feed_forward_scale;
  layer.parallel = sources.parallel;
  return layer;
}

NormView Layer::first_norm() const {
  return (mixer != nullptr ? mixer_norm : feed_forward_norm).view();
}

const PackedWeight& Layer::first_weight() const {
  return mixer != nullptr ? mixer->first_weight() : feed_forward->first_weight();
}

void mix_layer(const BlockContext& context, const Layer& layer, const StepRows& step,
               KvCache& cache) {
  if (layer.mixer != nullptr) layer.mixer->mix(context, mixer_rows(layer, step), cache);
}

StepRows mixer_rows(const Layer& layer, const StepRows& step) {
  StepRows out = reading(step, !layer.mixer_norm.empty());
  out.mixed = step.mixed.columns(0, layer.mixed_columns);
  return out;
}

void finish_layer(const BlockContext& context, const Layer& layer, const StepRows& step,
                  const NormView& next_norm, const PackedWeight& next_weight) {
  if (layer.mixer != nullptr) {
    const bool ends = layer.feed_forward == nullptr;
    layer.mixer->add(context, mixer_rows(layer, step),
                     {layer.mixer_post_norm.view(), layer.mixer_scale, layer.mixer_sum_norm.view(),
                      ends ? next_norm : layer.feed_forward_norm.view(),
                      ends ? next_weight : layer.feed_forward->first_weight()});
    if (ends) return;
  }
  const DeviceNorm& read = layer.parallel ? layer.mixer_norm : layer.feed_forward_norm;
  // A scalar comes between what the last block adds and the next norm.
  const bool scales = layer.scalar != 1.0f;
  const NormView norm = scales ? NormView() : next_norm;
  const bool more = layer.last != nullptr;
  layer.feed_forward->add(context, reading(step, !read.empty()),
                          {layer.feed_forward_post_norm.view(), layer.feed_forward_scale,
                           layer.feed_forward_sum_norm.view(), more ? NormView() : norm,
                           more ? layer.last->first_weight() : next_weight});
  if (more) {
    layer.last->add(context, reading(step, false),
                    {layer.last_post_norm.view(), 1.0f, {}, norm, next_weight});
  }
  if (!scales) return;
  context.backend.scale(step.residual, layer.scalar, step.residual);
  if (!next_norm.empty()) run_norm(context, step.residual, next_norm, step.normed);
}

}  // namespace headrace
