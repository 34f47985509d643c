#include "backend/cpu/kernels_lora.h"

#include "backend/cpu/simd/simd.h"

// Compiled once per ISA.

namespace headrace::HEADRACE_ISA {
namespace {

constexpr int kVectors = 4;  // of a panel's row
constexpr int kPanelCols = kVectors * kLanes;
// Sums that a row's numbers are dealt to in turn: enough to hide the latency of an addition.
constexpr int kSums = 4;
// Rows that share a pass over A or B: kRows * 4 accumulators, of 32 registers or of 16.
constexpr int kRows = kLanes == 16 ? 4 : 2;

struct FormatF32 {
  using Weight = float;
  static HEADRACE_SIMD_INLINE F32 load_weights(const Weight* p) { return load(p); }
};

struct FormatBf16 {
  using Weight = uint16_t;
  static HEADRACE_SIMD_INLINE F32 load_weights(const Weight* p) { return load_bf16(p); }
};

struct FormatF16 {
  using Weight = uint16_t;
  static HEADRACE_SIMD_INLINE F32 load_weights(const Weight* p) { return load_f16(p); }
};

/// Rows [first, first + R): sum i % kSums takes element i; the sums are added as a tree.
template <class Format, int R>
void shrink_rows(const LoraShrinkTask& task, int64_t first) {
  const auto* a = static_cast<const typename Format::Weight*>(task.block);
  const float* x[R];
  F32 sums[R][kSums];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    x[r] = task.x + task.rows[first + r] * task.x_stride;
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s) sums[r][s] = zero();
  }
  int64_t i = 0;
  for (; i + kSums <= task.k; i += kSums) {
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s) {
      const F32 w = Format::load_weights(a + (i + s) * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sums[r][s] = fma(set1(x[r][i + s]), w, sums[r][s]);
    }
  }
#pragma GCC unroll 4
  for (int s = 0; s < kSums - 1; ++s) {
    if (i + s >= task.k) break;
    const F32 w = Format::load_weights(a + (i + s) * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sums[r][s] = fma(set1(x[r][i + s]), w, sums[r][s]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const F32 sum = add(add(sums[r][0], sums[r][1]), add(sums[r][2], sums[r][3]));
    store(task.t + (first + r) * task.t_stride, sum);
  }
}

template <class Format>
void shrink(const LoraShrinkTask& task) {
  int64_t row = 0;
  for (; row + kRows <= task.count; row += kRows) shrink_rows<Format, kRows>(task, row);
  for (; row < task.count; ++row) shrink_rows<Format, 1>(task, row);
}

HEADRACE_SIMD_INLINE void add_scaled(float* out, F32 scale, F32 delta, int count) {
  if (count >= kLanes) {
    store(out, fma(scale, delta, load(out)));
  } else if (count > 0) {
    store_part(out, fma(scale, delta, load_part(out, count)), count);
  }
}

/// Rows [first, first + R): each output is one lane of one sum over the ranks in their order.
template <class Format, int R>
void expand_rows(const LoraExpandTask& task, int64_t first) {
  const auto* b = static_cast<const typename Format::Weight*>(task.panel);
  const float* t[R];
  F32 sums[R][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    t[r] = task.t + (first + r) * task.t_stride;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[r][v] = zero();
  }
  for (int64_t i = 0; i < task.rank; ++i, b += kPanelCols) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const F32 w = Format::load_weights(b + v * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sums[r][v] = fma(set1(t[r][i]), w, sums[r][v]);
    }
  }
  const F32 scale = set1(task.scale);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    float* out = task.out + task.rows[first + r] * task.out_stride;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      add_scaled(out + v * kLanes, scale, sums[r][v], task.cols - v * kLanes);
    }
  }
}

template <class Format>
void expand(const LoraExpandTask& task) {
  int64_t row = 0;
  for (; row + kRows <= task.count; row += kRows) expand_rows<Format, kRows>(task, row);
  for (; row < task.count; ++row) expand_rows<Format, 1>(task, row);
}

}  // namespace

extern const LoraKernels kLoraKernels;
const LoraKernels kLoraKernels = {
    kLanes,
    kPanelCols,
    {shrink<FormatF32>, expand<FormatF32>},
    {shrink<FormatBf16>, expand<FormatBf16>},
    {shrink<FormatF16>, expand<FormatF16>},
};

}  // namespace headrace::HEADRACE_ISA
