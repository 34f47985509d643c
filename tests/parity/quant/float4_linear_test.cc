// MXFP4 weights: every kernel set against the reference, and against itself in other company.

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "headrace/status.h"
#include "parity/experts/experts_harness.h"
#include "parity/quant/random_codes.h"

namespace headrace::parity {
namespace {

// Three groups of inputs; a panel and a part of another.
constexpr int64_t kInputs = 96, kFirst = 86, kSecond = 64, kOutputs = kFirst + kSecond;

using Param = std::tuple<std::string, DType>;

class Float4Linear : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    if (isa() != "reference") HEADRACE_REQUIRE_ISA(isa());
    make_codes();
    backend_ = make_cpu_backend({.num_threads = 2, .isa = isa()});
  }
  std::string isa() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }

  void make_codes() {
    first_ =
        std::make_unique<RandomCodes>(random_, kFloat4Format, Shape{kFirst, kInputs}, no_order_);
    second_ =
        std::make_unique<RandomCodes>(random_, kFloat4Format, Shape{kSecond, kInputs}, no_order_);
  }
  float weight(int64_t n, int64_t k) const {
    return n < kFirst ? first_->weight(n, k) : second_->weight(n - kFirst, k);
  }
  std::unique_ptr<PackedWeight> pack(Backend& backend, WeightUse use) const {
    return backend.pack_weight({{first_->part(), second_->part()}, dtype(), use, kFloat4Format});
  }
  static std::vector<float> multiply_all(Backend& backend, const PackedWeight& weight,
                                         const std::vector<float>& x) {
    const auto rows = static_cast<int64_t>(x.size()) / kInputs;
    const Matrix input(backend, rows, kInputs, x), out(backend, rows, kOutputs);
    backend.linear(input.view(), weight, {}, out.view());
    return out.values();
  }
  /// A row for each input: `value` there, and zeros.
  static std::vector<float> units(float value) {
    std::vector<float> out(size_t(kInputs * kInputs));
    for (int64_t i = 0; i < kInputs; ++i) out[size_t(i * kInputs + i)] = value;
    return out;
  }

  Random random_{57};
  const std::vector<int32_t> no_order_;
  std::unique_ptr<RandomCodes> first_, second_;
  std::unique_ptr<Backend> backend_;
};

TEST_P(Float4Linear, EveryWeightIsWhereItBelongs) {
  for (const WeightUse use : {WeightUse::kLinear, WeightUse::kGateUp}) {
    const auto out = multiply_all(*backend_, *pack(*backend_, use), units(1.0f));
    for (int64_t k = 0; k < kInputs; ++k) {
      for (int64_t n = 0; n < kOutputs; ++n) {
        ASSERT_EQ(out[size_t(k * kOutputs + n)], weight(n, k)) << n << ", " << k;
      }
    }
  }
}

// 2^-127 is below float32's normal numbers, 2^127 the largest power of two.
TEST_P(Float4Linear, TheExtremeScalesAreExact) {
  first_->set_scale(0, 0);
  first_->set_scale(1, 254);
  first_->set_codes(1, 11);  // -1.5: 2 would be too much
  const auto weight_of = pack(*backend_, WeightUse::kLinear);
  const auto tiny = multiply_all(*backend_, *weight_of, units(0x1p100f));
  const auto large = multiply_all(*backend_, *weight_of, units(0x1p-100f));
  for (int64_t k = 0; k < 32; ++k) {
    EXPECT_EQ(tiny[size_t(k * kOutputs)], 0x1p100f * weight(0, k)) << k;
    EXPECT_EQ(large[size_t((32 + k) * kOutputs)], -1.5f * 0x1p27f) << k;
  }
  const auto smallest = multiply_all(*backend_, *weight_of, units(1.0f));
  for (int64_t k = 0; k < 32; ++k) EXPECT_EQ(smallest[size_t(k * kOutputs)], weight(0, k)) << k;
}

TEST_P(Float4Linear, WhatIsBeyondFloat32IsRefused) {
  for (const uint16_t scale : {254, 255}) {
    make_codes();
    second_->set_codes(5, scale == 255 ? 1 : 12);  // 12 is -2
    second_->set_scale(5, scale);
    for (const WeightUse use : {WeightUse::kLinear, WeightUse::kGateUp}) {
      EXPECT_THROW(pack(*backend_, use), TensorError) << scale;
    }
  }
}

TEST_P(Float4Linear, RowsAloneAndTogetherAndOtherThreads) {
  const auto weight = pack(*backend_, WeightUse::kLinear);
  const std::vector<float> x = random_.uniforms(kMostRows * kInputs);
  const auto alone = [&](int64_t row) {
    return multiply_all(*backend_, *weight,
                        {x.begin() + row * kInputs, x.begin() + (row + 1) * kInputs});
  };
  std::vector<float> want;
  for (int64_t row = 0; row < kMostRows; ++row) {
    const std::vector<float> own = alone(row);
    want.insert(want.end(), own.begin(), own.end());
  }
  for (const int64_t rows : kRows) {
    EXPECT_EQ(multiply_all(*backend_, *weight, first_rows(x, rows, kInputs)),
              first_rows(want, rows, kOutputs))
        << rows;
  }
  const auto other = make_cpu_backend({.num_threads = 1, .isa = isa()});
  EXPECT_EQ(multiply_all(*other, *pack(*other, WeightUse::kLinear), x), want);
}

