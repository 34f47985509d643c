#pragma once

#include <cstdint>
#include <memory>

#include "model/blocks/block.h"
#include "model/sources/model_sources.h"
#include "model/weights/weight_reader.h"

namespace headrace {

/// A layer with its weights.
struct Layer {
  DeviceVector mixer_norm, feed_forward_norm;
  std::unique_ptr<Mixer> mixer;
  std::unique_ptr<FeedForward> feed_forward;
};

/// `number`: the layer's number in the cache's layout.
Layer load_layer(WeightReader& reader, const LayerSources& sources, int32_t number);

}  // namespace headrace
