#pragma once

// Requests with pixels for the tiny models of tests/golden/vision.

#include <cstdint>
#include <random>

#include "headrace/request.h"
#include "model/config/model_config.h"
#include "model/vision/vision_tower.h"

namespace headrace::testing {

/// Pseudo-random pixels of a grid.
PixelInput pixels_of(const PatchGrid& grid, const VisionConfig& config, uint32_t seed);

/// A prompt of text, images and clips, each of few contents and sizes, so that prefixes and items
/// are shared. At most 100 tokens.
RequestOptions random_vision_request(const ModelConfig& config, std::mt19937& random);

}  // namespace headrace::testing
