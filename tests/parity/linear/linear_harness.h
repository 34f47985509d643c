#pragma once

// What the tests of linear and linear_gate_mul share, whatever the weight's storage.

#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"
#include "parity/parity.h"

namespace headrace::parity {

struct Shape {
  int64_t n, k;
};

inline constexpr int64_t kMostRows = 70;
inline constexpr int64_t kRows[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, 16, kMostRows};

/// weight [n, k], bias [n] or empty: none.
struct Problem {
  int64_t n, k;
  std::vector<float> weight, bias;
};

inline Problem random_problem(Random& random, Shape shape) {
  return {shape.n, shape.k, random.uniforms(shape.n * shape.k), random.uniforms(shape.n)};
}

/// x [rows, k] through p's weight, packed for `use`: linear, or linear_gate_mul of a kGateUp one.
inline std::vector<float> multiply(Backend& backend, const Problem& p, const PackedWeight& weight,
                                   WeightUse use, const std::vector<float>& x) {
  const auto rows = static_cast<int64_t>(x.size()) / p.k;
  const int64_t outputs = use == WeightUse::kGateUp ? p.n / 2 : p.n;
  const Matrix input(backend, rows, p.k, x);
  const Matrix bias(backend, 1, p.n, p.bias);
  const Matrix out(backend, rows, outputs);
  const TensorView bias_view = p.bias.empty() ? TensorView() : bias.vector();
  if (use == WeightUse::kGateUp) {
    backend.linear_gate_mul(input.view(), weight, bias_view, {}, out.view());
  } else {
    backend.linear(input.view(), weight, bias_view, out.view());
  }
  return out.values();
}

inline std::vector<float> first_rows(const std::vector<float>& x, int64_t rows, int64_t k) {
  return {x.begin(), x.begin() + rows * k};
}

/// Where a result [i, j] stands, for messages.
inline std::string place(const Problem& p, int64_t rows, int64_t i, int64_t j, uint64_t seed) {
  return str_cat("[", i, ", ", j, "] of ", rows, " x ", p.k, " -> ", p.n, ", seed ", seed);
}

/// A sum and the bound on its error.
struct BoundedSum {
  double value, error;
};

/// silu(g) * u: |silu'| <= 1.1, so errors of the two sums enter as 1.1 |u| dg + |silu(g)| du (and
/// their product); exp within 2 ulp, one sum, one quotient and one product add at most 8 roundoffs.
inline double gate_mul_bound(BoundedSum gate, BoundedSum up) {
  const double silu = std::abs(gate.value / (1.0 + std::exp(-gate.value)));
  return 1.1 * gate.error * (std::abs(up.value) + up.error) + silu * up.error +
         8.0 * kF32Roundoff * silu * std::abs(up.value);
}

}  // namespace headrace::parity
