#pragma once

// Latent attention (DeepSeek-V2, https://arxiv.org/abs/2405.04434) in its absorbed form: a token
// keeps one row, which all heads read as their key and as their value.

#include <cstdint>

#include "base/checked_math.h"
#include "tensor/tensor_view.h"

namespace headrace {

class PackedWeight;

/// What latent_write() works with. A token's row is its latent vector [rank], normed; its key's
/// rotated part [rope_dim]; zeros up to row_dim(). A head's query has rows alike.
struct LatentSpec {
  int32_t num_heads = 0;
  int32_t rank = 0;
  int32_t nope_dim = 0;  ///< of a head's query in front of what turns
  int32_t rope_dim = 0;  ///< even
  TensorView norm;       ///< [rank] act, of the latent vector
  float norm_eps = 1e-6f;

  int32_t query_dim() const noexcept { return nope_dim + rope_dim; }
  int32_t row_dim() const noexcept { return round_up(rank + rope_dim, 16); }
};

/// out[t][g * out_step + i] = the sum over j of W_g[i][j] * x[t][g * x_step + j], for the G
/// matrices [n, k] of `weight`, packed with kLinear. x [T, >= (G - 1) * x_step + k] and out [T, >=
/// (G - 1) * out_step + n] act; what lies between groups of out stays as it is.
struct GroupedLinear {
  TensorView x;
  int64_t x_step = 0;
  const PackedWeight& weight;
  TensorView out;
  int64_t out_step = 0;
};

}  // namespace headrace
