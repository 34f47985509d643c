#include "engine/load/media_plan.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"

namespace headrace::internal {

namespace {

/// Steps whose given embeddings the cache holds unless it is told otherwise: the one that is
/// computed, and what comes next.
constexpr int64_t kCachedSteps = 2;

constexpr size_t kVisionCacheBytes = size_t{256} << 20;
constexpr int32_t kMostRows = 16384;  ///< of the decoder, for an image: what processors make

/// The largest square grid that gives no more rows, or the one that the tower takes alone.
PatchGrid square(const VisionConfig& config, int32_t rows) {
  if (config.position_side > 0 && !config.resamples) {
    return {1, config.position_side, config.position_side};
  }
  const auto cells = static_cast<int32_t>(std::sqrt(static_cast<double>(rows)));
  return {1, cells * config.merge_size, cells * config.merge_size};
}

/// Of as many such grids as are encoded as one unit.
std::optional<size_t> scratch_of(const VisionTower& tower, PatchGrid grid) {
  try {
    grid.t = tower.group();
    const int64_t groups = std::max<int64_t>(1, kUnitRows / tower.rows(grid));
    grid.t = static_cast<int32_t>(groups) * tower.group();
    return tower.scratch_bytes(grid);
  } catch (const Error&) {
    return std::nullopt;  // more patches than it takes
  }
}

}  // namespace

EncoderStage::Parts plan_media(const ModelOptions& options, const ModelConfig& config,
                               const DecoderOptions& decoder, Backend& backend,
                               BackendNeeds needs) {
  EncoderStage::Parts out;
  MediaLimits& limits = out.limits;
  needs.given_rows = true;
  try {
    backend.require(needs);
    limits.refusal.clear();
  } catch (const Error& error) {
    limits.refusal = error.what();
    return out;
  }
  limits.hidden_size = config.hidden_size;
  limits.num_layers = config.num_layers;
  limits.activation = backend.activation_dtype(decoder.storage);
  limits.rope_axes =
      std::ranges::any_of(config.ropes, [](const RopeSpec& rope) { return !rope.axes.empty(); });
  limits.whole_at_once = !config.causal;
  if (config.vision && config.vision->both_ways) {
    limits.most_run = most_item_rows(options, decoder);
  }
  limits.cache_bytes = options.encoder_cache_bytes;
  if (limits.cache_bytes == 0) {
    const int64_t rows = kCachedSteps * std::max(decoder.max_rows, kUnitRows);
    limits.cache_bytes = tensor_bytes(rows, config.hidden_size, limits.activation);
  }
  out.max_rows = decoder.max_rows;
  out.max_tokens = options.max_encoder_tokens > 0 ? options.max_encoder_tokens
                                                  : std::max(1, decoder.max_rows / 2);
  return out;
}

void add_tower(std::shared_ptr<VisionTower> tower, const VisionConfig& config,
               const ModelOptions& options, int32_t max_model_len, size_t device_bytes,
               EncoderStage::Parts& parts) {
  if (options.encoder_cache_bytes == 0) parts.limits.cache_bytes = kVisionCacheBytes;
  for (int32_t rows = std::min(kMostRows, max_model_len); rows > 0; rows /= 2) {
    const auto scratch = scratch_of(*tower, square(config, rows));
    if (!scratch) continue;
    parts.limits.most_scratch = *scratch + *scratch / 8;  // other shapes take a little more
    if (parts.limits.most_scratch <= device_bytes / 8) break;
  }
  parts.limits.tower = parts.tower = std::move(tower);
}

}  // namespace headrace::internal
