#include "model/vision/vit_run.h"

#include <algorithm>
#include <cmath>

#include "base/checked_math.h"

namespace headrace {

namespace {

/// Fewest rows of one head that a piece of attention has.
constexpr int64_t kLeastQueries = 256;

int64_t joined_rows(const VisionConfig& config) {
  return int64_t{config.merge_size} * config.merge_size;
}

int64_t tile_rows(const VitModel& model, int64_t rows) {
  return std::min(round_up(model.tile_rows, joined_rows(model.config)), rows);
}

/// Rows one behind the other as fewer, wider ones.
TensorView joined(const TensorView& x, int64_t unit) {
  return TensorView(x.data, x.dtype, {x.rows() / unit, x.cols() * unit});
}

}  // namespace

VitScratch lay_out_vit(const VitModel& model, const PatchGrid& grid, Carver& carver) {
  const VisionConfig& config = model.config;
  const DType act = model.activation;
  const int64_t rows = int64_t{grid.t} * grid.h * grid.w, unit = joined_rows(config);
  const int64_t tile = tile_rows(model, rows);
  const int64_t side = config.patch_size, width = config.width;
  const int64_t values = 3 * config.temporal_patch_size * side * side;
  VitScratch out;
  out.hidden = carver.matrix(rows, width, act);
  // No queries and keys before the patches are embedded.
  const size_t shared = carver.offset();
  out.patches = carver.aligned_matrix(rows, values, act);
  const size_t behind_patches = carver.offset();
  carver.move_to(shared);
  out.q = carver.matrix(rows, width, act);
  out.kv = carver.matrix(rows, 2 * width, act);
  carver.move_to(std::max(carver.offset(), behind_patches));
  out.rope = carver.matrix(rows, config.rope ? config.head_dim : 0, DType::kF32);
  out.normed = carver.matrix(tile, width, act);
  out.delta = carver.matrix(tile, width, act);
  // No merger runs within a block.
  const size_t phase = carver.offset();
  out.wide = carver.aligned_matrix(tile, config.mlp_width, act);
  const size_t behind_mlp = carver.offset();
  carver.move_to(phase);
  out.joined = carver.matrix(tile / unit, unit * width, act);
  out.grids = carver.matrix(config.merge_grids > 1 ? tile / unit : 0, 2 * unit * width, act);
  out.merged = carver.matrix(tile / unit, model.hidden, act);
  carver.move_to(std::max(carver.offset(), behind_mlp));
  return out;
}

VitRun::VitRun(const VitModel& model, const float* patches, const PatchGrid& grid,
               std::span<const TensorView> out)
    : model_(model),
      grid_(grid),
      rope_(model.config.rope ? model.config.head_dim : 4, std::max(grid.h, grid.w)),
      positions_(model.weights.host_positions(), model.config.position_side, model.config.width),
      rows_(int64_t{grid.t} * grid.h * grid.w),
      tile_(tile_rows(model, rows_)),
      out_(out.begin(), out.end()) {
  Carver sizes(nullptr);
  lay_out_vit(model, grid, sizes);
  memory_ = model.backend.allocate(sizes.offset());
  Carver carver(memory_.data);
  scratch_ = lay_out_vit(model, grid, carver);
  // Not before the device has shown that an item of this size fits.
  order_ = order_patches(model.config, grid);
  plan();
  upload(patches);
}

int32_t VitRun::num_pieces() const { return static_cast<int32_t>(work_.size()); }

void VitRun::plan() {
  add_work(Stage::kEmbed, 0);
  const std::vector<int32_t>& deep = model_.config.deepstack_blocks;
  for (int32_t block = 0; block < model_.config.depth; ++block) {
    add_work(Stage::kProject, static_cast<size_t>(block));
    add_attention(static_cast<size_t>(block));
    add_work(Stage::kRows, static_cast<size_t>(block));
    const auto found = std::ranges::find(deep, block);
    if (found != deep.end()) {
      add_work(Stage::kMerge, static_cast<size_t>(found - deep.begin()) + 1);
    }
  }
  if (model_.weights.resampler) {
    add_work(Stage::kJoinSquares, 0);
    add_work(Stage::kJoinGrids, 0);
  } else {
    add_work(Stage::kMerge, 0);
  }
}

void VitRun::add_work(Stage stage, size_t index) {
  // Of what a block's last phase does with a row, embedding it takes about an eighth, its query,
  // key and value and merging it a third to a half.
  const int64_t tiles = stage == Stage::kEmbed                               ? 8
                        : stage == Stage::kProject || stage == Stage::kMerge ? 2
                                                                             : 1;
  // Rows of the first of two grids stand for both.
  const int64_t rows =
      stage == Stage::kJoinGrids ? rows_ / std::min(model_.config.merge_grids, grid_.t) : rows_;
  const int64_t step = tiles * tile_;
  for (int64_t first = 0; first < rows; first += step) {
    work_.push_back({stage, index, {first, std::min(step, rows - first)}});
  }
}

/// Pieces of about as many multiplications as a tile of the last phase takes: as many rows as can
/// be of one head, or several heads.
void VitRun::add_attention(size_t block) {
  const VisionConfig& config = model_.config;
  int64_t seen = int64_t{grid_.h} * grid_.w;  // rows, by each
  if (!sees_all(block)) {
    const int64_t side = int64_t{config.window} * config.merge_size;
    seen = std::min(side, int64_t{grid_.h}) * std::min(side, int64_t{grid_.w});
  }
  const int64_t each = 2 * config.head_dim * seen;  // of a row and head
  const int64_t most = model_.tile_rows * config.width *
                       (config.width + (config.gated_mlp ? 3 : 2) * config.mlp_width);
  const int64_t step = std::min(rows_, std::max(most / each, kLeastQueries));
  const int64_t heads = std::clamp<int64_t>(most / (each * step), 1, config.num_heads);
  for (int64_t head = 0; head < config.num_heads; head += heads) {
    for (int64_t first = 0; first < rows_; first += step) {
      work_.push_back({Stage::kAttend,
                       block,
                       {first, std::min(step, rows_ - first)},
                       static_cast<int32_t>(head),
                       static_cast<int32_t>(std::min(heads, config.num_heads - head))});
    }
  }
}

void VitRun::upload(const float* patches) {
  const int64_t values = scratch_.patches.cols();
  // Neighbours go together.
  for (int64_t row = 0; row < rows_;) {
    const int64_t first = order_.input(row);
    int64_t count = 1;
    while (row + count < rows_ && order_.input(row + count) == first + count) ++count;
    model_.backend.write_rows({patches + first * values, static_cast<size_t>(count * values)},
                              scratch_.patches.rows_from(row, count));
    row += count;
  }
}

bool VitRun::advance() {
  HEADRACE_CHECK(next_ < work_.size(), next_);
  const Work& work = work_[next_];
  const int64_t step = work.stage == Stage::kAttend ? work.rows.rows : tile_;
  for (int64_t done = 0; done < work.rows.rows; done += step) {
    run(work, {work.rows.first + done, std::min(step, work.rows.rows - done)});
  }
  return ++next_ == work_.size();
}

void VitRun::run(const Work& work, const Tile& tile) {
  switch (work.stage) {
    case Stage::kEmbed:
      return embed(tile);
    case Stage::kProject:
      return project(model_.weights.blocks[work.index], tile);
    case Stage::kAttend:
      return attend(work, tile);
    case Stage::kRows:
      return add_rows(model_.weights.blocks[work.index], tile);
    case Stage::kMerge:
      return merge(work.index, tile);
    case Stage::kJoinSquares:
      return join_squares(tile);
    case Stage::kJoinGrids:
      return join_grids(tile);
  }
}

void VitRun::embed(const Tile& tile) {
  Backend& backend = model_.backend;
  const Linear& patches = model_.weights.patches;
  const TensorView hidden = scratch_.hidden.rows_from(tile.first, tile.rows);
  backend.linear(scratch_.patches.rows_from(tile.first, tile.rows), *patches.weight,
                 patches.bias.view, hidden);
  const auto upload = [&](int64_t columns, const TensorView& to, const auto& fill) {
    host_.resize(static_cast<size_t>(tile.rows * columns));
    for (int64_t i = 0; i < tile.rows; ++i) {
      fill(place_of(model_.config, grid_, order_.input(tile.first + i)),
           host_.data() + i * columns);
    }
    backend.write_rows(host_, to);
  };
  if (model_.config.rope) {
    upload(model_.config.head_dim, scratch_.rope.rows_from(tile.first, tile.rows),
           [&](const auto& place, float* out) { rope_.fill(place, out); });
  }
  if (positions_.empty()) return;
  const TensorView positions = scratch_.delta.first_rows(tile.rows);
  upload(model_.config.width, positions,
         [&](const auto& place, float* out) { positions_.fill(grid_, place, out); });
  backend.add(positions, hidden);
}

/// Whether rows see their whole grid over time.
bool VitRun::sees_all(size_t block) const {
  const VisionConfig& config = model_.config;
  return config.window == 0 || std::ranges::find(config.full_blocks, static_cast<int32_t>(block)) !=
                                   config.full_blocks.end();
}

void VitRun::project(const VitBlock& block, const Tile& tile) {
  const VisionConfig& config = model_.config;
  Backend& backend = model_.backend;
  const TensorView normed = scratch_.normed.first_rows(tile.rows);
  const TensorView q = scratch_.q.rows_from(tile.first, tile.rows);
  const TensorView kv = scratch_.kv.rows_from(tile.first, tile.rows);
  normalize(block.norm_1, scratch_.hidden.rows_from(tile.first, tile.rows), normed);
  backend.linear(normed, *block.q.weight, block.q.bias.view, q);
  backend.linear(normed, *block.kv.weight, block.kv.bias.view, kv);
  if (!config.rope) return;
  const TensorView rope = scratch_.rope.rows_from(tile.first, tile.rows);
  backend.rotate(q, rope, config.num_heads, config.head_dim);
  backend.rotate(kv.columns(0, config.width), rope, config.num_heads, config.head_dim);
}

/// In the place of the queries.
void VitRun::attend(const Work& work, const Tile& rows) {
  const VisionConfig& config = model_.config;
  const int64_t column = int64_t{work.first_head} * config.head_dim;
  const int64_t columns = int64_t{work.heads} * config.head_dim;
  const TensorView q = scratch_.q.rows_from(rows.first, rows.rows).columns(column, columns);
  model_.backend.segment_attention(
      {.q = q,
       .k = scratch_.kv.columns(column, columns),
       .v = scratch_.kv.columns(config.width + column, columns),
       .first = static_cast<int32_t>(rows.first),
       .segment_ends = sees_all(work.index) ? order_.grid_ends : order_.window_ends,
       .heads = work.heads,
       .head_dim = config.head_dim,
       .scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
       .products = model_.products,
       .out = q});
}

void VitRun::add_rows(const VitBlock& block, const Tile& tile) {
  Backend& backend = model_.backend;
  const TensorView hidden = scratch_.hidden.rows_from(tile.first, tile.rows);
  const TensorView normed = scratch_.normed.first_rows(tile.rows);
  const TensorView delta = scratch_.delta.first_rows(tile.rows);
  backend.linear(scratch_.q.rows_from(tile.first, tile.rows), *block.proj.weight,
                 block.proj.bias.view, delta);
  backend.add(delta, hidden);
  normalize(block.norm_2, hidden, normed);
  run_mlp(block, normed, tile);
}

void VitRun::run_mlp(const VitBlock& block, const TensorView& normed, const Tile& tile) {
  Backend& backend = model_.backend;
  const TensorView wide = scratch_.wide.first_rows(tile.rows);
  const TensorView delta = scratch_.delta.first_rows(tile.rows);
  if (model_.config.gated_mlp) {
    backend.linear_gate_mul(normed, *block.up.weight, block.up.bias.view, {}, wide);
  } else {
    backend.linear(normed, *block.up.weight, block.up.bias.view, wide);
    backend.activate(model_.config.activation, wide);
  }
  backend.linear(wide, *block.down.weight, block.down.bias.view, delta);
  backend.add(delta, scratch_.hidden.rows_from(tile.first, tile.rows));
}

void VitRun::merge(size_t index, const Tile& tile) {
  Backend& backend = model_.backend;
  const VitMerger& merger = model_.weights.mergers[index];
  const int64_t unit = joined_rows(model_.config), rows = tile.rows / unit;
  TensorView x = scratch_.hidden.rows_from(tile.first, tile.rows);
  const TensorView normed = scratch_.normed.first_rows(tile.rows);
  if (index == 0 && !model_.weights.last_norm.empty()) {
    normalize(model_.weights.last_norm, x, normed);
    x = normed;
  }
  if (!merger.norm.empty() && !merger.averages) {
    normalize(merger.norm, merger.joins_first ? joined(x, unit) : x,
              merger.joins_first ? joined(normed, unit) : normed);
    x = normed;
  }
  x = merger.averages ? normalized_mean(merger, joined(x, unit)) : joined(x, unit);
  if (merger.up.weight) {
    const TensorView wide = scratch_.joined.first_rows(rows);
    backend.linear(x, *merger.up.weight, merger.up.bias.view, wide);
    backend.activate(Activation::kGeluErf, wide);
    x = wide;
  }
  // The first output is the tower's, the others follow in the order of the blocks.
  const std::vector<int32_t>& deep = model_.config.deepstack_blocks;
  size_t place = 0;
  if (index > 0) {
    const int32_t block = deep[index - 1];
    place = 1 + static_cast<size_t>(
                    std::ranges::count_if(deep, [block](int32_t other) { return other < block; }));
  }
  const TensorView& out = out_[place];
  const int64_t first = tile.first / unit;
  if (order_.outputs.empty()) {
    backend.linear(x, *merger.down.weight, merger.down.bias.view, out.rows_from(first, rows));
    return;
  }
  const TensorView merged = scratch_.merged.first_rows(rows);
  backend.linear(x, *merger.down.weight, merger.down.bias.view, merged);
  backend.scatter_rows(
      merged,
      std::span(order_.outputs).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)),
      out);
}

