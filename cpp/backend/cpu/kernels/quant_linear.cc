#include "backend/cpu/kernels/group_sums.h"
#include "backend/cpu/kernels/panel_walk.h"
#include "backend/cpu/kernels/quant_kernels.h"
#include "backend/cpu/kernels_quant.h"
#include "backend/cpu/simd/int8.h"

// Compiled once per ISA.

namespace headrace::HEADRACE_ISA {
namespace {

/// c[r][v] += four k of row r times those of vector v, one w at a time.
template <int R, class Weights>
HEADRACE_SIMD_INLINE void multiply(const char* x, const Weights& weights, I32 (&c)[R][kVectors]) {
  Quad rows[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) rows[r] = load_quad(x + r * kQuadBytes);
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const Factors w = factors(weights(v));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) c[r][v] = dot(w, rows[r], c[r][v]);
  }
}

/// The same for nibbles and int16 sums.
template <int R, class Weights>
HEADRACE_SIMD_INLINE void multiply_narrow(const char* x, const Weights& weights,
                                          I32 (&c)[R][kVectors]) {
  Quad rows[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) rows[r] = load_quad(x + r * kQuadBytes);
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const Bytes w = weights(v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) c[r][v] = narrow_dot(w, rows[r], c[r][v]);
  }
}

// A format says how one step (the weights of kPanelCols * 4 bytes) meets the sums of R rows.

struct Int8 {
  static constexpr int kBits = 8;
  static constexpr int kStepK = 4;
  static constexpr int kNarrowSteps = 0;
  template <int R>
  static HEADRACE_SIMD_INLINE void step(const char* a, const char* b, I32 (&c)[R][kVectors]) {
    multiply<R>(a, [b](int v) { return load_bytes(b + v * 4 * kLanes); }, c);
  }
};

struct Int4 {
  static constexpr int kBits = 4;
  static constexpr int kStepK = 8;
  /// Steps whose sums fit int16; 0: sums are int32.
  static constexpr int kNarrowSteps = kNarrowQuads / 2;
  template <int R>
  static HEADRACE_SIMD_INLINE void step(const char* a, const char* b, I32 (&c)[R][kVectors]) {
    const auto low = [b](int v) { return low_nibbles(load_bytes(b + v * 4 * kLanes)); };
    const auto high = [b](int v) { return high_nibbles(load_bytes(b + v * 4 * kLanes)); };
    if constexpr (kNarrowSteps > 0) {
      multiply_narrow<R>(a, low, c);
      multiply_narrow<R>(a + R * kQuadBytes, high, c);
    } else {
      multiply<R>(a, low, c);
      // Quads of the second half loaded early would push sums out of the registers.
      __asm__ volatile("" ::: "memory");
      multiply<R>(a + R * kQuadBytes, high, c);
    }
  }
};

/// Without zero points of their own, the weights' common zero is already in each row's start; with
/// them, the start is a factor of theirs, and they come in at the end.
template <int R>
HEADRACE_SIMD_INLINE void start_sums(const QuantFormat& format, const char* starts,
                                     I32 (&c)[R][kVectors]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    int32_t start;
    __builtin_memcpy(&start, starts + 4 * r, sizeof start);
    const I32 all = set1_i32(format.zero_points ? 0 : start);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) c[r][v] = all;
  }
}

/// Where the parts of a group begin.
struct GroupParts {
  const char* steps;    ///< [rows] float
  const char* starts;   ///< [rows] int32
  const char* columns;  ///< scales and zeros
};

template <int R>
HEADRACE_SIMD_INLINE void add_zero_points(const GroupParts& group, int32_t taken_off,
                                          I32 (&c)[R][kVectors]) {
  const auto* zeros = reinterpret_cast<const uint8_t*>(group.columns) + 2 * kPanelCols;
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const I32 zero_point = add_i32(load_u8(zeros + v * kLanes), set1_i32(-taken_off));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      int32_t start;
      __builtin_memcpy(&start, group.starts + 4 * r, sizeof start);
      c[r][v] = add_i32(c[r][v], multiply_pairs(zero_point, set1_i32(start)));
    }
  }
}

struct QuantScales {
  const QuantFormat* format;
  const char* columns;

  HEADRACE_SIMD_INLINE F32 operator()(int v) const {
    const auto* from = reinterpret_cast<const uint16_t*>(columns) + v * kLanes;
    return format->f16_scales ? load_f16(from) : load_bf16(from);
  }
};

// All kinds of sums, scales, activations and a vector of weights.
template <class Format, int R>
constexpr int kRegistersWanted = ((Format::kNarrowSteps > 0 ? 3 : 2) * R + 1) * kVectors + R + 1;
template <class Format, int R>
using FloatSums = GroupSums<kRegistersWanted<Format, R>, R, QuantScales>;

