#pragma once

// The low-rank adapter kernels of one ISA. Only types from C headers here, see kernels_linear.h.
//
// A of one part lies in blocks of `lanes` ranks, [block][k][lanes]; B in panels of panel_cols
// output features, [panel][rank][panel_cols]. Both are padded with zeros. A row of either product
// is computed in one order whatever the other rows.

#include <stddef.h>
#include <stdint.h>

namespace headrace {

/// t[i][0 .. lanes) = A block . x[rows[i]]
struct LoraShrinkTask {
  const float* x;
  int64_t x_stride;
  const int32_t* rows;  ///< [count]
  int64_t count;
  int64_t k;
  const void* block;
  float* t;  ///< [count][t_stride]
  int64_t t_stride;
};

/// out[rows[i]][0 .. cols) += scale * (B panel . t[i])
struct LoraExpandTask {
  const float* t;
  int64_t t_stride;
  const int32_t* rows;
  int64_t count;
  int64_t rank;
  const void* panel;
  float scale;
  float* out;
  int64_t out_stride;
  int32_t cols;  ///< 1 .. panel_cols
};

/// Kernels for one way of storing A and B.
struct LoraFormat {
  void (*shrink)(const LoraShrinkTask& task);
  void (*expand)(const LoraExpandTask& task);
};

struct LoraKernels {
  int32_t lanes;       ///< floats in a vector; divides kLoraRankUnit
  int32_t panel_cols;  ///< 4 * lanes
  LoraFormat f32, bf16, f16;
};

}  // namespace headrace
