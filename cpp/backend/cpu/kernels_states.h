#pragma once

// Kernels of layers with a state, of one ISA. Only types from C headers here, see kernels_linear.h.
//
// A head's state S [key_dim, value_dim] lies in blocks of kStateColumns columns:
// [value_dim / kStateColumns, rounded up][key_dim][kStateColumns]. A block of 128 keys has 8 KiB:
// it stays in the first-level cache while all rows of a slice go over it. The columns of the last
// block that the state has not may hold anything.

#include <stdint.h>

namespace headrace {

inline constexpr int32_t kStateColumns = 16;
inline constexpr int32_t kMostTaps = 8;

/// Rows that go over some columns of a head's state, one after the other.
struct StateTask {
  const float* from;   ///< whole blocks; null: zeros
  float* to;           ///< what they have become; may be `from`
  int64_t key_dim;     ///< a multiple of 8
  int64_t columns;     ///< those of the blocks that the state has
  int64_t rows;        ///< >= 1
  const float* keys;   ///< [rows][stride]
  const float* reads;  ///< [rows][stride]: what reads S: queries
  const float* values;
  int64_t stride;
  const float* decays;  ///< [rows][gate_stride]
  const float* rates;   ///< [rows][gate_stride]: betas, or times
  int64_t gate_stride;
  float skip;  ///< ssm_scan()'s
  float* out;  ///< [rows][out_stride]
  int64_t out_stride;
};

/// Rows of a causal convolution.
struct ConvTask {
  const float* x;       ///< [rows][x_stride]
  const float* window;  ///< [kernel - 1][window_stride]: the rows before them
  const float* taps;    ///< [kernel][tap_stride]
  const float* bias;    ///< null: none
  float* out;           ///< [rows][out_stride]
  int64_t x_stride, window_stride, tap_stride, out_stride;
  int64_t rows, channels;
  int32_t kernel;
  bool silu;
};

struct StateKernels {
  /// Backend::delta_rule().
  void (*delta_rule)(const StateTask& task);
  /// Backend::ssm_scan(), with decays and times.
  void (*ssm_scan)(const StateTask& task);
  void (*causal_conv)(const ConvTask& task);
  /// x *= scale / sqrt(sum of x^2 + 1e-6).
  void (*l2_norm)(float* x, float scale, int64_t n);
  /// times[i] = softplus(dt[i] + bias[i]) within [min, max]; decays[i] = exp(-exp(a_log[i]) *
  /// times[i]).
  void (*decays)(const float* dt, const float* bias, const float* a_log, float min, float max,
                 int64_t n, float* decays, float* times);
  /// out[i] = sigmoid(x[i]).
  void (*sigmoid)(const float* x, int64_t n, float* out);
};

}  // namespace headrace
