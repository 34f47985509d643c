#include "model/decoder/layer.h"

namespace headrace {

Layer load_layer(WeightReader& reader, const LayerSources& sources, int32_t number) {
  Layer layer;
  layer.mixer_norm = reader.vector(sources.mixer_norm);
  layer.mixer = sources.mixer->load(reader, number);
  layer.feed_forward_norm = reader.vector(sources.feed_forward_norm);
  layer.feed_forward = sources.feed_forward->load(reader);
  return layer;
}

}  // namespace headrace
