#pragma once

// VisionTower: from the patches of an image or a clip to rows of embeddings for a decoder.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tensor/tensor_view.h"

namespace headrace {

/// Patches of an item over time (or tiles), height and width.
struct PatchGrid {
  int32_t t = 1, h = 0, w = 0;
};

/// How pixels become patches: the sizes of a PatchLayout.
struct PatchShape {
  int32_t patch_size = 0, merge_size = 1, temporal_patch_size = 1;
  bool operator==(const PatchShape&) const = default;
};

/// An item, or some of its grids over time, that is being encoded: some rows through a part of one
/// block at a time, so that other requests' steps can come between.
class TowerRun {
 public:
  virtual ~TowerRun() = default;
  /// Pieces of about equal work, >= 1.
  virtual int32_t num_pieces() const = 0;
  /// Computes the next piece. Returns whether it was the last one: then `out` is written.
  virtual bool advance() = 0;
};

/// A vision tower with its merger, on one backend. Used by the thread that uses the backend.
class VisionTower {
 public:
  virtual ~VisionTower() = default;

  /// What patches it reads, in which order. Others give wrong rows, and no error.
  virtual PatchShape patch_shape() const = 0;
  /// Numbers of a patch: 3 * temporal_patch_size * patch_size^2.
  int64_t patch_values() const {
    const PatchShape shape = patch_shape();
    return int64_t{3} * shape.temporal_patch_size * shape.patch_size * shape.patch_size;
  }
  /// Grids over time that must be encoded together: 1, or 2 where pairs of frames are merged. What
  /// comes of one such group doesn't depend on the others.
  virtual int32_t group() const = 0;
  /// Rows for the decoder that an item gives. Throws Error(kInvalidArgument), naming the grid, for
  /// one that the tower can't take: sides that the merger doesn't divide, more than max_patches of
  /// a grid over time, a wrong number of grids.
  virtual int64_t rows(const PatchGrid& grid) const = 0;
  /// Tensors that it gives: 1, and one for each layer of the decoder behind which rows are added.
  virtual int32_t outputs() const = 0;

  /// Begins to encode. patches: host memory, float32 [t * h * w, patch_values()], which is not
  /// needed any more when begin() returns. out: outputs() tensors [rows(grid), H] act. Takes
  /// scratch_bytes(grid) of device memory until the run is destroyed; Error(kOutOfMemory).
  /// REQUIRES: rows() takes the grid; out outlives the run.
  virtual std::unique_ptr<TowerRun> begin(const float* patches, const PatchGrid& grid,
                                          std::span<const TensorView> out) = 0;
  /// Of a run, beside its output.
  virtual size_t scratch_bytes(const PatchGrid& grid) const = 0;
  virtual size_t weight_bytes() const = 0;
};

}  // namespace headrace