/// Of m rows side by side, whose place the sum takes: the norm of the mean is that of the sum, with
/// an epsilon m^2 times as large. Halves are added, and halves of these, so that roundings are few.
TensorView VitRun::normalized_mean(const VitMerger& merger, const TensorView& x) {
  const int64_t width = model_.config.width, unit = x.cols() / width;
  for (int64_t left = unit; left > 1;) {
    const int64_t half = left / 2;
    left -= half;
    model_.backend.add(x.columns(left * width, half * width), x.columns(0, half * width));
  }
  const TensorView out = scratch_.delta.first_rows(x.rows());
  const auto squared = static_cast<float>(unit * unit);
  model_.backend.rms_norm(x.columns(0, width), merger.norm.weight.view,
                          model_.config.out_norm_eps * squared, out);
  return out;
}

/// In the place of the rows that are joined.
void VitRun::join_squares(const Tile& tile) {
  const int64_t unit = joined_rows(model_.config);
  const TensorView hidden = scratch_.hidden.rows_from(tile.first, tile.rows);
  TensorView x = hidden;
  if (!model_.weights.last_norm.empty()) {
    x = scratch_.normed.first_rows(tile.rows);
    normalize(model_.weights.last_norm, hidden, x);
  }
  join(model_.weights.resampler->square, joined(x, unit), joined(hidden, unit));
}

