#pragma once

// What the kernels of quantized weights read of one, and where.

#include <bit>

#include "cuda/device/codes.cuh"
#include "cuda/device/cp_async.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/kernels/quant/quant_linear.h"

namespace headrace::cuda {

/// k that kernels for 16-bit activations take at once: two for a unit.
inline constexpr int kQuantStage = 64;
inline constexpr int kStageChunks = kQuantStage / 8;  // 16 bytes of x's row each
inline constexpr int kStageRowBytes = kQuantStage * 2;
/// Most groups of a stage, and those that it has or has a part of.
inline constexpr int kStageGroups = kQuantStage / 32;

/// A weight in device memory: quant_layout.h, with what is computed of it.
struct QuantWeightView {
  const uint8_t* data;
  int64_t tile_bytes, scales_at, zeros_at;
  int bits, group_bits, symmetric_zero;  // 1 << group_bits inputs are a group
  bool zero_points, f16_scales;

  /// Groups that begin before a stage, and those that it has or has a part of.
  __device__ int64_t groups_before(int64_t stage) const {
    return stage * kQuantStage >> group_bits;
  }
  __device__ int stage_groups() const { return group_bits == 5 ? 2 : 1; }
  __device__ bool begins_group(int k) const { return (k & ((1 << group_bits) - 1)) == 0; }
  __device__ const uint8_t* tile(int64_t index) const { return data + index * tile_bytes; }

  /// Element of a stored row.
  __device__ float at(int64_t row, int64_t k) const {
    const uint8_t* from = tile(row / kQuantTile);
    const auto in_tile = static_cast<int>(row % kQuantTile);
    const CodePlace place = code_place(bits, in_tile, k);
    const int code = bits == 8 ? from[place.byte] : from[place.byte] >> place.bit & 15;
    const int64_t pair = (k >> group_bits) * kQuantTile + pair_place(in_tile);
    const uint16_t scale = reinterpret_cast<const uint16_t*>(from + scales_at)[pair];
    const int zero = zero_points ? from[zeros_at + pair] : symmetric_zero;
    return scale_of(scale) * static_cast<float>(code - zero);
  }

 private:
  __device__ float scale_of(uint16_t bits16) const {
    return f16_scales ? to_float(F16{bits16}) : to_float(Bf16{bits16});
  }
};

inline QuantWeightView view_of(const QuantLayout& layout, const void* data) {
  return {.data = static_cast<const uint8_t*>(data),
          .tile_bytes = layout.tile_bytes(),
          .scales_at = layout.scales_at(),
          .zeros_at = layout.zeros_at(),
          .bits = layout.format.bits,
          .group_bits = std::countr_zero(static_cast<unsigned>(layout.format.group_size)),
          .symmetric_zero = quant_zero(layout.format.bits),
          .zero_points = layout.format.zero_points,
          .f16_scales = layout.format.f16_scales};
}

inline QuantLayout layout_of(const QuantLinearArgs& args) {
  return {args.linear.layout, args.format};
}

/// Bytes of a tile's codes in a stage.
constexpr int stage_code_bytes(int bits) { return kQuantStage * kQuantTile * bits / 8; }

/// Byte of a chunk in a stage of x: ldmatrix, which takes a chunk of 8 rows, meets every bank once,
/// and so do copies of a row.
__device__ inline int stage_chunk_byte(int row, int chunk) {
  return row * kStageRowBytes + (chunk ^ (row & 7)) * 16;
}

/// Activations [rows, k] of 16 bits.
template <class T>
struct QuantInput {
  const T* x;
  int64_t stride, rows, k;
  bool vectors;

  /// Eight elements; zeros where there are none.
  __device__ Vector<T> chunk(int64_t row, int64_t k0) const {
    const T* from = x + row * stride + k0;
    Vector<T> values = {};
    if (row >= rows) return values;
    if (vectors && k0 + 8 <= k) return load_vector(from);
    for (int i = 0; i < 8; ++i) {
      if (k0 + i < k) values.at[i] = from[i];
    }
    return values;
  }

  /// The same to shared memory, as an asynchronous copy if it can be.
  __device__ void copy_chunk(char* to, int64_t row, int64_t k0) const {
    if (!vectors) return store_vector(reinterpret_cast<T*>(to), chunk(row, k0));
    const int64_t left = row < rows ? greatest<int64_t>(k - k0, 0) : 0;
    copy_async_16(to, x + (left > 0 ? row * stride + k0 : 0),
                  static_cast<int>(least<int64_t>(left, 8)) * 2);
  }
};

template <class T>
QuantInput<T> input_of(const LinearArgs& args) {
  const auto* x = static_cast<const T*>(args.x.data);
  return {x, args.x.stride, args.x.rows, args.x.cols, is_vectorizable(x, args.x.stride, 0)};
}

/// Products of the group under way, and the sum of those before it, of 16 features and 8 tokens for
/// each of kTiles.
template <int kTiles>
struct GroupSums {
  float products[kTiles][4] = {};
  float sums[kTiles][4] = {};

  /// The group is complete.
  __device__ void add_group(const ScalePair& scale) {
    HEADRACE_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      HEADRACE_UNROLL
      for (int i = 0; i < 4; ++i) {
        sums[t][i] = fmaf(products[t][i], i < 2 ? scale.low : scale.high, sums[t][i]);
        products[t][i] = 0.0f;
      }
    }
  }
};

/// What two rows' codes of a group are read with.
template <class T, int kBits>
struct RowZeros {
  CodeZero<T, kBits> low, high;

  __device__ explicit RowZeros(int symmetric = quant_zero(kBits))
      : low(static_cast<uint32_t>(symmetric)), high(static_cast<uint32_t>(symmetric)) {}
  /// `pair`: as the layout has them.
  __device__ void set(uint32_t pair) {
    low = CodeZero<T, kBits>(pair & 0xff);
    high = CodeZero<T, kBits>(pair >> 8 & 0xff);
  }
};

}  // namespace headrace::cuda
