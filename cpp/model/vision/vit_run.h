#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/contract/backend.h"
#include "model/blocks/carver.h"
#include "model/config/vision_config.h"
#include "model/vision/patch_order.h"
#include "model/vision/tower_positions.h"
#include "model/vision/vision_tower.h"
#include "model/vision/vit_weights.h"

namespace headrace {

/// A tower as its runs use it.
struct VitModel {
  Backend& backend;
  VisionConfig config;
  int64_t hidden = 0;  ///< H: columns of what it gives
  DType activation = DType::kF32;
  DType products = DType::kF32;  ///< what attention may round to (SegmentAttention::products)
  int64_t tile_rows = 512;       ///< that keep the backend busy, and end soon enough for others
  VitWeights weights;
};

/// Memory of a run, activations: N rows, T of them in a tile.
struct VitScratch {
  TensorView hidden;   ///< [N, W]
  TensorView q;        ///< [N, W], and what attention gives
  TensorView kv;       ///< [N, 2 W]
  TensorView patches;  ///< [N, numbers of a patch], in the place of q and kv
  TensorView rope;     ///< [N, d] f32
  TensorView normed;   ///< [T, W], likewise below
  TensorView delta;    ///< also positions
  TensorView wide;     ///< [T, MLP's]
  TensorView joined;   ///< [T / m, m W]
  TensorView grids;    ///< [T / m, 2 m W]; without a resampler [0, 2 m W]
  TensorView merged;   ///< [T / m, H]
};

VitScratch lay_out_vit(const VitModel& model, const PatchGrid& grid, Carver& carver);

/// An item on its way through the tower: tile by tile through patch embedding, then each block in
/// three phases, queries, keys and values, then attention, some heads of many rows at a time, so
/// that a head's keys are laid out for many queries at once, then what follows; then the mergers or
/// the resampler.
class VitRun final : public TowerRun {
 public:
  /// `model` outlives it, and so does the memory of `out`. Throws Error(kOutOfMemory).
  VitRun(const VitModel& model, const float* patches, const PatchGrid& grid,
         std::span<const TensorView> out);

  int32_t num_pieces() const override;
  bool advance() override;

 private:
  enum class Stage : uint8_t { kEmbed, kProject, kAttend, kRows, kMerge, kJoinSquares, kJoinGrids };
  struct Tile {
    int64_t first = 0, rows = 0;
  };
  struct Work {
    Stage stage = Stage::kEmbed;
    size_t index = 0;  ///< of the block or merger
    Tile rows;         ///< one tile or more
    int32_t first_head = 0, heads = 0;
  };

  void plan();
  void add_work(Stage stage, size_t index);
  void add_attention(size_t block);
  void run(const Work& work, const Tile& tile);
  void upload(const float* patches);
  void embed(const Tile& tile);
  bool sees_all(size_t block) const;
  void project(const VitBlock& block, const Tile& tile);
  void attend(const Work& work, const Tile& rows);
  void add_rows(const VitBlock& block, const Tile& tile);
  void run_mlp(const VitBlock& block, const TensorView& normed, const Tile& tile);
  void merge(size_t index, const Tile& tile);
  TensorView normalized_mean(const VitMerger& merger, const TensorView& x);
  void join_squares(const Tile& tile);
  void join_grids(const Tile& tile);
  void join(const VitJoin& join, const TensorView& x, const TensorView& out);
  void normalize(const DeviceNorm& norm, const TensorView& x, const TensorView& out);

  const VitModel& model_;
  PatchGrid grid_;
  PatchOrder order_;
  AxialRope rope_;
  PositionTable positions_;
  int64_t rows_ = 0, tile_ = 0;
  std::vector<TensorView> out_;
  std::vector<Work> work_;       ///< a piece each
  std::vector<float> host_;      ///< numbers on their way to the device
  std::vector<int32_t> chosen_;  ///< rows that are gathered
  Backend::Buffer memory_;
  VitScratch scratch_;
  size_t next_ = 0;
};

}  // namespace headrace
