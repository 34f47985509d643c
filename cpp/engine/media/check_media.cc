#include "engine/media/check_media.h"

#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "base/checked_math.h"
#include "engine/media/rope_layout.h"
#include "headrace/status.h"
#include "tensor/finite.h"

namespace headrace::internal {

namespace {

constexpr ErrorCode kBad = ErrorCode::kInvalidArgument;
constexpr int32_t kMostStep = 1 << 24;
constexpr int64_t kMostPosition = std::numeric_limits<int32_t>::max();
constexpr size_t kTableSize = 768;

void check_grid(size_t item, size_t index, const MediaRun& run) {
  const MediaGrid& grid = run.grid;
  if (grid == MediaGrid{}) {
    if (run.steps.empty()) return;
    refuse_item(kBad, item, "runs[", index, "] has ", run.steps.size(),
                " steps, but no grid: leave them out.");
  }
  const auto side_fits = [&](int32_t side) { return side >= 1 && side <= run.count; };
  const bool sides_fit = side_fits(grid.t) && side_fits(grid.h) && side_fits(grid.w);
  if (!sides_fit || int64_t{grid.t} * grid.h > run.count ||
      int64_t{grid.t} * grid.h * grid.w != run.count) {
    refuse_item(kBad, item, "runs[", index, "] has ", run.count, " rows, but a grid of ", grid.t,
                " x ", grid.h, " x ", grid.w, ".");
  }
  if (std::cmp_not_equal(run.steps.size(), grid.t)) {
    refuse_item(kBad, item, "runs[", index, "] has ", run.steps.size(), " steps for ", grid.t,
                " grids over time: give one for each.");
  }
  int32_t last = 0;
  for (const int32_t step : run.steps) {
    if (step < last || step > kMostStep) {
      refuse_item(kBad, item, "runs[", index, "] has a step of ", step, " behind one of ", last,
                  ": steps begin at 0 or above, don't descend and are at most ", kMostStep, ".");
    }
    last = step;
  }
}

/// Where runs may stand, and what of an item is still to come.
struct Progress {
  int64_t free_from = 0;  ///< of the prompt
  int64_t rope = 0;       ///< the position that it has there
};

int64_t check_runs(size_t item, const MediaInput& input, int64_t prompt_tokens,
                   const MediaLimits& limits, Progress& at) {
  if (input.runs.empty()) refuse_item(kBad, item, "it has no runs: say where its rows stand.");
  int64_t rows = 0;
  for (size_t i = 0; i < input.runs.size(); ++i) {
    const MediaRun& run = input.runs[i];
    if (run.count < 1 || run.position < at.free_from || run.position > prompt_tokens ||
        run.count > prompt_tokens - run.position) {
      refuse_item(kBad, item, "runs[", i, "] has ", run.count, " rows at position ", run.position,
                  ": it must have 1 or more in [", at.free_from, ", ", prompt_tokens,
                  "), behind the run before it and inside the prompt.");
    }
    if (run.first_row != rows) {
      refuse_item(kBad, item, "runs[", i, "] begins with row ", run.first_row, " of the item, not ",
                  rows, ": runs have each row once, in order.");
    }
    if (limits.most_run > 0 && run.count > limits.most_run) {
      refuse_item(
          ErrorCode::kLimitExceeded, item, "runs[", i, "] has ", run.count,
          " rows, which see each other, so that they come in one step: that has room for ",
          limits.most_run,
          " (max_num_batched_tokens, less max_num_seqs - 1): raise max_num_batched_tokens.");
    }
    check_grid(item, i, run);
    at.rope += run.position - at.free_from;
    at.rope = run.grid.t == 0 ? at.rope + run.count : rope_behind(at.rope, run);
    at.free_from = int64_t{run.position} + run.count;
    rows += run.count;
  }
  return rows;
}

void check_embeddings(size_t item, const EmbeddingInput& input, int64_t rows,
                      const MediaLimits& limits) {
  if (input.rows != rows) {
    refuse_item(kBad, item, "embeddings have ", input.rows, " rows, but its runs ", rows, ".");
  }
  if (input.added < 0 || input.added >= limits.num_layers) {
    refuse_item(kBad, item, "embeddings.added is ", input.added, ": the model has ",
                limits.num_layers, " layers, and rows are added behind fewer of them.");
  }
  const int32_t own = limits.tower == nullptr ? input.added : limits.tower->outputs() - 1;
  if (input.added != 0 && input.added != own) {
    refuse_item(kBad, item, "embeddings.added is ", input.added,
                ": the model's tower adds rows behind ", own, " layers, so that it is that or 0.");
  }
  const auto row_values =
      checked_mul(static_cast<uint64_t>(rows), static_cast<uint64_t>(limits.hidden_size));
  const auto wanted =
      row_values ? checked_mul(*row_values, static_cast<uint64_t>(input.added) + 1) : std::nullopt;
  if (wanted != input.values->size()) {
    refuse_item(kBad, item, "embeddings have ", input.values->size(), " numbers, not 1 + ",
                input.added, " times ", rows, " rows of hidden_size ", limits.hidden_size, ".");
  }
  const std::vector<float>& values = *input.values;
  if (all_fit(values.data(), limits.activation, static_cast<int64_t>(values.size()))) return;
  for (size_t i = 0; i < values.size(); ++i) {
    if (all_fit(&values[i], limits.activation, 1)) continue;
    refuse_item(kBad, item, "embeddings[", i, "] is ", values[i], ": it must be finite, as ",
                dtype_name(limits.activation), " too.");
  }
}

/// That patches are cut and ordered as the model's tower reads them.
void check_shape(size_t item, const PatchLayout& layout, const PatchShape& wanted) {
  const std::tuple<const char*, int32_t, int32_t> sizes[] = {
      {"patch_size", layout.patch_size, wanted.patch_size},
      {"merge_size", layout.merge_size, wanted.merge_size},
      {"temporal_patch_size", layout.temporal_patch_size, wanted.temporal_patch_size}};
  for (const auto& [name, given, own] : sizes) {
    if (given == own) continue;
    refuse_item(kBad, item, name, " is ", given, ", but the model's tower reads patches of ", own,
                ": make them as its processor does.");
  }
}

/// That positions are those of the patches: a grid of 2 x 3 rows has as many as one of 3 x 2.
void check_run_grids(size_t item, std::span<const MediaRun> runs, const PatchGrid& patches,
                     int32_t merge, const MediaLimits& limits) {
  if (!limits.rope_axes) return;
  const int32_t h = patches.h / merge, w = patches.w / merge;
  for (size_t i = 0; i < runs.size(); ++i) {
    const MediaGrid& grid = runs[i].grid;
    if (grid.t == 0 || (grid.h == h && grid.w == w)) continue;
    refuse_item(kBad, item, "runs[", i, "] has grids of ", grid.h, " x ", grid.w,
                " rows, but its patches make ", h, " x ", w, ".");
  }
}

void check_pixels(size_t item, const MediaInput& media, int64_t rows, const MediaLimits& limits) {
  const PixelInput& input = media.pixels;
  if (limits.tower == nullptr) {
    refuse_item(ErrorCode::kUnsupported, item,
                "it has pixels, but the model has no vision tower: give embeddings.");
  }
  if (input.table.size() != kTableSize) {
    refuse_item(kBad, item, "table has ", input.table.size(), " numbers: it must have ", kTableSize,
                ".");
  }
  if (!all_finite(input.table.data(), DType::kF32, kTableSize)) {
    refuse_item(kBad, item, "table has a number that is not finite.");
  }
  const PatchLayout& layout = input.layout;
  check_shape(item, layout, limits.tower->patch_shape());
  PatchGrid grid;
  int64_t made = 0;
  try {
    static_cast<void>(patch_values(layout));
    if (layout.frames > std::numeric_limits<int32_t>::max()) {
      throw_error(kBad, "frames is ", layout.frames, ": no clip has as many.");
    }
    grid = patch_grid(layout);
    made = limits.tower->rows(grid);
  } catch (const Error& error) {
    refuse_item(error.code(), item, error.what());
  }
  if (std::cmp_not_equal(input.data->size(), 3 * layout.frames * layout.height * layout.width)) {
    refuse_item(kBad, item, "pixels have ", input.data->size(), " bytes, not 3 * ", layout.frames,
                " * ", layout.height, " * ", layout.width, ".");
  }
  if (made != rows) {
    refuse_item(kBad, item, "its patches (", grid.t, " x ", grid.h, " x ", grid.w, ") make ", made,
                " rows, but its runs have ", rows, ".");
  }
  check_run_grids(item, media.runs, grid, layout.merge_size, limits);
}

}  // namespace

int64_t rows_of(const MediaInput& item) {
  int64_t rows = 0;
  for (const MediaRun& run : item.runs) rows += run.count;
  return rows;
}

PatchGrid patch_grid(const PatchLayout& layout) {
  const int64_t frames = ceil_div(layout.frames, int64_t{layout.temporal_patch_size});
  return {static_cast<int32_t>(frames), static_cast<int32_t>(layout.height / layout.patch_size),
          static_cast<int32_t>(layout.width / layout.patch_size)};
}

void check_media(std::span<const MediaInput> media, int64_t prompt_tokens, int64_t max_tokens,
                 const MediaLimits& limits) {
  if (!limits.refusal.empty()) throw_error(ErrorCode::kUnsupported, "media: ", limits.refusal);
  Progress at;
  for (size_t i = 0; i < media.size(); ++i) {
    const MediaInput& item = media[i];
    const int64_t rows = check_runs(i, item, prompt_tokens, limits, at);
    const bool has_pixels = item.pixels.data != nullptr;
    if (has_pixels == (item.embeddings.values != nullptr)) {
      refuse_item(kBad, i,
                  has_pixels ? "it has pixels and embeddings: leave one out."
                             : "it has neither pixels nor embeddings: give one of them.");
    }
    if (has_pixels) {
      check_pixels(i, item, rows, limits);
    } else {
      check_embeddings(i, item.embeddings, rows, limits);
    }
    const int64_t end = at.rope + (prompt_tokens - at.free_from) + max_tokens;
    if (end > kMostPosition) {
      refuse_item(ErrorCode::kLimitExceeded, i, "its steps lead to position ", end, ", above ",
                  kMostPosition, ".");
    }
  }
}

}  // namespace headrace::internal
