#pragma once

// Ops of layers that keep a state of a sequence (StateRows in cache_layout.h): a causal convolution
// over time, the gated delta rule (Gated DeltaNet, arXiv 2412.06464) and the selective scan of
// Mamba-2 (arXiv 2405.21060).
//
// The recurrence in the order of tokens is the definition: the state behind row t is computed from
// the state behind row t - 1 and row t alone, with one order of operations. So a state's bits
// depend on the sequence's tokens alone, and a saved state is the state, whatever steps, slices and
// drafts led there.
//
// Notation: T rows of the step; of a slice, rows in order, beginning with its state_in.

#include <cstdint>

#include "tensor/tensor_view.h"

namespace headrace {

struct ConvSpec {
  int32_t channels = 0;
  int32_t kernel = 0;  ///< 2..kLargestConv rows: the row itself and those before it
  bool silu = false;   ///< the result goes through x * sigmoid(x)
};

inline constexpr int32_t kLargestConv = 8;

/// Heads of a layer with the gated delta rule. A row of q‖k‖v has key_heads * key_dim numbers of q,
/// as many of k, and value_heads * value_dim of v. Value head h goes with key head
/// h / (value_heads / key_heads).
struct DeltaSpec {
  int32_t key_heads = 0;
  int32_t value_heads = 0;  ///< a multiple of key_heads
  int32_t key_dim = 0;      ///< a multiple of 8, at most kLargestStateDim, and so is value_dim
  int32_t value_dim = 0;

  int64_t key_columns() const noexcept { return int64_t{key_heads} * key_dim; }
  int64_t value_columns() const noexcept { return int64_t{value_heads} * value_dim; }
  int64_t qkv_columns() const noexcept { return 2 * key_columns() + value_columns(); }
};

inline constexpr int32_t kLargestStateDim = 256;

/// Heads of a layer with Mamba-2's scan. A row of x‖B‖C has heads * head_dim numbers of x, and
/// groups * state_dim of B and of C. Head h goes with group h / (heads / groups).
struct ScanSpec {
  int32_t heads = 0;  ///< a multiple of groups
  int32_t groups = 0;
  int32_t head_dim = 0;   ///< P: a multiple of 8, at most kLargestStateDim, and so is state_dim
  int32_t state_dim = 0;  ///< N
  float dt_min = 0.0f;    ///< bounds of softplus(dt + dt_bias)
  float dt_max = 0.0f;    ///< may be infinity; >= dt_min

  int64_t x_columns() const noexcept { return int64_t{heads} * head_dim; }
  int64_t xbc_columns() const noexcept { return x_columns() + 2 * int64_t{groups} * state_dim; }
};

/// An RMS norm over groups of a row's numbers, and a gate.
struct GatedNormSpec {
  int32_t group = 0;  ///< numbers that are normalised together; divides the row
  float eps = 1e-6f;
  enum class Gate : uint8_t { kSilu, kSigmoid };
  Gate gate = Gate::kSilu;
  bool gate_first = false;  ///< norm(x * f(gate)) * w, else norm(x) * w * f(gate)
};

/// What ssm_scan() reads.
struct ScanArgs {
  TensorView xbc;      ///< [T, xbc_columns()] act
  TensorView dt;       ///< [T, heads] act
  TensorView a_log;    ///< [heads] f32: A = -exp(a_log)
  TensorView dt_bias;  ///< [heads] f32
  TensorView skip;     ///< [heads] f32: D
  const ScanSpec& spec;
};

}  // namespace headrace
