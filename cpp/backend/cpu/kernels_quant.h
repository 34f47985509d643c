#pragma once

// The kernels of one ISA for weights kept as int8 or int4. Only types from C headers here: this
// file is compiled into every ISA's objects.
//
// Along k a weight falls into groups of 32, 64 or 128. Within group g of column n
//
//   w[k] = scale[n][g] * (code[k] - zero[n][g])        code in 0..255 or 0..15
//
// and the activations of each row are rounded to int8 by the same groups when they are packed:
//
//   x[k] ~ step[g] * q[k],  step = max |x| / 127,  q = x * (127 / max |x|), to nearest, ties to
//   even
//
// (a group whose max |x| is below 2^-100 is zero). Sums of q * (code - zero) over a group are exact
// integers; they enter a float32 sum over the groups in ascending order as
//
//   y = fma(sum, scale * step, y)
//
// in one lane of one accumulator, whatever the number of rows: a row's bits depend on it alone.
//
// A panel (kernels_linear.h) is a sequence of groups, each: scales [cols] (bf16 or f16), zeros
// [cols] (bytes, if the weight has its own), codes. int8: [size/4][cols][4]; int4:
// [size/8][cols][4] with the first four k of eight in the low halves of the bytes and the others in
// the high ones.

#include <stddef.h>
#include <stdint.h>

#include "backend/contract/quant_format.h"
#include "backend/cpu/kernels_linear.h"

namespace headrace {

constexpr int64_t quant_codes_offset(const QuantFormat& format, int64_t cols) {
  return cols * (format.zero_points ? 3 : 2);
}
/// Bytes of one group of a panel.
constexpr int64_t quant_group_bytes(const QuantFormat& format, int64_t cols) {
  return quant_codes_offset(format, cols) + cols * format.group_size * format.bits / 8;
}

struct QuantRows : RowsToPack {
  QuantFormat format;  ///< of the weight they will meet
};

struct QuantKernels {
  int32_t lanes;       ///< floats in a vector; the unit that gate and up alternate in
  int32_t panel_cols;  ///< 4 * lanes
  int32_t tile_rows;   ///< most rows that can share one pass over a panel
  /// Rows of a tile where there are many: those whose float sums stay in registers, too.
  int32_t many_tile_rows;
  int32_t quad_bytes;  ///< of four packed activations
  /// Rounds and packs rows for panel_product: tiles of tile_rows rows, the last with those that
  /// are left; a tile starts quant_row_bytes() after the one before for each row of that. A row
  /// with a NaN or an infinity has NaN for a step, and so for all its results.
  void (*pack_rows)(const QuantRows& rows, void* packed);
  /// PanelTask::k_groups counts quantization groups.
  void (*panel_product)(const PanelTask& task, const QuantFormat& format);
  /// The symmetric codes and the bf16 scale of `size` weights whose squared error is the least of
  /// those tried: int8 reaches from -127 to 127 times max |w| / 127; int4 tries to let the largest
  /// weight be -8, clipped by up to 18 %. Either way the scale is then the one that fits the codes
  /// best. The same bits on every ISA.
  void (*quantize_group)(const float* weights, int32_t size, int32_t bits, QuantizedGroup* out);
  /// A whole group of a panel of such: symmetric, bf16 scales. Column c's weights are at
  /// columns[c * stride].
  void (*quantize_panel)(const float* columns, int64_t stride, const QuantFormat& format,
                         void* group);
};

/// Bytes of one row, packed: per group its step, where its sums start (int32), and its quads.
constexpr int64_t quant_row_bytes(const QuantKernels& kernels, const QuantFormat& format,
                                  int64_t k_groups) {
  return k_groups * (8 + format.group_size / 4 * kernels.quad_bytes);
}

}  // namespace headrace
