#pragma once

#include <cstdint>
#include <vector>

#include "backend/contract/vision_ops.h"

namespace headrace {

/// A vision tower and what stands between it and the decoder, from config.json. Every field is
/// range-checked. Sizes are in patches unless they say otherwise.
struct VisionConfig {
  int32_t depth = 0;                ///< blocks
  int32_t width = 0;                ///< columns of a block's rows
  int32_t num_heads = 0;            ///< width / head_dim
  int32_t head_dim = 0;             ///< a multiple of 8, at most 128; of 4 pairs where `rope`
  int32_t mlp_width = 0;            ///< intermediate size
  int32_t patch_size = 0;           ///< pixels of a patch's side
  int32_t temporal_patch_size = 1;  ///< frames of a patch
  int32_t merge_size = 1;           ///< side of the square of patches that becomes one row
  /// 2: rows are of two grids over time, one behind the other, and an image counts twice. 1: of
  /// one.
  int32_t merge_grids = 1;
  /// Patches come row by row. Else: square by square of merge_size patches a side, squares and the
  /// patches within row by row.
  bool patches_by_row = false;
  Activation activation = Activation::kSilu;  ///< of the MLP
  bool gated_mlp = false;                     ///< silu(gate) * up, as in the decoder
  bool rms_norm = false;                      ///< else layer norm, with bias
  float norm_eps = 1e-6f;
  float out_norm_eps = 1e-6f;  ///< of the RMS norm behind a resampler or a mean
  bool rope = false;           ///< rotates queries and keys by height and width
  /// Side of an attention window, in squares of merge_size. 0: every row sees its whole grid over
  /// time in every block; else in `full_blocks` alone.
  int32_t window = 0;
  std::vector<int32_t> full_blocks;  ///< ascending
  /// Side of the table of absolute positions; 0: there is none. A grid of another size is resampled
  /// where `resamples`, and refused elsewhere.
  int32_t position_side = 0;
  bool resamples = false;
  /// Blocks behind whose rows a merger of its own gives rows that are added behind the decoder's
  /// first layers; [i] is that of merger i.
  std::vector<int32_t> deepstack_blocks;
  /// A picture's rows see each other both ways in the decoder's attention.
  bool both_ways = false;
};

}  // namespace headrace
