#pragma once

// How a quantized weight [n, k] lies in device memory. Its rows are those of weight_layout.h, in
// tiles of 16; a tile's inputs are padded to units of 128. A tile is a run of bytes:
//
//   codes   for each 16 k (a step) and lane of a warp the lane's part of mma's a (mma.cuh), 8
//   codes;
//           16 bytes of a lane are 4 steps of int4 or 2 of int8, and 32 lanes lie side by side
//   scales  for each group of k those of rows (0, 8), (1, 9), ... (7, 15), 2 bytes each
//   zeros   likewise, a byte each, if the format has them
//
// In int4 nibble i < 4 of a lane's word is the lower half of a[i], nibble i + 4 the upper one: a
// shift and a mask give both. In int8 bytes 2i and 2i + 1 of 8 are a[i]. Behind all tiles a
// reordered weight has its order, int32 [k]; behind those of several experts theirs, [experts][k].
//
// Codes that meet codes (rounds_rows()): for each unit 16 rows of 128 bytes, its k in order, as
// products of a warpgroup take them from shared memory. Scales are float32, of each unit or one for
// all.
//
// The sums of a row of x with a feature, whatever kernel computes them, 16-bit activations: inputs
// fall into kQuantSlices runs of units, each a chain over its groups in ascending order,
//   sum = fma(products of the group, scale, sum),
// where a group's products are one chain of tensor cores' steps of 16 k from 0, of codes less their
// zero, which 16-bit floats hold exactly. The slices' sums are added to 0 in ascending order.

#include <cstdint>

#include "backend/contract/quant_format.h"
#include "cuda/kernels/linear/weight_layout.h"

namespace headrace::cuda {

inline constexpr int kQuantTile = 16;
inline constexpr int kQuantUnit = 128;
inline constexpr int kQuantSlices = 4;
inline constexpr int kLaneVector = 16;                // bytes
inline constexpr int kWarpVector = 32 * kLaneVector;  // of a warp's lanes, one each

/// Steps of 16 k whose codes a lane has in 16 bytes.
constexpr int vector_steps(int bits) { return 16 / bits; }

struct QuantLayout {
  WeightLayout matrix;
  QuantFormat format;

  constexpr int64_t units() const { return (matrix.k + kQuantUnit - 1) / kQuantUnit; }
  constexpr int64_t groups() const {
    const bool one = rounds_rows(format) && format.activations != Activations::kFloat8Groups;
    return one ? 1 : units() * (kQuantUnit / format.group_size);
  }
  constexpr int64_t scale_bytes() const { return rounds_rows(format) ? 4 : 2; }
  constexpr int64_t tiles() const { return matrix.stored_rows() / kQuantTile; }
  /// Of a tile.
  constexpr int64_t scales_at() const {
    return units() * kQuantUnit * kQuantTile * format.bits / 8;
  }
  constexpr int64_t zeros_at() const { return scales_at() + groups() * kQuantTile * scale_bytes(); }
  constexpr int64_t tile_bytes() const {
    return zeros_at() + (format.zero_points ? groups() * kQuantTile : 0);
  }
  constexpr int64_t order_at(int64_t experts = 1) const { return experts * tiles() * tile_bytes(); }
  constexpr int64_t bytes() const {
    return order_at() + (format.reordered ? matrix.k * static_cast<int64_t>(sizeof(int32_t)) : 0);
  }
};

/// First unit of a slice; of slice kQuantSlices the end.
constexpr int64_t slice_begin(int64_t units, int slice) { return units * slice / kQuantSlices; }

/// Where a tile has row `row` of 16: among a group's scales or zeros.
constexpr int pair_place(int row) { return row % 8 * 2 + row / 8; }

/// Where a tile has the code of a row and an input: a byte and, in int4, the bit in it.
struct CodePlace {
  int64_t byte;
  int bit;
};
constexpr CodePlace code_place(int bits, int row, int64_t k) {
  const int64_t step = k / 16;
  const int j = static_cast<int>(k % 16), per_vector = vector_steps(bits);
  const int lane = row % 8 * 4 + j % 8 / 2, reg = j / 8 * 2 + row / 8, high = j % 2;
  const int64_t vector = step / per_vector * kWarpVector + lane * kLaneVector;
  if (bits == 8) return {vector + step % per_vector * 8 + reg * 2 + high, 0};
  return {vector + step % per_vector * 4 + high * 2 + reg / 2, reg % 2 * 4};
}

/// Where a tile has a code that meets codes.
constexpr int64_t rounded_code_place(int row, int64_t k) {
  return (k / kQuantUnit * kQuantTile + row) * kQuantUnit + k % kQuantUnit;
}

}  // namespace headrace::cuda
