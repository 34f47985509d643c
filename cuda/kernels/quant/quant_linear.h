#pragma once

#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/quant/quant_layout.h"

namespace headrace::cuda {

struct QuantLinearArgs {
  /// `weight` is in the layout that `linear.layout` and `format` make; has_wgmma matters for codes
  /// that are multiplied with rows as they come, and for FP8 that meets FP8.
  LinearArgs linear;
  QuantFormat format;
  /// Of a reordered format: where x lies in the weight's order meanwhile, [>= kMostReorderedRows]
  /// [k] of x's dtype, aligned to 16.
  void* reordered = nullptr;
  /// Of a format that rounds_rows(): where rows lie as codes meanwhile, RoundedRows::bytes() of at
  /// most kMostRoundedRows (round_rows.h), aligned to 16.
  void* rounded = nullptr;
  bool is_rounded = false;  ///< `rounded` has x's codes already; at most kMostRoundedRows rows
};

/// Of a reordered weight rows are put in order and multiplied in pieces of at most this many.
inline constexpr int64_t kMostReorderedRows = 1024;
/// Likewise of one whose rows are rounded.
inline constexpr int64_t kMostRoundedRows = 4096;

/// Rows [first, first + count) of what `args` says.
QuantLinearArgs piece_of(const QuantLinearArgs& args, int64_t first, int64_t count);

/// linear() of a quantized weight. Activations that are rounded: rounded_linear.h. As they come:
/// quant_layout.h says what is added in which order. float32 activations: one chain of fused
/// multiply-adds over ascending k. A row's bits depend on the row alone. Moves the weight and T*(k
/// + n) elements.
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
/// 16-bit, any number of rows, by wgmma: the same bits. REQUIRES: quant_can_use_wgmma(args), where
/// rows are aligned to 16 bytes.
bool quant_can_use_wgmma(const QuantLinearArgs& args);
void quant_linear_wgmma(const QuantLinearArgs& args, Stream stream);
/// Its small tiles: of 64 features and at most kMostQuantSmallRows rows.
inline constexpr int kMostQuantSmallRows = 64;
void quant_linear_wgmma_few(const QuantLinearArgs& args, Stream stream);
/// Fewest rows that quant_linear() gives to it.
inline constexpr int64_t kLeastQuantWgmmaRows = 1;

}  // namespace headrace::cuda
