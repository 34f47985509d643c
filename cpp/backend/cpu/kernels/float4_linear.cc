#include "backend/cpu/kernels/float4_kernels.h"
#include "backend/cpu/kernels/group_sums.h"
#include "backend/cpu/kernels/panel_walk.h"
#include "backend/cpu/simd/float4.h"

// Compiled once per ISA.

namespace headrace::HEADRACE_ISA {
namespace {

constexpr int64_t kGroupK = 32;
constexpr int64_t kStepK = 8;  // codes of a lane that are loaded together
constexpr int64_t kStepBytes = kPanelCols * kStepK / 2;
constexpr int64_t kGroupSteps = kGroupK / kStepK;

struct Float4Scales {
  const char* columns;
  HEADRACE_SIMD_INLINE F32 operator()(int v) const { return load_e8m0(columns + v * kLanes); }
};

// A format says how a vector's eight k meet R rows, each by kDots multiplications.

struct FormatF32 {
  using Activation = float;
  static constexpr int kDots = 8;
  template <int R>
  static HEADRACE_SIMD_INLINE void step(const float* x, Float4Codes codes, F32 (&c)[R][kVectors],
                                        int v) {
    multiply<R, 0>(x, codes, c, v);
    multiply<R, 1>(x, codes, c, v);
    multiply<R, 2>(x, codes, c, v);
    multiply<R, 3>(x, codes, c, v);
    multiply<R, 4>(x, codes, c, v);
    multiply<R, 5>(x, codes, c, v);
    multiply<R, 6>(x, codes, c, v);
    multiply<R, 7>(x, codes, c, v);
  }

 private:
  template <int R, int k>
  static HEADRACE_SIMD_INLINE void multiply(const float* x, Float4Codes codes,
                                            F32 (&c)[R][kVectors], int v) {
    const F32 w = decode<k>(codes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) c[r][v] = fma(set1(x[k * R + r]), w, c[r][v]);
  }
};

#if defined(HEADRACE_HAS_BF16_DOT)
struct FormatPairs {
  using Activation = uint16_t;
  static constexpr int kDots = 4;
  template <int R>
  static HEADRACE_SIMD_INLINE void step(const uint16_t* x, Float4Codes codes, F32 (&c)[R][kVectors],
                                        int v) {
    multiply<R, 0>(x, codes, c, v);
    multiply<R, 1>(x, codes, c, v);
    multiply<R, 2>(x, codes, c, v);
    multiply<R, 3>(x, codes, c, v);
  }

 private:
  template <int R, int i>
  static HEADRACE_SIMD_INLINE void multiply(const uint16_t* x, Float4Codes codes,
                                            F32 (&c)[R][kVectors], int v) {
    const Bf16Pairs w = decode_pairs<i>(codes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      c[r][v] = dot_bf16(broadcast_pair(x + (i * R + r) * 2), w, c[r][v]);
    }
  }
};
#endif

// Both kinds of sums, scales, and a vector of codes, of weights and of a table.
template <int R>
constexpr int kRegistersWanted = (2 * R + 1) * kVectors + 3;

/// Adds a run to `accumulators` [rows][kPanelCols], which the run at group 0 starts.
template <class Format, int R>
void accumulate(const PanelTask& task, const TileRun& run, float* accumulators) {
  const auto* a = reinterpret_cast<const typename Format::Activation*>(run.activations) +
                  run.first * kGroupK * R;
  const char* b = static_cast<const char*>(task.panel) + run.first * float4_group_bytes(kPanelCols);
  const char* fetch = run.fetch;
  GroupSums<kRegistersWanted<R>, R, Float4Scales> sums(accumulators, run.first == 0);
  for (int64_t g = run.first; g < run.last; ++g) {
    for (int64_t i = 0; i < run.group_lines; ++i) fetch_ahead(fetch, 1);
    sums.begin_group({b});
    b += kPanelCols;
    F32 c[R][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) c[r][v] = zero();
    }
    for (int64_t i = 0; i < kGroupSteps; ++i) {
      fetch_ahead(fetch, run.step_lines);
      touch_lines<kStepBytes / 64>(run.streams, b);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        Format::template step<R>(a, load_codes(b + v * 4 * kLanes), c, v);
        // Activations kept for the next vector would push sums out of the registers.
        __asm__ volatile("" ::: "memory");
      }
      a += kStepK * R;
      b += kStepBytes;
    }
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const F32 scale = sums.scale(v);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sums.add(r, v, c[r][v], scale);
    }
    sums.end_group();
  }
  sums.finish();
}

using Accumulate = void (*)(const PanelTask&, const TileRun&, float*);

template <class Format>
Accumulate accumulate_for(int64_t rows) {
  switch (rows) {
    case 1:
      return accumulate<Format, 1>;
    case 2:
      return accumulate<Format, 2>;
#if defined(__AVX512F__)
    case 3:
      return accumulate<Format, 3>;
    case 4:
      return accumulate<Format, 4>;
    case 5:
      return accumulate<Format, 5>;
    default:
      return accumulate<Format, 6>;
#else
    default:
      return accumulate<Format, 3>;
#endif
  }
}

template <class Format>
void product(const PanelTask& task) {
  constexpr int64_t kStepLines = kStepBytes / 64;
  constexpr int64_t kLineDots = kVectors * Format::kDots / kStepLines;
  constexpr auto kActivationBytes = static_cast<int64_t>(sizeof(typename Format::Activation));
  const PanelSizes sizes = {float4_group_bytes(kPanelCols), kGroupSteps, kStepLines, kLineDots,
                            task.k_groups * kGroupK * kActivationBytes};
  walk_panel(task, sizes, [&](const TileRun& run) {
    accumulate_for<Format>(run.rows)(task, run, task.accumulators + run.row * kPanelCols);
  });
}

}  // namespace

void float4_product_f32(const PanelTask& task) { product<FormatF32>(task); }

#if defined(HEADRACE_HAS_BF16_DOT)
void float4_product_bf16(const PanelTask& task) { product<FormatPairs>(task); }
#endif

void put_float4(const QuantizedGroup* columns, void* group) {
  auto* out = static_cast<uint8_t*>(group);
  __builtin_memset(out, 0, static_cast<size_t>(float4_group_bytes(kPanelCols)));
  for (int column = 0; column < kPanelCols; ++column) {
    const QuantizedGroup& from = columns[column];
    out[column] = static_cast<uint8_t>(from.scale);
    uint8_t* codes = out + kPanelCols + column / kLanes * 4 * kLanes;
    for (int k = 0; k < kGroupK; ++k) {
      put_code(codes + k / kStepK * kStepBytes, column % kLanes, k % kStepK, from.codes[k]);
    }
  }
}

}  // namespace headrace::HEADRACE_ISA
