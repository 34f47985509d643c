#include "backend/cpu/kernels_linear.h"

#include "backend/cpu/kernels/panel_epilogue.h"
#include "backend/cpu/simd/simd.h"

// Compiled once per ISA.

namespace headrace::HEADRACE_ISA {
namespace {

// Accumulators are kTileRows * 4 vectors: 24 of AVX-512's 32 registers, 12 of 16 elsewhere.
constexpr int kTileRows = kLanes == 16 ? 6 : 3;
// Bytes of a panel that stay in the first-level cache while all tiles of rows pass over them. With
// few tiles smaller blocks let the hardware's prefetcher run through the computation of the others.
constexpr int64_t kBlockBytes = 16 * 1024;
constexpr int64_t kSmallBlockBytes = 8 * 1024;

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

// A format says how one group of k meets the accumulators of R rows.

struct FormatF32 {
  using Weight = float;
  using Activation = float;
  static constexpr int kGroup = 1;
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
  template <int R>
  static HEADRACE_SIMD_INLINE void step(const Activation* a, const Weight* b,
                                        F32 (&c)[R][kVectors]) {
    multiply<R>(a, 1, [b](int v) { return load_f16(b + v * kLanes); }, c);
  }
};

struct FormatBf16 {
  using Weight = uint16_t;
  using Activation = float;
  static constexpr int kGroup = 2;
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

/// A run over k for one tile of rows.
struct TileTask {
  const void* activations;
  const void* panel;
  int64_t first, last;  ///< groups of k
  float* accumulators;  ///< [rows][kPanelCols], started at k = 0, added to afterwards
  const char* fetch;    ///< what to bring closer meanwhile,
  int64_t fetch_lines;  ///< so many cache lines (0, 1, 2 or 4) with each group of k
};

template <class Format, int R>
void accumulate(const TileTask& task) {
  constexpr int64_t kActivationStep = R * Format::kGroup;
  constexpr int64_t kWeightStep = kPanelCols * Format::kGroup;
  const auto* a = static_cast<const typename Format::Activation*>(task.activations) +
                  task.first * kActivationStep;
  const auto* b =
      static_cast<const typename Format::Weight*>(task.panel) + task.first * kWeightStep;
  // Unrolled, or the compiler keeps the array in memory.
  F32 c[R][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      c[r][v] = task.first == 0 ? zero() : load(task.accumulators + (r * kVectors + v) * kLanes);
    }
  }
  const char* fetch = task.fetch;
  const int64_t fetch_lines = task.fetch_lines;
  for (int64_t i = task.first; i < task.last; ++i) {
    if (fetch_lines != 0) {
      prefetch(fetch);
      if (fetch_lines >= 2) prefetch(fetch + 64);
      if (fetch_lines == 4) {
        prefetch(fetch + 128);
        prefetch(fetch + 192);
      }
      fetch += fetch_lines * 64;
    }
    Format::template step<R>(a, b, c);
    a += kActivationStep;
    b += kWeightStep;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      store(task.accumulators + (r * kVectors + v) * kLanes, c[r][v]);
    }
  }
}

using Accumulate = void (*)(const TileTask&);

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
  const int64_t row_bytes =
      task.k_groups * Format::kGroup * static_cast<int64_t>(sizeof(typename Format::Activation));
  const int64_t tiles = (task.rows + task.tile_rows - 1) / task.tile_rows;
  const int64_t block = tiles == 1  ? task.k_groups
                        : tiles < 4 ? kSmallBlockBytes / kStepBytes
                                    : kBlockBytes / kStepBytes;
  // From three tiles on, the first ones share in fetching the next block (or the next panel's
  // first). One or two leave a sequential stream, which the hardware reads ahead faster than
  // prefetches do: those wait for the first-level cache's few outstanding misses.
  int64_t fetching_tiles = tiles < 3 ? 0 : kStepLines;
  while (fetching_tiles > tiles) fetching_tiles /= 2;
  for (int64_t first = 0; first < task.k_groups; first += block) {
    const int64_t last = first + block < task.k_groups ? first + block : task.k_groups;
    const char* fetch = static_cast<const char*>(task.panel) + last * kStepBytes;
    for (int64_t row = 0, tile = 0; row < task.rows; row += task.tile_rows, ++tile) {
      const int64_t left = task.rows - row;
      const int64_t fetch_lines = tile < fetching_tiles ? kStepLines / fetching_tiles : 0;
      accumulate_for<Format>(left < task.tile_rows ? left : task.tile_rows)(
          {static_cast<const char*>(task.activations) + row * row_bytes, task.panel, first, last,
           task.accumulators + row * kPanelCols, fetch, fetch_lines});
      fetch += (last - first) * fetch_lines * 64;
    }
  }
  finish_rows(task);
}

