#pragma once

// The linear kernels of one ISA. Only types from C headers here: this file is compiled into every
// ISA's objects.
//
// A weight [n, k] is cut into panels of panel_cols columns (output features). A panel holds its
// columns' weights one k after the other, so that a thread that takes consecutive panels reads one
// sequential stream. With group = 1 a panel is [k][panel_cols], with group = 2 (bf16)
// [k/2][panel_cols][2]; k and n are padded with zeros.
//
// Each output element is one lane of one accumulator that visits k in ascending order, whatever
// the number of rows: that is what keeps a row's bits independent of its company.
//
// MXFP4 (kFloat4Format): a panel is a sequence of groups of 32 k, each: scales e8m0 [panel_cols],
// codes [4][4 vectors] of 8 k each, in an order of the ISA's own. Products of a group are a sum
// that starts at 0, which enters the float32 sum over the groups as y = fma(sum, scale, y).
// Activations are as the other weights of the same dtype meet them.

#include <stddef.h>
#include <stdint.h>

#include "backend/contract/activation.h"
#include "backend/contract/quant_format.h"

namespace headrace {

/// What to do with a panel's finished products.
enum class PanelEpilogue : uint8_t {
  kStore,        ///< out[col] = acc + bias
  kAdd,          ///< out[col] += acc + bias
  kRelu2,        ///< out[col] = max(acc + bias, 0)^2
  kGateMul,      ///< vectors alternate gate, up: out[col] = gate_mul(gate + bias, up + up_bias)
  kGateUp,       ///< the same vectors: out[col] = gate + bias, out[col + up_column] = up + up_bias
  kAddWeighted,  ///< out[col] of row out_rows[row] += row_weights[row] * (acc + bias)
};

/// The product of `rows` packed rows with one panel.
struct PanelTask {
  const void* activations;  ///< from pack_rows, of `rows` rows
  const void* panel;
  int64_t k_groups;  ///< groups of k in the panel and in the activations
  int64_t rows;
  int64_t tile_rows;    ///< as given to pack_rows
  float* accumulators;  ///< scratch, rows * panel_cols floats, aligned to 64 bytes
  const float* bias;    ///< [cols], of the panel's first output, or null
  const float* up_bias;
  float* out;  ///< [rows][out_stride], at the panel's first output
  int64_t out_stride;
  int32_t cols;       ///< outputs that exist: <= panel_cols (half of it of gate and up)
  int64_t up_column;  ///< kGateUp only
  PanelEpilogue epilogue;
  GateSpec gate;             ///< kGateMul only
  const int32_t* out_rows;   ///< [rows], kAddWeighted only: rows of `out`
  const float* row_weights;  ///< [rows], kAddWeighted only
};

/// Activations to pack for panel_product.
struct RowsToPack {
  const float* x;  ///< [rows][row_stride]
  int64_t row_stride, rows, k, tile_rows;
  int64_t rows_behind;  ///< rows that follow these: what is packed next
};

/// Packed rows, each a tile of its own, to become tiles of several.
struct RowsToGather {
  const void* packed;   ///< from pack_rows with tile_rows = 1
  const int32_t* rows;  ///< [count] of those to take, in this order
  int64_t count, tile_rows;
  int64_t row_bytes;    ///< of a packed row: whole groups
  int64_t group_bytes;  ///< words of 4 bytes, then units
  int64_t group_words;
  int64_t unit_bytes;  ///< 4 or 8: what rows of a tile take turns with
};

/// Kernels for one way of storing weights.
struct LinearFormat {
  int32_t group;  ///< k that k_groups counts: side by side in a column, 1 or 2; 32 of MXFP4
  int32_t activation_bytes;  ///< of a packed activation: 4 (float32) or 2 (bf16)
  int32_t unit;              ///< activations that rows of a tile take turns with
  /// Tiles of tile_rows rows side by side, each [k / unit][rows][unit], the last tile with the
  /// rows that are left. A tile starts k_groups * group elements after the one before for each row
  /// of that.
  void (*pack_rows)(const RowsToPack& rows, void* packed);
  void (*panel_product)(const PanelTask& task);
};

/// Bytes of a group of a panel of MXFP4.
constexpr int64_t float4_group_bytes(int64_t cols) {
  return cols * (1 + kFloat4Format.group_size * kFloat4Format.bits / 8);
}

struct LinearKernels {
  int32_t lanes;       ///< floats in a vector; the unit that gate and up alternate in
  int32_t panel_cols;  ///< 4 * lanes
  int32_t tile_rows;   ///< most rows that can share one pass over a panel
  LinearFormat f32, bf16, f16;
  LinearFormat float4_f32, float4_bf16;  ///< MXFP4 in place of such weights
  /// Writes a group of such a panel from those of its columns.
  void (*put_float4)(const QuantizedGroup* columns, void* group);
  /// Writes the tiles that pack_rows would have made of the rows.
  void (*gather_rows)(const RowsToGather& rows, void* packed);
};

}  // namespace headrace