/// Squares of the first of two grids with those of the second, or with themselves.
void VitRun::join_grids(const Tile& tile) {
  Backend& backend = model_.backend;
  const VitResampler& resampler = *model_.weights.resampler;
  const int64_t unit = joined_rows(model_.config), columns = unit * model_.config.width;
  const int64_t first = tile.first / unit, rows = tile.rows / unit;
  const int64_t squares = int64_t{grid_.h} * grid_.w / unit;
  const int32_t together = std::min(model_.config.merge_grids, grid_.t);
  const TensorView both = scratch_.grids.first_rows(rows);
  for (int32_t which = 0; which < 2; ++which) {
    chosen_.clear();
    for (int64_t out = first; out < first + rows; ++out) {
      const int64_t grid = out / squares * together + which % together;
      chosen_.push_back(static_cast<int32_t>(grid * squares + out % squares));
    }
    backend.gather_rows(joined(scratch_.hidden, unit), chosen_,
                        both.columns(which * columns, columns));
  }
  const TensorView normed = joined(scratch_.normed.first_rows(tile.rows), unit);
  join(resampler.grids, both, normed);
  const TensorView merged = scratch_.merged.first_rows(rows);
  backend.linear(normed, *resampler.out.weight, resampler.out.bias.view, merged);
  backend.rms_norm(merged, resampler.norm.weight.view, model_.config.out_norm_eps,
                   out_.front().rows_from(first, rows));
}

void VitRun::join(const VitJoin& join, const TensorView& x, const TensorView& out) {
  Backend& backend = model_.backend;
  const TensorView wide = scratch_.joined.first_rows(x.rows());
  const TensorView delta = joined(scratch_.delta, joined_rows(model_.config)).first_rows(x.rows());
  backend.linear(x, *join.up.weight, join.up.bias.view, wide);
  backend.activate(Activation::kGeluErf, wide);
  backend.linear(wide, *join.down.weight, join.down.bias.view, delta);
  normalize(join.norm, delta, out);
}

void VitRun::normalize(const DeviceNorm& norm, const TensorView& x, const TensorView& out) {
  if (model_.config.rms_norm) {
    model_.backend.rms_norm(x, norm.weight.view, model_.config.norm_eps, out);
  } else {
    model_.backend.layer_norm(x, norm.weight.view, norm.bias.view, model_.config.norm_eps, out);
  }
}

}  // namespace headrace
