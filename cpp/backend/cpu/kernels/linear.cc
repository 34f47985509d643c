#include "backend/cpu/kernels_linear.h"

#include "backend/cpu/simd/simd.h"

// Compiled once per ISA.

namespace headrace::HEADRACE_ISA {
namespace {

constexpr int kVectors = 4;  // of a panel's row
constexpr int kPanelCols = kVectors * kLanes;
// Accumulators are kTileRows * 4 vectors: 24 of AVX-512's 32 registers, 12 of 16 elsewhere.
constexpr int kTileRows = kLanes == 16 ? 6 : 3;
// Bytes of a panel that stay in the first-level cache while all tiles of rows pass over them.
constexpr int64_t kBlockBytes = 16 * 1024;
// How far ahead of its use a panel is fetched when one tile is all there is to do with it.
constexpr int64_t kPrefetchBytes = 4096;

// A format says how one group of k meets the accumulators of R rows.

struct FormatF32 {
  using Weight = float;
  using Activation = float;
  static constexpr int kGroup = 1;
  template <int R>
  static HEADRACE_SIMD_INLINE void step(const Activation* a, const Weight* b,
                                        F32 (&c)[R][kVectors]) {
    F32 w[kVectors];
    for (int v = 0; v < kVectors; ++v) w[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F32 x = set1(a[r]);
      for (int v = 0; v < kVectors; ++v) c[r][v] = fma(x, w[v], c[r][v]);
    }
  }
};

struct FormatF16 {
  using Weight = uint16_t;
  using Activation = float;
  static constexpr int kGroup = 1;
  template <int R>
  static HEADRACE_SIMD_INLINE void step(const Activation* a, const Weight* b,
                                        F32 (&c)[R][kVectors]) {
    F32 w[kVectors];
    for (int v = 0; v < kVectors; ++v) w[v] = load_f16(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F32 x = set1(a[r]);
      for (int v = 0; v < kVectors; ++v) c[r][v] = fma(x, w[v], c[r][v]);
    }
  }
};

struct FormatBf16 {
  using Weight = uint16_t;
  using Activation = float;
  static constexpr int kGroup = 2;
  template <int R>
  static HEADRACE_SIMD_INLINE void step(const Activation* a, const Weight* b,
                                        F32 (&c)[R][kVectors]) {
    F32 even[kVectors], odd[kVectors];
    for (int v = 0; v < kVectors; ++v) load_bf16_pairs(b + 2 * v * kLanes, even[v], odd[v]);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F32 x = set1(a[2 * r]);
      for (int v = 0; v < kVectors; ++v) c[r][v] = fma(x, even[v], c[r][v]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F32 x = set1(a[2 * r + 1]);
      for (int v = 0; v < kVectors; ++v) c[r][v] = fma(x, odd[v], c[r][v]);
    }
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
    Bf16Pairs w[kVectors];
    for (int v = 0; v < kVectors; ++v) w[v] = load_pairs(b + 2 * v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Bf16Pairs x = broadcast_pair(a + 2 * r);
      for (int v = 0; v < kVectors; ++v) c[r][v] = dot_bf16(x, w[v], c[r][v]);
    }
  }
};
#endif

/// Adds k groups [first, last) to the accumulators [R][kPanelCols] of one tile, or starts them.
template <class Format, int R>
void accumulate(const void* activations, const void* panel, int64_t first, int64_t last,
                float* accumulators) {
  constexpr int64_t kActivationStep = R * Format::kGroup;
  constexpr int64_t kWeightStep = kPanelCols * Format::kGroup;
  constexpr int64_t kStepBytes =
      kWeightStep * static_cast<int64_t>(sizeof(typename Format::Weight));
  const auto* a =
      static_cast<const typename Format::Activation*>(activations) + first * kActivationStep;
  const auto* b = static_cast<const typename Format::Weight*>(panel) + first * kWeightStep;
  F32 c[R][kVectors];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      c[r][v] = first == 0 ? zero() : load(accumulators + (r * kVectors + v) * kLanes);
    }
  }
  for (int64_t i = first; i < last; ++i) {
    for (int64_t line = 0; line < kStepBytes; line += 64) {
      prefetch(reinterpret_cast<const char*>(b) + kPrefetchBytes + line);
    }
    Format::template step<R>(a, b, c);
    a += kActivationStep;
    b += kWeightStep;
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kVectors; ++v) store(accumulators + (r * kVectors + v) * kLanes, c[r][v]);
  }
}

