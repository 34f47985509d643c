#pragma once

// What becomes of a panel's finished sums; for the linear kernels.

#include "backend/cpu/kernels_linear.h"
#include "backend/cpu/simd/gates.h"
#include "backend/cpu/simd/simd.h"

namespace headrace::HEADRACE_ISA {
namespace {

constexpr int kVectors = 4;  // of a panel's row
constexpr int kPanelCols = kVectors * kLanes;

HEADRACE_SIMD_INLINE F32 load_up_to(const float* p, int count) {
  if (count <= 0) return zero();
  return count >= kLanes ? load(p) : load_part(p, count);
}

HEADRACE_SIMD_INLINE void store_up_to(float* out, F32 v, int count) {
  if (count >= kLanes) {
    store(out, v);
  } else if (count > 0) {
    store_part(out, v, count);
  }
}

HEADRACE_SIMD_INLINE F32 load_bias(const float* bias, int first, int count) {
  return bias == nullptr ? zero() : load_up_to(bias + first, count);
}

/// Where a row's results go.
HEADRACE_SIMD_INLINE float* output_row(const PanelTask& task, int64_t row) {
  const bool scatters = task.epilogue == PanelEpilogue::kAddWeighted;
  return task.out + (scatters ? task.out_rows[row] : row) * task.out_stride;
}

inline void add_weighted_row(const PanelTask& task, const float* acc, float weight, float* out) {
  for (int v = 0; v < kVectors; ++v) {
    const int first = v * kLanes;
    const int count = task.cols - first;
    F32 y = load(acc + first);
    if (task.bias != nullptr) y = add(y, load_up_to(task.bias + first, count));
    const F32 sum = fma(set1(weight), y, load_up_to(out + first, count));
    store_up_to(out + first, sum, count);
  }
}

/// A row of gates and ups: use(first column, gate, up) for each vector of them.
template <class Use>
HEADRACE_SIMD_INLINE void for_gates(const PanelTask& task, const float* acc, const Use& use) {
  for (int v = 0; v < kVectors / 2; ++v) {
    const int first = v * kLanes;
    const int count = task.cols - first;
    use(first, add(load(acc + 2 * first), load_bias(task.bias, first, count)),
        add(load(acc + 2 * first + kLanes), load_bias(task.up_bias, first, count)));
  }
}

inline void finish_row(const PanelTask& task, const float* acc, float* out) {
  const bool adds = task.epilogue == PanelEpilogue::kAdd;
  if (task.epilogue == PanelEpilogue::kRelu2) {
    for (int v = 0; v < kVectors; ++v) {
      const int first = v * kLanes;
      const int count = task.cols - first;
      store_up_to(out + first, relu2(add(load(acc + first), load_bias(task.bias, first, count))),
                  count);
    }
    return;
  }
  if (adds || task.epilogue == PanelEpilogue::kStore) {
    for (int v = 0; v < kVectors; ++v) {
      const int first = v * kLanes;
      const int count = task.cols - first;
      const F32 y = add(load(acc + first), load_bias(task.bias, first, count));
      store_up_to(out + first, adds ? add(load_up_to(out + first, count), y) : y, count);
    }
    return;
  }
  if (task.epilogue == PanelEpilogue::kGateUp) {
    for_gates(task, acc, [&](int first, F32 gate, F32 up) {
      store_up_to(out + first, gate, task.cols - first);
      store_up_to(out + task.up_column + first, up, task.cols - first);
    });
    return;
  }
  with_gate(task.gate, [&](const auto& gate_mul) {
    for_gates(task, acc, [&](int first, F32 gate, F32 up) {
      store_up_to(out + first, gate_mul(gate, up), task.cols - first);
    });
  });
}

/// Brings closer what finish_rows() will write: a store that waits for its line holds up those of
/// the sums behind it.
HEADRACE_SIMD_INLINE void fetch_outputs(const PanelTask& task, int64_t first, int64_t count) {
  constexpr int32_t kLineFloats = 16;
  for (int64_t row = first; row < first + count; ++row) {
    const float* out = output_row(task, row);
    for (int32_t i = 0; i < task.cols; i += kLineFloats) prefetch(out + i);
  }
}

/// Rows [first, first + count), whose sums are complete.
HEADRACE_SIMD_INLINE void finish_rows(const PanelTask& task, int64_t first, int64_t count) {
  for (int64_t row = first; row < first + count; ++row) {
    const float* const acc = task.accumulators + row * kPanelCols;
    if (task.epilogue == PanelEpilogue::kAddWeighted) {
      add_weighted_row(task, acc, task.row_weights[row], output_row(task, row));
    } else {
      finish_row(task, acc, output_row(task, row));
    }
  }
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA
