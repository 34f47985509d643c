#pragma once

// What the tests of route() share.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "parity/parity.h"

namespace headrace::parity {

using Score = RouterSpec::Score;

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

/// x [rows][hidden] through a gate [experts][hidden]; empty bias and correction: none.
inline Routed run_route(Backend& backend, const RouterSpec& spec, const std::vector<float>& gate,
                        const std::vector<float>& x, const std::vector<float>& bias = {},
                        const std::vector<float>& correction = {}) {
  const int64_t experts = spec.num_experts, top_k = spec.top_k;
  const int64_t hidden = static_cast<int64_t>(gate.size()) / experts;
  const int64_t rows = static_cast<int64_t>(x.size()) / hidden;
  const auto weight = backend.pack_weight(
      {{{gate.data(), DType::kF32, experts, hidden, false, hidden}}, DType::kF32});
  const Matrix input(backend, rows, hidden, x), out(backend, rows, top_k);
  const Matrix biases(backend, 1, experts, bias), corrections(backend, 1, experts, correction);
  const Backend::Buffer ids = backend.allocate(size_t(rows * top_k) * sizeof(int32_t));
  backend.route(input.view(), *weight, bias.empty() ? TensorView() : biases.vector(),
                correction.empty() ? TensorView() : corrections.vector(), spec,
                TensorView(ids.data, DType::kI32, {rows, top_k}), out.view());
  Routed got{std::vector<int32_t>(size_t(rows * top_k)), out.values()};
  backend.read_back(ids.data, got.ids.data(), got.ids.size() * sizeof(int32_t));
  return got;
}

/// Routes rows of logits as they are, through a gate of ones on the diagonal.
inline Routed run_logits(Backend& backend, const RouterSpec& spec, const std::vector<float>& logits,
                         const std::vector<float>& correction = {}) {
  std::vector<float> gate(size_t(spec.num_experts) * size_t(spec.num_experts));
  for (size_t i = 0; i < size_t(spec.num_experts); ++i) gate[i * size_t(spec.num_experts) + i] = 1;
  return run_route(backend, spec, gate, logits, {}, correction);
}

inline void expect_route(const Routed& got, const std::vector<int32_t>& ids,
                         const std::vector<float>& weights) {
  EXPECT_EQ(got.ids, ids);
  for (size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(got.weights[i], weights[i], 5e-5f) << i;
}

/// The margin between what is chosen and what isn't.
inline double margin(const std::vector<double>& c, const std::vector<int32_t>& ids) {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (size_t i = 0; i < c.size(); ++i) {
    const bool chosen = std::find(ids.begin(), ids.end(), static_cast<int32_t>(i)) != ids.end();
    (chosen ? least : most) = chosen ? std::min(least, c[i]) : std::max(most, c[i]);
  }
  return least - most;
}

}  // namespace headrace::parity
