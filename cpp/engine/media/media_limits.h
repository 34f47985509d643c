#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "model/vision/vision_tower.h"
#include "tensor/dtype.h"

namespace headrace::internal {

/// What a model takes of images and clips. Immutable, but for what the tower does with its backend:
/// callers' threads ask it for sizes alone.
struct MediaLimits {
  std::string refusal = "the model takes no images nor clips.";  ///< "": there can be some
  std::shared_ptr<const VisionTower> tower;                      ///< null: no pixels
  int32_t hidden_size = 0, num_layers = 0;
  DType activation = DType::kF32;
  bool rope_axes = false;      ///< its RoPE goes by three axes
  size_t cache_bytes = 0;      ///< of the encoder cache
  size_t most_scratch = 0;     ///< that a run of the tower may take
  bool whole_at_once = false;  ///< all items of a request must be there at once
  /// 0: a row of an item sees none behind it. Else the rows of a run see each other, and come in
  /// one step: so many at most.
  int32_t most_run = 0;
};

/// Rows that are encoded, or given, as one unit: about so many, as far as the grids divide so.
inline constexpr int32_t kUnitRows = 256;

}  // namespace headrace::internal
