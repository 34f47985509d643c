#pragma once

// What mma.sync's products of codes by codes read: a weight in rounded_code_place()'s order, and
// rows that lie plainly. Lane 4g + q of a unit has bytes 16 q to 16 q + 15 of both of a row's
// halves of 64, which a warp's lanes read whole: a product of 32 k takes 8 from each lane.

#include "cuda/device/cp_async.cuh"
#include "cuda/device/mma8.cuh"
#include "cuda/device/stream_load.cuh"
#include "cuda/kernels/linear/linear_epilogue.cuh"
#include "cuda/kernels/rounded/round_rows.h"
#include "cuda/kernels/rounded/rounded_linear.h"

namespace headrace::cuda {

inline constexpr int kUnitSteps = kQuantUnit / 32;  // products of 32 k

struct RoundedTask {
  const uint8_t* weight;
  int64_t tile_bytes, scales_at;
  const uint8_t* codes;  // [rows][stride]
  const float* scales;   // [units or 1][scale_stride]
  int64_t rows, stride, scale_stride;
  int64_t units, tiles;  // of the weight
  bool by_unit;          // a scale for each unit
  /// Whether blocks often have far fewer rows than they have room for.
  static constexpr bool kOftenFew = false;

  /// Of the weight: a lane's first bytes of a tile.
  __device__ const uint8_t* tile_codes(int64_t tile) const {
    const auto [g, q] = lane_place();
    return weight + tile * tile_bytes + g * kQuantUnit + q * 16;
  }
  /// A lane's two rows' scales of a unit, or of all.
  __device__ ScalePair weight_scales(int64_t tile, int64_t unit) const {
    const auto* from = reinterpret_cast<const float2*>(weight + tile * tile_bytes + scales_at);
    const float2 pair = from[(by_unit ? unit : 0) * (kQuantTile / 2) + lane_id() / 4];
    return {pair.x, pair.y};
  }
  /// Behind the last row the last one: nobody reads those sums.
  __device__ int64_t row_at(int64_t row) const { return least(row, rows - 1); }
  __device__ float row_scale(int64_t row, int64_t unit) const {
    return scales[(by_unit ? unit * scale_stride : 0) + row_at(row)];
  }
};

inline RoundedTask rounded_task(const QuantLinearArgs& args) {
  const QuantLayout layout{args.linear.layout, args.format};
  const RoundedRows rows(layout, args.linear.x.rows);
  const auto* codes = static_cast<const uint8_t*>(args.rounded);
  return {.weight = static_cast<const uint8_t*>(args.linear.weight),
          .tile_bytes = layout.tile_bytes(),
          .scales_at = layout.scales_at(),
          .codes = codes,
          .scales = reinterpret_cast<const float*>(codes + rows.scales_at()),
          .rows = rows.rows,
          .stride = rows.stride,
          .scale_stride = rows.scale_stride,
          .units = layout.units(),
          .tiles = layout.tiles(),
          .by_unit = args.format.activations == Activations::kFloat8Groups};
}

/// A lane's codes of a unit of one row, from its first 16 bytes on.
struct UnitRow {
  uint4 at[2];

  __device__ void load(const void* from) {
    HEADRACE_UNROLL
    for (int h = 0; h < 2; ++h) at[h] = *reinterpret_cast<const uint4*>(unit_half(from, h));
  }
  __device__ void load_streamed_row(const void* from) {
    HEADRACE_UNROLL
    for (int h = 0; h < 2; ++h) at[h] = load_streamed(unit_half(from, h));
  }
  /// b of a step, or half of a.
  __device__ void step(int s, uint32_t (&b)[2]) const {
    const uint4& half = at[s / 2];
    b[0] = s % 2 == 0 ? half.x : half.z;
    b[1] = s % 2 == 0 ? half.y : half.w;
  }

 private:
  __device__ static const char* unit_half(const void* from, int h) {
    return static_cast<const char*>(from) + h * (kQuantUnit / 2);
  }
};

/// Of 16 features.
struct UnitCodes {
  UnitRow rows[2];  // g and g + 8

  __device__ void load(const uint8_t* tile, int64_t unit) {
    HEADRACE_UNROLL
    for (int i = 0; i < 2; ++i) {
      rows[i].load_streamed_row(tile + (unit * kQuantTile + 8 * i) * kQuantUnit);
    }
  }
  /// a of a step.
  __device__ void step(int s, uint32_t (&a)[4]) const {
    uint32_t low[2], high[2];
    rows[0].step(s, low);
    rows[1].step(s, high);
    a[0] = low[0];
    a[1] = high[0];
    a[2] = low[1];
    a[3] = high[1];
  }
};

/// Sums of 16 features and 8 rows.
struct RoundedSums {
  float at[4] = {};

  /// A unit's products, the scales of the lane's two features and two rows.
  template <class Sum>
  __device__ void add(const Sum (&products)[4], bool by_unit, const ScalePair& features,
                      const float (&rows)[2]) {
    HEADRACE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const auto product = static_cast<float>(products[i]);
      const float scale = (i < 2 ? features.low : features.high) * rows[i % 2];
      at[i] = by_unit ? fmaf(product, scale, at[i]) : at[i] + product;
    }
  }
};

template <class F>
void with_rounded_types(const QuantLinearArgs& args, F&& f) {
  const auto with_code = [&](auto element, auto result) {
    if (has_float8(args.format)) {
      f(Float8Code{}, element, result);
    } else {
      f(Int8Code{}, element, result);
    }
  };
  if (args.linear.dtype == DType::kF32) return with_code(float{}, float{});
  with_linear_types(args.linear, with_code);
}

}  // namespace headrace::cuda
