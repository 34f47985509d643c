#pragma once

// Requests with pixels for the tiny models of tests/golden/vision.

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "cpp/model/vision/vision_golden.h"
#include "headrace/request.h"
#include "model/config/model_config.h"
#include "model/vision/vision_tower.h"

namespace headrace::testing {

/// Pseudo-random pixels of a grid.
PixelInput pixels_of(const PatchGrid& grid, const VisionConfig& config, uint32_t seed);

/// A prompt of text, images and clips, each of few contents and sizes, so that prefixes and items
/// are shared. At most 100 tokens.
RequestOptions random_vision_request(const ModelConfig& config, std::mt19937& random);

/// A golden prompt with its items' golden rows, greedy.
RequestOptions golden_request(const VisionGolden& golden, const VisionGolden::Prompt& prompt,
                              const ModelConfig& config);

/// What a tower makes of patches.
using Encode = std::function<std::vector<float>(const std::vector<float>&, const PatchGrid&)>;

/// golden_request() with other pixels in place of its items' rows; those of `rows` become what
/// `encode` makes of them.
RequestOptions with_pixels(const VisionGolden& golden, const VisionGolden::Prompt& prompt,
                           const ModelConfig& config, RequestOptions& rows, const Encode& encode);

}  // namespace headrace::testing
