#pragma once

#include "cuda/kernels/quant/quant_linear.h"

namespace headrace::cuda {

/// quant_linear() of a format that rounds_rows(): rows are rounded to args.rounded, at most
/// kMostRoundedRows at a time, and multiplied as codes. k falls into kQuantSlices runs of units of
/// 128; a unit's products are one chain of four tensor cores' steps of 32 k (of either half of 64,
/// first the lower 8 of each 16 k, then the upper), and are added to the slice's sum in float32,
/// units in ascending order; of kFloat8Groups by a fused multiply-add with the product of both
/// scales. The slices' sums are added to 0 in ascending order. One scale for a feature and one for
/// a row multiply what comes of it. A row's bits depend on the row alone.
///
/// By wgmma (LinearArgs::has_wgmma, of e4m3) all numbers of rows go another way: a unit's products
/// are one chain of its four runs of 32 k, and units are added to one float32 sum in ascending
/// order as above. Hopper's tensor cores keep about 14 bits of such a chain, which is why it ends
/// with the unit; so that a row has other bits than by mma.sync, but again the same in every
/// company.
void rounded_linear(const QuantLinearArgs& args, Stream stream);

// --- the kernels behind it, for tests; args.rounded holds the rows already
// -------------------------------------------

/// Up to kMostQuantFewRows rows: a block's warps divide k among themselves.
void rounded_linear_few(const QuantLinearArgs& args, Stream stream);
/// Whether rounded_linear() takes rounded_linear_wgmma().
bool rounded_can_use_wgmma(const QuantLinearArgs& args);
void rounded_linear_wgmma(const QuantLinearArgs& args, Stream stream);
/// Any number of rows: tiles.
void rounded_linear_tiles(const QuantLinearArgs& args, Stream stream);

}  // namespace headrace::cuda
