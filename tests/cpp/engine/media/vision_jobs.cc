#include "cpp/engine/media/vision_jobs.h"

#include <memory>
#include <utility>
#include <vector>

#include "headrace/media.h"

namespace headrace::testing {

PixelInput pixels_of(const PatchGrid& grid, const VisionConfig& config, uint32_t seed) {
  PixelInput out;
  const int32_t side = config.patch_size;
  out.layout = {int64_t{grid.t} * config.temporal_patch_size,
                int64_t{grid.h} * side,
                int64_t{grid.w} * side,
                side,
                config.patches_by_row ? 1 : config.merge_size,
                config.temporal_patch_size};
  std::vector<uint8_t> data(
      static_cast<size_t>(3 * out.layout.frames * out.layout.height * out.layout.width));
  uint32_t state = seed;
  for (uint8_t& byte : data) {
    byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  }
  out.data = std::make_shared<const std::vector<uint8_t>>(std::move(data));
  for (int i = 0; i < 768; ++i) out.table.push_back(static_cast<float>(i % 256 - 128) / 64.0f);
  return out;
}

namespace {

void add_item(RequestOptions& request, const ModelConfig& config, PatchGrid grid, uint32_t seed) {
  const VisionConfig& vision = *config.vision;
  const int32_t h = grid.h / vision.merge_size, w = grid.w / vision.merge_size;
  MediaInput& item = request.media.emplace_back();
  item.video = grid.t > 1;
  item.pixels = pixels_of(grid, vision, seed);
  std::vector<int32_t>& prompt = request.prompt_token_ids;
  MediaRun run{static_cast<int32_t>(prompt.size()), grid.t * h * w, 0, {}, {}};
  if (!config.ropes[0].axes.empty()) {
    run.grid = {grid.t, h, w};
    for (int32_t t = 0; t < grid.t; ++t) run.steps.push_back(2 * t);
  }
  prompt.insert(prompt.end(), static_cast<size_t>(run.count), 250);
  item.runs.push_back(std::move(run));
}

/// Positions as a run's grid and steps.
void place(const VisionGolden::Prompt& prompt, const PatchGrid& patches, int32_t merge,
           MediaRun& run) {
  const int32_t h = patches.h / merge, w = patches.w / merge;
  const auto first = static_cast<size_t>(run.position);
  run.grid = {run.count / (h * w), h, w};
  for (int32_t t = 0; t < run.grid.t; ++t) {
    run.steps.push_back(prompt.positions[0][first + static_cast<size_t>(t * h * w)] -
                        prompt.positions[1][first]);
  }
}

}  // namespace

RequestOptions random_vision_request(const ModelConfig& config, std::mt19937& random) {
  const auto pick = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  const VisionConfig& vision = *config.vision;
  RequestOptions out;
  const auto add_text = [&](int32_t count, int32_t first) {
    for (int32_t i = 0; i < count; ++i) out.prompt_token_ids.push_back(3 + first + i);
  };
  add_text(pick(1, 2) * 8, 40 * pick(0, 1));
  for (int32_t items = pick(0, 2); items > 0; --items) {
    const bool fixed = vision.position_side > 0 && !vision.resamples;
    const int32_t h = fixed ? vision.position_side : vision.merge_size * pick(1, 3);
    const int32_t w = fixed ? vision.position_side : vision.merge_size * pick(2, 3);
    add_item(out, config, {pick(0, 2) == 0 ? 3 : 1, h, w}, static_cast<uint32_t>(pick(1, 2)));
    add_text(pick(1, 9), pick(0, 1));
  }
  return out;
}

RequestOptions golden_request(const VisionGolden& golden, const VisionGolden::Prompt& prompt,
                              const ModelConfig& config) {
  RequestOptions out;
  out.prompt_token_ids = prompt.tokens;
  out.sampling = {.temperature = 0,
                  .max_tokens = static_cast<int32_t>(prompt.greedy.size()),
                  .ignore_eos = true};
  for (const GoldenRun& from : prompt.runs) {
    const VisionGolden::Item& item = golden.items[static_cast<size_t>(from.item)];
    if (from.first_row == 0) {
      EmbeddingInput& rows = out.media.emplace_back().embeddings;
      rows.values = std::make_shared<const std::vector<float>>(item.rows);
      rows.added = static_cast<int32_t>(config.vision->deepstack_blocks.size());
      rows.rows = static_cast<int32_t>(item.rows.size()) / (1 + rows.added) / config.hidden_size;
    }
    MediaRun run{from.position, from.count, from.first_row, {}, {}};
    if (!config.ropes[0].axes.empty()) place(prompt, item.grid, config.vision->merge_size, run);
    out.media.back().runs.push_back(std::move(run));
  }
  return out;
}

RequestOptions with_pixels(const VisionGolden& golden, const VisionGolden::Prompt& prompt,
                           const ModelConfig& config, RequestOptions& rows, const Encode& encode) {
  RequestOptions out = rows;
  size_t next = 0;
  for (const GoldenRun& run : prompt.runs) {
    if (run.first_row != 0) continue;
    const PatchGrid& grid = golden.items[static_cast<size_t>(run.item)].grid;
    const PixelInput made = pixels_of(grid, *config.vision, 1);
    std::vector<float> patches(patch_values(made.layout));
    normalize_patches(made.data->data(), made.layout, made.table, patches.data());
    rows.media[next].embeddings.values =
        std::make_shared<const std::vector<float>>(encode(patches, grid));
    out.media[next].embeddings = {};
    out.media[next++].pixels = made;
  }
  return out;
}

}  // namespace headrace::testing
