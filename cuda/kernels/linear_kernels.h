#pragma once

// The kernels behind linear(); linear.cu chooses. All of them add up a row's products in the order
// that weight_layout.h gives (k_slices), but for float32, which has one ascending chain, and wgmma.

#include "cuda/kernels/linear.h"

namespace headrace::cuda {

/// float32, any number of rows.
void linear_f32(const LinearArgs& args, Stream stream);

/// 16-bit, up to kMaxSkinnyRows rows: each warp streams a slice of 16 or 32 weight rows from global
/// memory into tensor cores' registers; nothing of the weight goes through shared memory.
void linear_skinny(const LinearArgs& args, Stream stream);

/// 16-bit, any number of rows: tiles of 128 features x 64 or 128 rows.
void linear_tiles(const LinearArgs& args, Stream stream);
size_t linear_tiles_workspace_bytes(int64_t rows, const WeightLayout& layout,
                                    int32_t multiprocessors);

/// 16-bit on compute capability 9.0. REQUIRES: can_use_wgmma(args).
void linear_wgmma(const LinearArgs& args, Stream stream);
bool can_use_wgmma(const LinearArgs& args);

}  // namespace headrace::cuda