using Accumulate = void (*)(const void*, const void*, int64_t, int64_t, float*);

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

HEADRACE_SIMD_INLINE F32 load_bias(const float* bias, int first, int count) {
  if (bias == nullptr || count <= 0) return zero();
  return count >= kLanes ? load(bias + first) : load_part(bias + first, count);
}

HEADRACE_SIMD_INLINE void store_up_to(float* out, F32 v, int count) {
  if (count >= kLanes) {
    store(out, v);
  } else if (count > 0) {
    store_part(out, v, count);
  }
}

void finish_row(const PanelTask& task, const float* acc, float* out) {
  if (task.epilogue == PanelEpilogue::kStore) {
    for (int v = 0; v < kVectors; ++v) {
      const int first = v * kLanes;
      const int count = task.cols - first;
      const F32 y = add(load(acc + first), load_bias(task.bias, first, count));
      store_up_to(out + first, y, count);
    }
    return;
  }
  for (int v = 0; v < kVectors / 2; ++v) {
    const int first = v * kLanes;
    const int count = task.cols - first;
    const F32 gate = add(load(acc + 2 * first), load_bias(task.bias, first, count));
    const F32 up = add(load(acc + 2 * first + kLanes), load_bias(task.up_bias, first, count));
    store_up_to(out + first, mul(silu(gate), up), count);
  }
}

template <class Format>
void panel_product(const PanelTask& task) {
  constexpr int64_t kStepBytes =
      kPanelCols * Format::kGroup * static_cast<int64_t>(sizeof(typename Format::Weight));
  constexpr int64_t kBlock = kBlockBytes / kStepBytes;
  const int64_t tile_bytes =
      task.k_groups * Format::kGroup * static_cast<int64_t>(sizeof(typename Format::Activation));
  // With one tile nothing is gained by stopping on the way.
  const int64_t block = task.rows <= kTileRows ? task.k_groups : kBlock;
  for (int64_t first = 0; first < task.k_groups; first += block) {
    const int64_t last = first + block < task.k_groups ? first + block : task.k_groups;
    for (int64_t row = 0; row < task.rows; row += kTileRows) {
      const int64_t left = task.rows - row;
      const auto run = accumulate_for<Format>(left < kTileRows ? left : kTileRows);
      run(static_cast<const char*>(task.activations) + row * tile_bytes, task.panel, first, last,
          task.accumulators + row * kPanelCols);
    }
  }
  for (int64_t row = 0; row < task.rows; ++row) {
    finish_row(task, task.accumulators + row * kPanelCols, task.out + row * task.out_stride);
  }
}

void pack_rows_f32(const float* x, int64_t row_stride, int64_t rows, int64_t k, int64_t padded_k,
                   int group, float* out) {
  for (int64_t row = 0; row < rows; row += kTileRows) {
    const int64_t tile = rows - row < kTileRows ? rows - row : kTileRows;
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

void pack_rows_single(const float* x, int64_t row_stride, int64_t rows, int64_t k, void* packed) {
  pack_rows_f32(x, row_stride, rows, k, k, 1, static_cast<float*>(packed));
}

#if defined(HEADRACE_HAS_BF16_DOT)
void pack_rows_bf16(const float* x, int64_t row_stride, int64_t rows, int64_t k, void* packed) {
  const int64_t padded_k = (k + 1) / 2 * 2;
  for (int64_t row = 0; row < rows; row += kTileRows) {
    const int64_t tile = rows - row < kTileRows ? rows - row : kTileRows;
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
void pack_rows_pairs(const float* x, int64_t row_stride, int64_t rows, int64_t k, void* packed) {
  pack_rows_f32(x, row_stride, rows, k, (k + 1) / 2 * 2, 2, static_cast<float*>(packed));
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
