#pragma once

// What the tests of experts() share: a layer's experts, packed together and one by one.

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "parity/parity.h"

namespace headrace::parity {

/// How experts' weights are kept.
struct ExpertFormat {
  const char* name;
  DType storage;
  QuantFormat quant;
};

inline constexpr ExpertFormat kExpertFormats[] = {
    {"f32", DType::kF32, {}},
    {"bf16", DType::kBF16, {}},
    {"f16", DType::kF16, {}},
    {"int8_g32", DType::kBF16, {.bits = 8, .group_size = 32}},
    {"int8_g64", DType::kBF16, {.bits = 8, .group_size = 64}},
    {"int4_g32", DType::kBF16, {.bits = 4, .group_size = 32}},
    {"int4_g128", DType::kBF16, {.bits = 4, .group_size = 128}},
};

using ExpertParam = std::tuple<std::string, ExpertFormat>;

inline std::string expert_param_name(const testing::TestParamInfo<ExpertParam>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param).name;
}

struct ExpertSizes {
  int64_t experts, hidden, inner;
  int64_t halves = 2;  ///< gate and up, or up alone
};

/// Numbers of a layer's experts: gate and up [experts][halves * inner][hidden], down
/// [experts][hidden][inner].
struct ExpertNumbers {
  ExpertSizes sizes;
  std::vector<float> gate_up, down;

  static ExpertNumbers random(Random& random, const ExpertSizes& sizes) {
    const int64_t count = sizes.experts * sizes.hidden * sizes.inner;
    return {sizes, random.uniforms(sizes.halves * count), random.uniforms(count)};
  }

  /// Gate and up as two parts, as files have them.
  WeightSpec gate_up_spec(const ExpertFormat& format, int64_t first, int64_t count) const {
    const int64_t halves = sizes.halves;
    const WeightUse use = halves == 2 ? WeightUse::kGateUp : WeightUse::kLinear;
    WeightSpec spec{{}, format.storage, use, format.quant};
    spec.experts = static_cast<int32_t>(count);
    for (int64_t half = halves * first; half < halves * (first + count); ++half) {
      const float* data = &gate_up[size_t(half * sizes.inner * sizes.hidden)];
      spec.parts.push_back({data, DType::kF32, sizes.inner, sizes.hidden, false, sizes.hidden});
    }
    return spec;
  }
  WeightSpec down_spec(const ExpertFormat& format, int64_t first, int64_t count) const {
    WeightSpec spec{{}, format.storage, WeightUse::kLinear, format.quant};
    spec.experts = static_cast<int32_t>(count);
    for (int64_t expert = first; expert < first + count; ++expert) {
      const float* data = &down[size_t(expert * sizes.hidden * sizes.inner)];
      spec.parts.push_back({data, DType::kF32, sizes.hidden, sizes.inner, false, sizes.inner});
    }
    return spec;
  }
};

struct PackedExperts {
  std::unique_ptr<PackedWeight> gate_up, down;
};

inline PackedExperts pack_experts(Backend& backend, const ExpertNumbers& numbers,
                                  const ExpertFormat& format) {
  return {backend.pack_weight(numbers.gate_up_spec(format, 0, numbers.sizes.experts)),
          backend.pack_weight(numbers.down_spec(format, 0, numbers.sizes.experts))};
}

inline PackedExperts pack_expert(Backend& backend, const ExpertNumbers& numbers,
                                 const ExpertFormat& format, int64_t expert) {
  return {backend.pack_weight(numbers.gate_up_spec(format, expert, 1)),
          backend.pack_weight(numbers.down_spec(format, expert, 1))};
}

/// Where rows go: ids and weights [rows][top_k].
struct Routes {
  int64_t top_k = 0;
  std::vector<int32_t> ids;
  std::vector<float> weights;

  int64_t rows() const { return static_cast<int64_t>(ids.size()) / top_k; }
  Routes row(int64_t i) const {
    const auto first = i * top_k, last = first + top_k;
    return {top_k,
            {ids.begin() + first, ids.begin() + last},
            {weights.begin() + first, weights.begin() + last}};
  }

  /// Different experts for each row, in ascending order.
  static Routes random(Random& random, int64_t rows, int64_t top_k, int64_t experts) {
    Routes out{top_k, {}, random.uniforms(rows * top_k)};
    for (int64_t i = 0; i < rows; ++i) {
      int64_t left = top_k;
      for (int64_t expert = 0; expert < experts; ++expert) {
        if (random.integer(1, experts - expert) > left) continue;
        out.ids.push_back(static_cast<int32_t>(expert));
        --left;
      }
    }
    return out;
  }
};

/// A layer's gate, and its biases [experts][halves * inner] and [experts][hidden]; empty: none.
struct ExpertGates {
  GateSpec spec;
  std::vector<float> gate_up_bias, down_bias;
};

/// x [rows][hidden] through a layer's experts.
inline std::vector<float> run_experts(Backend& backend, const PackedExperts& layer,
                                      const Routes& routes, const std::vector<float>& x,
                                      const ExpertGates& gates = {}) {
  const int64_t rows = routes.rows(), hidden = layer.down->n();
  const Backend::Buffer ids = backend.allocate(routes.ids.size() * sizeof(int32_t));
  backend.upload(routes.ids.data(), ids.data, routes.ids.size() * sizeof(int32_t));
  const Matrix input(backend, rows, hidden, x),
      weights(backend, rows, routes.top_k, routes.weights);
  const Matrix out(backend, rows, hidden, std::vector<float>(size_t(rows * hidden), 7.0f));
  const Matrix gate_up_bias(backend, 1, int64_t(gates.gate_up_bias.size()), gates.gate_up_bias);
  const Matrix down_bias(backend, 1, int64_t(gates.down_bias.size()), gates.down_bias);
  Experts args{input.view(),   TensorView(ids.data, DType::kI32, {rows, routes.top_k}),
               weights.view(), *layer.gate_up,
               *layer.down,    out.view()};
  args.gate = gates.spec;
  if (!gates.gate_up_bias.empty()) args.gate_up_bias = gate_up_bias.vector();
  if (!gates.down_bias.empty()) args.down_bias = down_bias.vector();
  backend.experts(args);
  return out.values();
}

}  // namespace headrace::parity
