#include "backend/cpu/kernels_linear.h"

#include "backend/cpu/kernels/float4_kernels.h"
#include "backend/cpu/kernels/gather_rows.h"
#include "backend/cpu/kernels/interleave.h"
#include "backend/cpu/kernels/panel_walk.h"
#include "backend/cpu/simd/simd.h"

// Compiled once per ISA.

namespace headrace::HEADRACE_ISA {
namespace {

// Accumulators are kTileRows * 4 vectors: 24 of AVX-512's 32 registers, 12 of 16 elsewhere.
constexpr int kTileRows = kLanes == 16 ? 6 : 3;

/// c[r][v] += x[r] * w[v], one w at a time: accumulators, x and one w are all the registers that
/// the ISAs with 16 of them have.
template <int R, class Weights>
HEADRACE_SIMD_INLINE void multiply(const float* x, int stride, const Weights& weights,
                                   F32 (&c)[R][kVectors]) {
  F32 rows[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) rows[r] = set1(x[r * stride]);
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const F32 w = weights(v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) c[r][v] = fma(rows[r], w, c[r][v]);
  }
}

// A format says how one group of k meets the accumulators of R rows, each by kDots multiplications.

struct FormatF32 {
  using Weight = float;
  using Activation = float;
  static constexpr int kGroup = 1;
  static constexpr int kDots = 1;
  template <int R>
  static HEADRACE_SIMD_INLINE void step(const Activation* a, const Weight* b,
                                        F32 (&c)[R][kVectors]) {
    multiply<R>(a, 1, [b](int v) { return load(b + v * kLanes); }, c);
  }
};

struct FormatF16 {
  using Weight = uint16_t;
  using Activation = float;
  static constexpr int kGroup = 1;
  static constexpr int kDots = 1;
  template <int R>
  static HEADRACE_SIMD_INLINE void step(const Activation* a, const Weight* b,
                                        F32 (&c)[R][kVectors]) {
    multiply<R>(a, 1, [b](int v) { return load_f16(b + v * kLanes); }, c);
  }
};

struct FormatBf16 {  // of use where FormatBf16Dot can't be
  using Weight = uint16_t;
  using Activation = float;
  [[maybe_unused]] static constexpr int kGroup = 2;
  [[maybe_unused]] static constexpr int kDots = 2;
  template <int R>
  static HEADRACE_SIMD_INLINE void step(const Activation* a, const Weight* b,
                                        F32 (&c)[R][kVectors]) {
    multiply<R>(a, 2, [b](int v) { return load_bf16_even(b + 2 * v * kLanes); }, c);
    // Odd activations loaded early would push accumulators out of the 16 registers.
    __asm__ volatile("" ::: "memory");
    multiply<R>(a + 1, 2, [b](int v) { return load_bf16_odd(b + 2 * v * kLanes); }, c);
  }
};

#if defined(HEADRACE_HAS_BF16_DOT)
struct FormatBf16Dot {
  using Weight = uint16_t;
  using Activation = uint16_t;
  static constexpr int kGroup = 2;
  static constexpr int kDots = 1;
  template <int R>
  static HEADRACE_SIMD_INLINE void step(const Activation* a, const Weight* b,
                                        F32 (&c)[R][kVectors]) {
    Bf16Pairs rows[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) rows[r] = broadcast_pair(a + 2 * r);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const Bf16Pairs w = load_pairs(b + 2 * v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) c[r][v] = dot_bf16(rows[r], w, c[r][v]);
    }
  }
};
#endif

/// Adds a run to `accumulators` [rows][kPanelCols], which the run at group 0 starts.
template <class Format, int R>
void accumulate(const PanelTask& task, const TileRun& run, float* accumulators) {
  constexpr int64_t kActivationStep = R * Format::kGroup;
  constexpr int64_t kWeightStep = kPanelCols * Format::kGroup;
  const auto* a = reinterpret_cast<const typename Format::Activation*>(run.activations) +
                  run.first * kActivationStep;
  const auto* b = static_cast<const typename Format::Weight*>(task.panel) + run.first * kWeightStep;
  // Unrolled, or the compiler keeps the array in memory.
  F32 c[R][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      c[r][v] = run.first == 0 ? zero() : load(accumulators + (r * kVectors + v) * kLanes);
    }
  }
  const char* fetch = run.fetch;
  for (int64_t i = run.first; i < run.last; ++i) {
    fetch_ahead(fetch, run.step_lines);
    touch_lines<kWeightStep * sizeof(typename Format::Weight) / 64>(run.streams, b);
    Format::template step<R>(a, b, c);
    a += kActivationStep;
    b += kWeightStep;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      store(accumulators + (r * kVectors + v) * kLanes, c[r][v]);
    }
  }
}

using Accumulate = void (*)(const PanelTask&, const TileRun&, float*);

