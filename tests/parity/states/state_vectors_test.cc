// Ops of layers with a state on numbers that were worked out by hand, on every backend.

#include <cmath>

#include "parity/states/states_harness.h"

namespace headrace::parity {
namespace {

class StateVectors : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { HEADRACE_REQUIRE_ISA(GetParam()); }
};

TEST_P(StateVectors, DeltaRule) {
  const DeltaSpec spec{1, 1, 8, 8};
  const DeltaOp op(spec);
  StateBench bench(GetParam(), op.states(), 1);
  const auto row = [](float k0, float k1, float v0, float v1, float q0, float q1, float decay,
                      float beta) {
    std::vector<float> out(26);
    out[0] = q0, out[1] = q1, out[8] = k0, out[9] = k1, out[16] = v0, out[17] = v1;
    out[24] = decay, out[25] = beta;
    return out;
  };
  const std::vector<Slice> first = {{1, kZeroState, 0}}, second = {{1, 0, 0}};
  auto got = op.step(bench, first, row(1, 0, 2, 3, 1, 1, 1.0f, 0.5f));
  EXPECT_EQ(got, (std::vector<float>{1.0f, 1.5f, 0, 0, 0, 0, 0, 0}));
  got = op.step(bench, second, row(0.6f, 0.8f, 1, 1, 1, 0, 0.5f, 1.0f));
  EXPECT_NEAR(got[0], 0.92, 1e-6);
  EXPECT_NEAR(got[1], 1.08, 1e-6);
  // The same key and no decay: what q = (0, 1) reads is the state's second row.
  got = op.step(bench, second, row(0, 0, 0, 0, 0, 1, 1.0f, 0.0f));
  EXPECT_NEAR(got[0], 0.56, 1e-6);
  EXPECT_NEAR(got[1], 0.44, 1e-6);
}

TEST_P(StateVectors, CausalConv) {
  const ConvSpec spec{1, 4, false};
  StateBench bench(GetParam(), {.channels = 1, .window = 3}, 1);
  const Matrix weight(*bench.backend, 1, 4, {1, 2, 3, 4});
  const Matrix x(*bench.backend, 5, 1, {1, 0, 0, 0, 1}), out(*bench.backend, 5, 1);
  const std::vector<Slice> slices = {{5, kZeroState, 0}};
  bench.begin(slices);
  bench.backend->causal_conv(x.view(), weight.vector(), {}, spec, *bench.cache, 0, out.view());
  EXPECT_EQ(out.values(), (std::vector<float>{4, 3, 2, 1, 4}));
  const std::vector<Slice> next = {{2, 0, 0}};
  bench.begin(next);
  bench.backend->causal_conv(x.view().first_rows(2), weight.vector(), {}, spec, *bench.cache, 0,
                             out.view().first_rows(2));
  EXPECT_EQ(out.values()[0], 4 + 3);  // the last 1, and this one
  EXPECT_EQ(out.values()[1], 3 + 2);
}

TEST_P(StateVectors, Scan) {
  // t = clamp(softplus(0)) = 0.5, decay = exp(-0.5).
  const ScanSpec spec{1, 1, 8, 8, 0.0f, 0.5f};
  StateBench bench(GetParam(), {.heads = 1, .key_dim = 8, .value_dim = 8}, 1);
  std::vector<float> values(24);
  values[0] = 2.0f, values[8] = 3.0f, values[16] = 5.0f;  // x, B, C
  const Matrix xbc(*bench.backend, 1, 24, values), out(*bench.backend, 1, 8);
  const Matrix zero(*bench.backend, 1, 1, {0.0f}), skip(*bench.backend, 1, 1, {7.0f});
  const ScanArgs args{xbc.view(), zero.view(), zero.vector(), zero.vector(), skip.vector(), spec};
  double state = 0.0;
  for (const int32_t from : {kZeroState, 0}) {
    const std::vector<Slice> slices = {{1, from, 0}};
    bench.begin(slices);
    bench.backend->ssm_scan(args, *bench.cache, 0, out.view());
    state = std::exp(-0.5) * state + 3.0 * (0.5 * 2.0);
    EXPECT_NEAR(out.values()[0], state * 5.0 + 7.0 * 2.0, 1e-5);
    EXPECT_EQ(out.values()[1], 0.0f);
  }
}

TEST_P(StateVectors, Prepare) {
  const auto backend = make_cpu_backend({.isa = GetParam()});
  const DeltaSpec spec{1, 1, 8, 8};
  std::vector<float> values(24, 1.0f);
  values[8] = 3.0f, values[9] = 4.0f;
  std::fill(values.begin() + 10, values.begin() + 16, 0.0f);
  const Matrix qkv(*backend, 1, 24, values), gates(*backend, 1, 2);
  const Matrix b(*backend, 1, 1, {0.0f}), a(*backend, 1, 1, {std::log(std::exp(2.0f) - 1.0f)});
  const Matrix a_log(*backend, 1, 1, {std::log(0.25f)}), dt_bias(*backend, 1, 1, {0.0f});
  backend->delta_prepare(qkv.view(), b.view(), a.view(), a_log.vector(), dt_bias.vector(), spec,
                         gates.view());
  const auto got = qkv.values();
  EXPECT_NEAR(got[0], 1.0 / 8.0, 1e-6);  // 1 / sqrt(8), twice
  EXPECT_NEAR(got[8], 0.6, 1e-6);
  EXPECT_NEAR(got[9], 0.8, 1e-6);
  EXPECT_EQ(got[16], 1.0f);
  EXPECT_NEAR(gates.values()[0], std::exp(-0.25 * 2.0), 1e-6);
  EXPECT_NEAR(gates.values()[1], 0.5, 1e-6);
}

TEST_P(StateVectors, GatedNorm) {
  const auto backend = make_cpu_backend({.isa = GetParam()});
  using Gate = GatedNormSpec::Gate;
  const double silu = 1.0 / (1.0 + std::exp(-1.0)), half = 0.5;
  const Matrix x(*backend, 1, 4, {3, 4, 6, 8}), weight(*backend, 1, 2, {2, 3});
  const Matrix one(*backend, 1, 4, {1, 1, 1, 1}), zero(*backend, 1, 4, {0, 0, 0, 0});
  const Matrix out(*backend, 1, 4);
  const auto run = [&](const Matrix& gate, const GatedNormSpec& spec) {
    backend->gated_norm(x.view(), gate.view(), weight.vector(), spec, out.view());
    return out.values();
  };
  const double rms = std::sqrt(12.5);
  auto got = run(one, {2, 0.0f, Gate::kSilu, false});
  EXPECT_NEAR(got[0], 3.0 / rms * 2.0 * silu, 1e-6);
  EXPECT_NEAR(got[3], 4.0 / rms * 3.0 * silu, 1e-6);
  got = run(zero, {2, 0.0f, Gate::kSigmoid, false});
  EXPECT_NEAR(got[2], 3.0 / rms * 2.0 * half, 1e-6);
  // A gate in front of the norm: what is constant in a group is lost.
  got = run(zero, {2, 0.0f, Gate::kSigmoid, true});
  EXPECT_NEAR(got[0], 3.0 / rms * 2.0, 1e-6);
  EXPECT_NEAR(got[3], 4.0 / rms * 3.0, 1e-6);
  got = run(one, {2, 12.5f, Gate::kSigmoid, true});
  EXPECT_NEAR(got[0], 3.0 * silu / std::sqrt(silu * silu * 12.5 + 12.5) * 2.0, 1e-6);
}

TEST_P(StateVectors, Multiply) {
  const auto backend = make_cpu_backend({.isa = GetParam()});
  const Matrix a(*backend, 2, 3, {1, 2, 3, 4, 5, 6}), b(*backend, 2, 3, {2, 3, 4, 5, 6, 7});
  const TensorView left = a.view().columns(0, 2), right = b.view().columns(1, 2);
  backend->multiply(left, right, left);
  EXPECT_EQ(a.values(), (std::vector<float>{3, 8, 3, 24, 35, 6}));
}

INSTANTIATE_TEST_SUITE_P(Isas, StateVectors,
                         testing::Values("reference", "baseline", "avx2", "avx512", "avx512_bf16"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace headrace::parity