template <int R, class Sums>
HEADRACE_SIMD_INLINE void scale_sums(const GroupParts& group, const I32 (&c)[R][kVectors],
                                     Sums& sums) {
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const F32 scale = sums.scale(v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      float step;
      __builtin_memcpy(&step, group.steps + 4 * r, sizeof step);
      sums.add(r, v, to_f32(c[r][v]), mul(scale, set1(step)));
    }
  }
  sums.end_group();
}

template <int R>
HEADRACE_SIMD_INLINE void add_narrow_sums(const I32 (&narrow)[R][kVectors], I32 (&c)[R][kVectors]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) c[r][v] = add_narrow(narrow[r][v], c[r][v]);
  }
}

/// Adds a run to `accumulators` [rows][kPanelCols], which the run at group 0 starts.
template <class Format, int R>
void accumulate(const PanelTask& task, const TileRun& run, const QuantFormat& format,
                float* accumulators) {
  constexpr int64_t kActivationStep = R * kQuadBytes * (Format::kStepK / 4);
  constexpr int64_t kWeightStep = kPanelCols * 4;
  const int64_t steps = format.group_size / Format::kStepK;
  const int64_t header = quant_codes_offset(format, kPanelCols);
  const char* a = run.activations + run.first * (8 * R + steps * kActivationStep);
  const char* b = static_cast<const char*>(task.panel) + run.first * (header + steps * kWeightStep);
  const char* fetch = run.fetch;
  FloatSums<Format, R> sums(accumulators, run.first == 0);
  for (int64_t g = run.first; g < run.last; ++g) {
    const GroupParts group{a, a + 4 * R, b};
    for (int64_t i = 0; i < run.group_lines; ++i) fetch_ahead(fetch, 1);
    sums.begin_group({&format, b});
    I32 c[R][kVectors];
    start_sums<R>(format, group.starts, c);
    a += 8 * R;
    b += header;
    const auto step = [&](I32(&to)[R][kVectors]) __attribute__((always_inline)) {
      fetch_ahead(fetch, run.step_lines);
      touch_lines<kWeightStep / 64>(run.streams, b);
      Format::template step<R>(a, b, to);
      a += kActivationStep;
      b += kWeightStep;
    };
    if constexpr (Format::kNarrowSteps > 0) {
      for (int64_t i = 0; i < steps; i += Format::kNarrowSteps) {
        I32 narrow[R][kVectors] = {};
        for (int j = 0; j < Format::kNarrowSteps; ++j) step(narrow);
        add_narrow_sums<R>(narrow, c);
      }
    } else {
      for (int64_t i = 0; i < steps; ++i) step(c);
    }
    if (format.zero_points) add_zero_points<R>(group, dot_zero(Format::kBits), c);
    scale_sums<R>(group, c, sums);
  }
  sums.finish();
}

using Accumulate = void (*)(const PanelTask&, const TileRun&, const QuantFormat&, float*);

template <class Format>
Accumulate accumulate_for(int64_t rows) {
  switch (rows) {
    case 1:
      return accumulate<Format, 1>;
#if defined(__AVX2__)
    case 2:
      return accumulate<Format, 2>;
#endif
#if defined(__AVX512F__)
    case 3:
      return accumulate<Format, 3>;
#endif
#if defined(__AVX512VNNI__)
    case 4:
      return accumulate<Format, 4>;
    case 5:
      return accumulate<Format, 5>;
#endif
    default:
      return accumulate<Format, kQuantTileRows>;
  }
}

template <class Format>
void product(const PanelTask& task, const QuantFormat& format) {
  const int64_t row_bytes = task.k_groups * (8 + format.group_size / 4 * kQuadBytes);
  constexpr int64_t kStepLines = kPanelCols * 4 / 64;
  constexpr int64_t kLineDots = kVectors * (Format::kStepK / 4) / kStepLines;
  const PanelSizes sizes = {quant_group_bytes(format, kPanelCols),
                            format.group_size / Format::kStepK, kStepLines, kLineDots, row_bytes};
  walk_panel(task, sizes, [&](const TileRun& run) {
    accumulate_for<Format>(run.rows)(task, run, format, task.accumulators + run.row * kPanelCols);
  });
}

void panel_product(const PanelTask& task, const QuantFormat& format) {
  if (format.bits == 8) {
    product<Int8>(task, format);
  } else {
    product<Int4>(task, format);
  }
}

}  // namespace

extern const QuantKernels kQuantKernels;
const QuantKernels kQuantKernels = {
    kLanes,          kPanelCols,    kQuantTileRows,       kQuantManyTileRows,  kQuadBytes,
    quant_pack_rows, panel_product, quant_quantize_group, quant_quantize_panel};

}  // namespace headrace::HEADRACE_ISA
