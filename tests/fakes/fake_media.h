#pragma once

// Images and clips for the fake model, a vision tower without arithmetic, and what the fake model
// makes of both, worked out another way.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "headrace/media_input.h"
#include "model/vision/vision_tower.h"

namespace headrace::testing {

/// What a test does to a FakeTower, and sees of it.
struct FakeTowerControl {
  std::atomic<int> begun{0}, finished{0}, alive{0}, pieces{0};
  std::atomic<int> failures{0};       ///< so many of the next pieces throw kOutOfMemory
  std::atomic<int> pieces_of_run{1};  ///< that a run is cut into
  std::atomic<bool> held{false};      ///< pieces wait, once they are counted, until release()
  void release() {
    held = false;
    held.notify_all();
  }
};

/// A row for each merge x merge patches (of two grids, where there are two): numbers that hash all
/// values of the patches.
class FakeTower final : public VisionTower {
 public:
  static constexpr int32_t kPatch = 2, kMerge = 2, kTemporal = 2, kMostSide = 64;

  FakeTower(int32_t hidden_size, int32_t group, int32_t outputs,
            std::shared_ptr<FakeTowerControl> control)
      : hidden_(hidden_size), group_(group), outputs_(outputs), control_(std::move(control)) {}

  PatchShape patch_shape() const override { return {kPatch, kMerge, kTemporal}; }
  int32_t group() const override { return group_; }
  int64_t rows(const PatchGrid& grid) const override;
  int32_t outputs() const override { return outputs_; }
  std::unique_ptr<TowerRun> begin(const float* patches, const PatchGrid& grid,
                                  std::span<const TensorView> out) override;
  size_t scratch_bytes(const PatchGrid& grid) const override;
  size_t weight_bytes() const override { return 1000; }
  /// One output's row: `values` are those of its patches.
  std::vector<float> row(std::span<const float> values, int32_t output) const;

 private:
  const int32_t hidden_, group_, outputs_;
  const std::shared_ptr<FakeTowerControl> control_;
};

/// What the fake model sees in place of a token's id.
int32_t given_token(std::span<const float> embedding, std::span<const std::vector<float>> added);
/// The same where RoPE goes by other positions than the row's own.
int32_t placed_token(int32_t token, int32_t position, std::array<int32_t, 3> axes);

/// Pseudo-random pixels: `frames` of side x side, resized.
PixelInput fake_pixels(uint64_t seed, int64_t frames, int64_t height, int64_t width);
/// Pseudo-random embeddings.
EmbeddingInput fake_embeddings(uint64_t seed, int32_t rows, int32_t added, int32_t hidden_size);

/// The rows of an item: [outputs][rows][hidden].
std::vector<std::vector<std::vector<float>>> fake_rows(const MediaInput& item,
                                                       const FakeTower& tower, int32_t hidden_size);

}  // namespace headrace::testing
