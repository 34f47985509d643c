#pragma once

#include <memory>

#include "model/config/model_config.h"
#include "model/sources/vision_sources.h"
#include "model/vision/vision_tower.h"
#include "model/weights/weight_reader.h"

namespace headrace {

/// The tower of a model that has one. `sources` are ModelSources::vision, and `reader` gives their
/// numbers, as it gave the decoder's; neither is needed any more after this. Weights are kept in
/// `storage`. Throws what the reader throws. REQUIRES: config.vision; `backend` outlives the tower.
std::unique_ptr<VisionTower> make_vision_tower(Backend& backend, const ModelConfig& config,
                                               const VisionSources& sources, WeightReader& reader,
                                               DType storage);

}  // namespace headrace