/// A group's 32 products are a chain (each rounded twice without fused multiply-add; pairs of bf16
/// twice, too), whose sum is multiplied by a power of two and added to those before it. So by
/// Higham's bound (Accuracy and Stability, 3.1) a result is off by gamma_{64+2G} A at most, and by
/// one more rounding for the reference's. Activations that become bf16 add A times their own.
TEST_P(Float4Linear, MatchesReference) {
  const std::vector<float> x = random_.uniforms(kMostRows * kInputs);
  const auto reference = make_cpu_backend({.isa = "reference"});
  const auto want = multiply_all(*reference, *pack(*reference, WeightUse::kLinear), x);
  const auto got = multiply_all(*backend_, *pack(*backend_, WeightUse::kLinear), x);
  const double m = (64.0 + 2.0 * kInputs / 32.0 + 1.0) * kF32Roundoff;
  const bool rounds = isa() == "avx512_bf16" && dtype() == DType::kBF16;
  const double part = m / (1.0 - m) + (rounds ? kBF16Roundoff : 0.0);
  bool differs = false;
  for (int64_t i = 0; i < kMostRows; ++i) {
    for (int64_t n = 0; n < kOutputs; ++n) {
      double sum = 0.0;
      for (int64_t k = 0; k < kInputs; ++k) {
        sum += std::abs(double{x[size_t(i * kInputs + k)]} * double{weight(n, k)});
      }
      const auto at = size_t(i * kOutputs + n);
      ASSERT_NEAR(got[at], want[at], part * sum) << i << ", " << n << ", " << random_.trace();
      differs = differs || got[at] != want[at];
    }
  }
  EXPECT_EQ(differs, isa() != "reference");
}

TEST_P(Float4Linear, Restored) {
  const auto weight = pack(*backend_, WeightUse::kGateUp);
  const WeightShape shape{kOutputs, kInputs, dtype(), WeightUse::kGateUp, kFloat4Format};
  ASSERT_EQ(weight->bytes(), backend_->packed_bytes(shape));
  if (isa() != "reference") {
    EXPECT_LE(weight->bytes(), size_t(192 * kInputs * 17 / 32));  // whole panels
  }
  Backend::Buffer buffer = backend_->allocate(weight->bytes());
  std::memcpy(buffer.data, weight->data(), weight->bytes());
  const std::vector<float> x = random_.uniforms(2 * kInputs);
  EXPECT_EQ(multiply_all(*backend_, *backend_->restore_weight(shape, std::move(buffer)), x),
            multiply_all(*backend_, *weight, x));
}

// A row's only input is 1: what experts keep between their linears are squares of codes, which bf16
// holds, and sums of those with small whole biases are exact in float32.
TEST_P(Float4Linear, ExpertsAreExactlyTheReferences) {
  constexpr int32_t kExperts = 3;
  constexpr int64_t kRowsHere = 13, kInner = 64;
  const auto reference = make_cpu_backend({.isa = "reference"});
  std::vector<std::unique_ptr<RandomCodes>> codes;
  WeightSpec up{{}, dtype(), WeightUse::kLinear, kFloat4Format}, down = up;
  up.experts = down.experts = kExperts;
  for (int32_t expert = 0; expert < kExperts; ++expert) {
    for (WeightSpec* spec : {&up, &down}) {
      const Shape shape = spec == &up ? Shape{kInner, kInputs} : Shape{kInputs, kInner};
      codes.push_back(std::make_unique<RandomCodes>(random_, kFloat4Format, shape, no_order_));
      for (int64_t i = 0; i < shape.n * shape.k / 32; ++i) codes.back()->set_scale(size_t(i), 127);
      spec->parts.push_back(codes.back()->part());
    }
  }
  Routes routes = Routes::random(random_, kRowsHere, 2, kExperts);
  for (float& weight : routes.weights) weight = 0.5f;
  std::vector<float> x(size_t(kRowsHere * kInputs));
  for (int64_t row = 0; row < kRowsHere; ++row) {
    x[size_t(row * kInputs + random_.integer(0, kInputs - 1))] = 1.0f;
  }
  ExpertGates gates{.spec = {.activation = Activation::kRelu2}};
  for (int64_t i = 0; i < kExperts * kInputs; ++i) {
    gates.down_bias.push_back(static_cast<float>(i % 7));
  }
  const auto run = [&](Backend& backend) {
    const PackedExperts layer{backend.pack_weight(up), backend.pack_weight(down)};
    return run_experts(backend, layer, routes, x, gates);
  };
  EXPECT_EQ(run(*backend_), run(*reference));
}

std::string param_name(const testing::TestParamInfo<Param>& info) {
  return str_cat(std::get<0>(info.param), "_", dtype_name(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(Isas, Float4Linear,
                         testing::Combine(testing::Values("reference", "baseline", "avx2", "avx512",
                                                          "avx512_bf16"),
                                          testing::Values(DType::kBF16, DType::kF32)),
                         param_name);

}  // namespace
}  // namespace headrace::parity