template <class Format>
Accumulate accumulate_for(int64_t rows) {
  switch (rows) {
    case 1:
      return accumulate<Format, 1>;
    case 2:
      return accumulate<Format, 2>;
    case 3:
      return accumulate<Format, 3>;
#if defined(__AVX512F__)
    case 4:
      return accumulate<Format, 4>;
    case 5:
      return accumulate<Format, 5>;
#endif
    default:
      return accumulate<Format, kTileRows>;
  }
}

template <class Format>
void panel_product(const PanelTask& task) {
  constexpr int64_t kStepBytes =
      kPanelCols * Format::kGroup * static_cast<int64_t>(sizeof(typename Format::Weight));
  constexpr int64_t kStepLines = kStepBytes / 64;
  constexpr int64_t kLineDots = kVectors * Format::kDots / (kStepLines < 1 ? 1 : kStepLines);
  const int64_t row_bytes =
      task.k_groups * Format::kGroup * static_cast<int64_t>(sizeof(typename Format::Activation));
  walk_panel(task, {kStepBytes, 1, kStepLines, kLineDots, row_bytes}, [&](const TileRun& run) {
    accumulate_for<Format>(run.rows)(task, run, task.accumulators + run.row * kPanelCols);
  });
}

template <int kGroup>
void pack_rows_f32(const RowsToPack& task, void* packed) {
  const int64_t padded_k = (task.k + kGroup - 1) / kGroup * kGroup;
  for (int64_t row = 0; row < task.rows; row += task.tile_rows) {
    const int64_t tile = task.rows - row < task.tile_rows ? task.rows - row : task.tile_rows;
    float* to = static_cast<float*>(packed) + row * padded_k;
    for (int64_t i = 0; i < padded_k; i += kGroup) {
      for (int64_t r = 0; r < tile; ++r) {
        for (int g = 0; g < kGroup; ++g) {
          *to++ = i + g < task.k ? task.x[(row + r) * task.row_stride + i + g] : 0.0f;
        }
      }
    }
  }
}

#if defined(HEADRACE_HAS_BF16_DOT)
/// `ahead`: from a number to the one of the next tile.
template <int R>
void pack_tile_bf16(const float* x, int64_t row_stride, int64_t k, int64_t ahead, uint16_t* to) {
  for (int64_t i = 0; i < k; i += 2 * kLanes, to += 2 * kLanes * R) {
    const auto left = static_cast<int>(k - i < 2 * kLanes ? k - i : 2 * kLanes);
    const int low = left < kLanes ? left : kLanes;
    __m512i pairs[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const float* from = x + r * row_stride + i;
      prefetch(from + ahead);
      prefetch(from + ahead + kLanes);
      pairs[r] = narrow_pairs(load_part(from, low), load_part(from + low, left - low));
    }
    store_interleaved<R>(pairs, (left + 1) / 2, to);
  }
}

using PackTile = void (*)(const float*, int64_t, int64_t, int64_t, uint16_t*);

void pack_rows_bf16(const RowsToPack& task, void* packed) {
  constexpr PackTile kPackTile[] = {pack_tile_bf16<1>, pack_tile_bf16<2>, pack_tile_bf16<3>,
                                    pack_tile_bf16<4>, pack_tile_bf16<5>, pack_tile_bf16<6>};
  const int64_t padded_k = (task.k + 1) / 2 * 2;
  for (int64_t row = 0; row < task.rows; row += task.tile_rows) {
    const int64_t left = task.rows - row;
    const int64_t tile = left < task.tile_rows ? left : task.tile_rows;
    kPackTile[tile - 1](task.x + row * task.row_stride, task.row_stride, task.k,
                        next_tile_offset(task, row + tile, tile),
                        static_cast<uint16_t*>(packed) + row * padded_k);
  }
}
constexpr LinearFormat kBf16 = {2, 2, 2, pack_rows_bf16, panel_product<FormatBf16Dot>};
constexpr LinearFormat kFloat4Bf16 = {32, 2, 2, pack_rows_bf16, float4_product_bf16};
#else
constexpr LinearFormat kBf16 = {2, 4, 2, pack_rows_f32<2>, panel_product<FormatBf16>};
constexpr LinearFormat kFloat4Bf16 = {32, 4, 1, pack_rows_f32<1>, float4_product_f32};
#endif

}  // namespace

extern const LinearKernels kLinearKernels;
const LinearKernels kLinearKernels = {
    kLanes,
    kPanelCols,
    kTileRows,
    {1, 4, 1, pack_rows_f32<1>, panel_product<FormatF32>},
    kBf16,
    {1, 4, 1, pack_rows_f32<1>, panel_product<FormatF16>},
    {32, 4, 1, pack_rows_f32<1>, float4_product_f32},
    kFloat4Bf16,
    put_float4,
    gather_rows,
};

}  // namespace headrace::HEADRACE_ISA