void pack_rows_f32(const float* x, int64_t row_stride, int64_t rows, int64_t k, int64_t padded_k,
                   int group, int64_t tile_rows, float* out) {
  for (int64_t row = 0; row < rows; row += tile_rows) {
    const int64_t tile = rows - row < tile_rows ? rows - row : tile_rows;
    float* to = out + row * padded_k;
    for (int64_t i = 0; i < padded_k; i += group) {
      for (int64_t r = 0; r < tile; ++r) {
        for (int g = 0; g < group; ++g) {
          *to++ = i + g < k ? x[(row + r) * row_stride + i + g] : 0.0f;
        }
      }
    }
  }
}

void pack_rows_single(const float* x, int64_t row_stride, int64_t rows, int64_t k,
                      int64_t tile_rows, void* packed) {
  pack_rows_f32(x, row_stride, rows, k, k, 1, tile_rows, static_cast<float*>(packed));
}

#if defined(HEADRACE_HAS_BF16_DOT)
void pack_rows_bf16(const float* x, int64_t row_stride, int64_t rows, int64_t k, int64_t tile_rows,
                    void* packed) {
  const int64_t padded_k = (k + 1) / 2 * 2;
  for (int64_t row = 0; row < rows; row += tile_rows) {
    const int64_t tile = rows - row < tile_rows ? rows - row : tile_rows;
    auto* to = static_cast<uint16_t*>(packed) + row * padded_k;
    for (int64_t r = 0; r < tile; ++r) {
      const float* from = x + (row + r) * row_stride;
      for (int64_t i = 0; i < k; i += kLanes) {
        const int64_t left = k - i;
        const F32 v = left >= kLanes ? load(from + i) : load_part(from + i, static_cast<int>(left));
        uint16_t lanes[kLanes];
        store_bf16(lanes, v);
        const int64_t pairs = left >= kLanes ? kLanes / 2 : (left + 1) / 2;
        for (int64_t p = 0; p < pairs; ++p) {
          __builtin_memcpy(to + ((i / 2 + p) * tile + r) * 2, lanes + 2 * p, 4);
        }
      }
    }
  }
}
constexpr LinearFormat kBf16 = {2, 2, pack_rows_bf16, panel_product<FormatBf16Dot>};
#else
void pack_rows_pairs(const float* x, int64_t row_stride, int64_t rows, int64_t k, int64_t tile_rows,
                     void* packed) {
  pack_rows_f32(x, row_stride, rows, k, (k + 1) / 2 * 2, 2, tile_rows, static_cast<float*>(packed));
}
constexpr LinearFormat kBf16 = {2, 4, pack_rows_pairs, panel_product<FormatBf16>};
#endif

}  // namespace

extern const LinearKernels kLinearKernels;
const LinearKernels kLinearKernels = {
    kLanes,    kPanelCols,
    kTileRows, {1, 4, pack_rows_single, panel_product<FormatF32>},
    kBf16,     {1, 4, pack_rows_single, panel_product<FormatF16>},
};

}  // namespace headrace::HEADRACE_ISA
