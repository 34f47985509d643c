#pragma once

#include "cuda/kernels/linear.h"
#include "cuda/kernels/quant/quant_layout.h"

namespace headrace::cuda {

struct QuantLinearArgs {
  /// `weight` is in the layout that `linear.layout` and `format` make; has_wgmma doesn't matter.
  LinearArgs linear;
  QuantFormat format;
  /// Of a reordered format: where x lies in the weight's order meanwhile, [>= kMostReorderedRows]
  /// [k] of x's dtype, aligned to 16.
  void* reordered = nullptr;
};

/// Of a reordered weight rows are put in order and multiplied in pieces of at most this many.
inline constexpr int64_t kMostReorderedRows = 1024;

/// linear() of a quantized weight, activations as they come: quant_layout.h says what is added in
/// which order. float32 activations: one chain of fused multiply-adds over ascending k. A row's
/// bits depend on the row alone. Moves the weight and T*(k + n) elements.
void quant_linear(const QuantLinearArgs& args, Stream stream);

// --- the kernels behind it, for tests; x in the weight's order
// ------------------------------------

/// float32, any number of rows.
void quant_linear_f32(const QuantLinearArgs& args, Stream stream);
/// 16-bit, up to kMostQuantFewRows rows: a block's warps share x and divide k among themselves.
inline constexpr int64_t kMostQuantFewRows = 32;
void quant_linear_few(const QuantLinearArgs& args, Stream stream);
/// 16-bit, any number of rows: tiles.
void quant_linear_tiles(const QuantLinearArgs& args, Stream stream);

}  // namespace headrace::cuda
