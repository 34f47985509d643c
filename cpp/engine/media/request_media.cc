#include "engine/media/request_media.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/sha256.h"
#include "engine/media/check_media.h"

namespace headrace::internal {

namespace {

enum class Kind : uint8_t { kPixels, kEmbeddings, kRun };

void digest_content(const MediaInput& input, Sha256& hash) {
  if (std::ranges::any_of(input.key, [](uint64_t word) { return word != 0; })) {
    hash.update_number(1);
    for (const uint64_t word : input.key) hash.update_number(word);
  } else if (input.pixels.data != nullptr) {
    hash.update_number(0);
    hash.update(input.pixels.data->data(), input.pixels.data->size());
  } else {
    const std::vector<float>& values = *input.embeddings.values;
    hash.update_number(0);
    hash.update(values.data(), values.size() * sizeof(float));
  }
}

/// Of what decides an item's rows. A key stands for the content alone: sizes count, too.
MediaDigest digest_item(const MediaInput& input) {
  Sha256 hash;
  const bool has_pixels = input.pixels.data != nullptr;
  hash.update_number(static_cast<uint64_t>(has_pixels ? Kind::kPixels : Kind::kEmbeddings));
  if (has_pixels) {
    const PatchLayout& layout = input.pixels.layout;
    for (const int64_t number :
         {layout.frames, layout.height, layout.width, int64_t{layout.patch_size},
          int64_t{layout.merge_size}, int64_t{layout.temporal_patch_size}}) {
      hash.update_number(static_cast<uint64_t>(number));
    }
    hash.update(input.pixels.table.data(), input.pixels.table.size() * sizeof(float));
  } else {
    hash.update_number(static_cast<uint64_t>(input.embeddings.rows));
    hash.update_number(static_cast<uint64_t>(input.embeddings.added));
  }
  digest_content(input, hash);
  return hash.finish();
}

/// Of a run: what decides its rows, and their positions.
MediaDigest digest_run(const MediaDigest& item, const MediaRun& run) {
  Sha256 hash;
  hash.update_number(static_cast<uint64_t>(Kind::kRun));
  for (const uint64_t word : item) hash.update_number(word);
  for (const int32_t number : {run.first_row, run.count, run.grid.t, run.grid.h, run.grid.w}) {
    hash.update_number(static_cast<uint64_t>(number));
  }
  for (const int32_t step : run.steps) hash.update_number(static_cast<uint64_t>(step));
  return hash.finish();
}

std::vector<MediaUnit> embedding_units(int32_t rows, int32_t outputs) {
  std::vector<MediaUnit> units;
  const int32_t most = std::max(1, kUnitRows / outputs);
  for (int32_t first = 0; first < rows; first += most) {
    units.push_back({first, std::min(most, rows - first), 0, {}});
  }
  return units;
}

std::vector<MediaUnit> pixel_units(const PatchGrid& grid, const MediaLimits& limits) {
  std::vector<MediaUnit> units;
  const VisionTower& tower = *limits.tower;
  const int32_t group = std::min(tower.group(), grid.t);
  const int64_t group_rows = tower.rows({group, grid.h, grid.w});
  auto groups =
      static_cast<int32_t>(std::clamp<int64_t>(kUnitRows / group_rows, 1, grid.t / group));
  const auto fits = [&] {
    return tower.scratch_bytes({groups * group, grid.h, grid.w}) <= limits.most_scratch;
  };
  while (groups > 1 && !fits()) groups /= 2;
  int32_t row = 0;
  for (int32_t first = 0; first < grid.t;) {
    const int32_t count = std::min(grid.t - first, groups * group);
    const PatchGrid part{count, grid.h, grid.w};
    const auto rows = static_cast<int32_t>(tower.rows(part));
    units.push_back({row, rows, first, part});
    row += rows;
    first += count;
  }
  return units;
}

void check_memory(size_t item, const RequestItem& checked, const MediaLimits& limits) {
  for (const MediaUnit& unit : checked.units) {
    const size_t bytes = unit_bytes(checked, unit, limits);
    if (bytes > limits.cache_bytes) {
      refuse_item(ErrorCode::kLimitExceeded, item, unit.rows, " rows of it take ", bytes,
                  " bytes at once, more than encoder_cache_bytes ", limits.cache_bytes,
                  ": raise it, or make the item smaller.");
    }
    if (!checked.has_pixels()) continue;
    const size_t scratch = limits.tower->scratch_bytes(unit.grid);
    if (scratch > limits.most_scratch) {
      refuse_item(ErrorCode::kLimitExceeded, item, "to encode ", unit.grid.h, " x ", unit.grid.w,
                  " patches takes ", scratch, " bytes, more than the ", limits.most_scratch,
                  " that are set aside: make the item smaller.");
    }
  }
}

RequestItem make_item(size_t index, MediaInput& input, const MediaLimits& limits) {
  RequestItem item;
  item.digest = digest_item(input);
  item.rows = static_cast<int32_t>(rows_of(input));
  item.pixels = std::move(input.pixels);
  item.embeddings = std::move(input.embeddings);
  if (item.has_pixels()) {
    item.outputs = limits.tower->outputs();
    item.units = pixel_units(patch_grid(item.pixels.layout), limits);
  } else {
    item.outputs = 1 + item.embeddings.added;
    item.units = embedding_units(item.rows, item.outputs);
  }
  item.is_counted.resize(item.units.size());
  check_memory(index, item, limits);
  return item;
}

}  // namespace

size_t RequestItem::unit_of(int32_t row) const {
  const auto behind = std::ranges::upper_bound(units, row, {}, &MediaUnit::first_row);
  return static_cast<size_t>(behind - units.begin()) - 1;
}

RequestMedia::RequestMedia(std::vector<MediaInput> media, const MediaLimits& limits)
    : both_ways_(limits.most_run > 0) {
  if (limits.rope_axes) rope_ = RopeLayout(media);
  auto identity = std::make_shared<std::vector<MediaItem>>();
  size_t all_bytes = 0;
  for (size_t i = 0; i < media.size(); ++i) {
    items_.push_back(make_item(i, media[i], limits));
    const RequestItem& item = items_.back();
    for (const MediaRun& run : media[i].runs) {
      places_.push_back({run.position, run.count, i, run.first_row});
      identity->push_back({digest_run(item.digest, run), run.position, run.position + run.count});
    }
    (media[i].video ? video_rows_ : image_rows_) += item.rows;
    size_t bytes = 0;
    for (const MediaUnit& unit : item.units) bytes += unit_bytes(item, unit, limits);
    if (both_ways_ && bytes > limits.cache_bytes) {
      refuse_item(
          ErrorCode::kLimitExceeded, i, "it takes ", bytes,
          " bytes, more than encoder_cache_bytes ", limits.cache_bytes,
          ", and its rows see each other, so that all of them are needed at once: raise it.");
    }
    all_bytes += bytes;
    if (limits.whole_at_once && all_bytes > limits.cache_bytes) {
      refuse_item(ErrorCode::kLimitExceeded, i, "with those before it, it takes ", all_bytes,
                  " bytes, more than encoder_cache_bytes ", limits.cache_bytes,
                  ", and a model whose attention is bidirectional needs all of them at once.");
    }
  }
  identity_ = std::move(identity);
}

void RequestMedia::pin(size_t item, size_t unit, std::shared_ptr<const EncodedRows> rows) {
  pins_.push_back({item, unit, std::move(rows)});
}

const EncodedRows& RequestMedia::pinned(size_t item, int32_t row) const {
  const size_t unit = items_[item].unit_of(row);
  const auto found = std::ranges::find_if(
      pins_, [&](const Pin& pin) { return pin.item == item && pin.unit == unit; });
  HEADRACE_CHECK(found != pins_.end(), "row ", row, " of item ", item, " is not there");
  return *found->rows;
}

size_t unit_bytes(const RequestItem& item, const MediaUnit& unit, const MediaLimits& limits) {
  return static_cast<size_t>(item.outputs) *
         tensor_bytes(unit.rows, limits.hidden_size, limits.activation);
}

std::vector<float> unit_patches(const RequestItem& item, const MediaUnit& unit) {
  const PatchLayout& whole = item.pixels.layout;
  PatchLayout part = whole;
  const int64_t first_frame = int64_t{unit.first_grid} * whole.temporal_patch_size;
  part.frames =
      std::min(whole.frames - first_frame, int64_t{unit.grid.t} * whole.temporal_patch_size);
  std::vector<float> patches(patch_values(part));
  const int64_t frame_bytes = 3 * whole.height * whole.width;
  normalize_patches(item.pixels.data->data() + first_frame * frame_bytes, part, item.pixels.table,
                    patches.data());
  return patches;
}

}  // namespace headrace::internal
