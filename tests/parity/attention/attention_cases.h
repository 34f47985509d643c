#pragma once

// A step with all kinds of slices, and how far an ISA's results may be from the reference's.

#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"
#include "parity/attention/attention_harness.h"

namespace headrace::test {

inline constexpr DType kDtypes[] = {DType::kF32, DType::kBF16,   DType::kF16,
                                    DType::kI8,  DType::kF8E4M3, DType::kU4};

inline std::string describe(const AttentionShape& s, const std::string& isa) {
  return str_cat(isa, " ", dtype_name(s.dtype), " heads ", s.num_heads, "/", s.num_kv_heads, " x ",
                 s.head_dim, " block ", s.block_size, " window ", s.window,
                 s.causal ? "" : " bidirectional", " cap ", s.soft_cap, s.sinks ? " sinks" : "");
}

/// A mixed step after histories of several lengths: a first token, a prefill from 0, a chunk in
/// the middle of a tile, decodes short of and past a split, a chunk across a split's edge.
inline std::vector<float> run_mixed_step(Backend& backend, const AttentionShape& shape,
                                         uint32_t seed) {
  AttentionHarness harness(backend, shape, 6, 1200, seed);
  const int32_t history[] = {0, 0, 120, 529, 1100, 500};
  const int32_t rows[] = {1, 37, 9, 1, 1, 20};
  std::vector<Slice> write, run;
  for (int32_t s = 0; s < 6; ++s) {
    if (history[s] > 0) write.push_back({s, history[s]});
    run.push_back({s, rows[s]});
  }
  harness.step(write, /*attend=*/false);
  return harness.step(run);
}

// Bound on |out - exact| for |q|, |k|, |v| <= a, with u = 2^-24 and both sides reading the same
// rounded keys and values:
//   score:  q * scale rounds once and each of the d steps of the dot product twice at most (the
//           baseline has no fma), so |ds| <= (2 d + 2) u scale sum|q_i k_i| <= (2 d + 2) u S,
//           S = scale d a^2. The subtraction of the maximum adds u (|s| + |max|) <= 2 u S.
//   p = exp(s - max): relative error <= 2 (|ds| + ...) (the score's and the maximum's) + 4 u (exp).
//   sum p v and sum p: at most n + 2 additions each after `t` rescalings, each of relative error
//           u, as are the final division and product.
// |dout| <= a (2 (4 d + 8) u S + 2 (n + 3 t + 16) u).
//
// A soft cap rounds the score over the cap twice, tanh by 4 ulp and the product with the cap once:
// 12 u S more for each of two scores; what comes in grows no larger. A sink is one addition and
// one rescaling more, and another exp: 8 u at most.
//
// bf16 dot products round q, by b = 2^-8 relatively (|ds| <= b S more), and p: a (2 b S + b) more.
//
// int8 and uint4 round q to multiples of max|q| / 32767: |ds| <= scale sum|k_i| max|q| w <= S w
// more, w = 1 / 65534. Of a tile they round p * step, step being a value's, to multiples of the
// largest / 32767; each of 64 such errors meets an integer of at most 127 (15), and 127 step <= a
// (15 step <= 2 a), so the tile's error is at most 2 * 64 w a times its largest p, and all tiles'
// at most that times the sum of p. The integers' sums are exact. a (2 w S + 128 w) more.
inline double tolerance(const AttentionShape& shape, int n, const std::string& isa) {
  const double u = 0x1p-24, a = static_cast<double>(shape.value_scale);
  const double score = std::sqrt(static_cast<double>(shape.head_dim)) * a * a;
  const double tiles = n / 64.0 + 1;
  const double capped = shape.soft_cap > 0 ? 24 : 0, sink = shape.sinks ? 8 : 0;
  const double float32 =
      u * (2 * (4 * shape.head_dim + 8 + capped) * score + 2 * (n + 3 * tiles + 16 + sink));
  const double b = 0x1p-8, w = 1.0 / 65534.0;
  double more = 0.0;
  if (shape.dtype == DType::kBF16 && isa == "avx512_bf16") more = 2 * b * score + b;
  if (shape.dtype == DType::kI8 || shape.dtype == DType::kU4) more = 2 * w * score + 128 * w;
  return a * (float32 + more);
}

inline void expect_close(const std::vector<float>& out, const std::vector<float>& expected,
                         double tolerance, const std::string& what) {
  ASSERT_EQ(out.size(), expected.size());
  double worst = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double error = std::abs(static_cast<double>(out[i]) - expected[i]);
    if (!(error <= worst)) worst = std::isnan(error) ? 1e30 : error;
  }
  EXPECT_LE(worst, tolerance) << what;
}

}  // namespace headrace::test
