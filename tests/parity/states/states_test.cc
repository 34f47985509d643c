// Ops of layers with a state: against sums in double, and against themselves in other steps.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/host/array_kv_cache.h"
#include "parity/states/states_harness.h"

namespace headrace::parity {
namespace {

constexpr double kTiny = 0x1p-126;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class StatesParity : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { HEADRACE_REQUIRE_ISA(GetParam()); }
};

const DeltaSpec kDeltas[] = {{2, 6, 8, 8}, {1, 2, 24, 40}, {2, 2, 32, 24}, {1, 1, 128, 128}};
const ScanSpec kScans[] = {{6, 2, 24, 8, 0.0f, kInfinity}, {2, 1, 64, 128, 0.1f, 0.9f}};

/// What a column of a state is by the definition, in double: S = decay * S + k u.
struct Column {
  explicit Column(int32_t keys) : numbers(size_t(keys)) {}
  double read(const float* x) const {
    double sum = 0.0;
    for (size_t i = 0; i < numbers.size(); ++i) sum += numbers[i] * double{x[i]};
    return sum;
  }
  void write(double decay, const float* k, double u) {
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = decay * numbers[i] + double{k[i]} * u;
  }
  double norm() const {
    double squares = 0.0;
    for (const double x : numbers) squares += x * x;
    return std::sqrt(squares);
  }
  std::vector<double> numbers;
};

// Keys have length 1 and betas are at most 1, so a row makes no difference of two states larger.
// What it adds to the difference of a column S, in roundoffs: the n products of r are summed in 4
// chains, (n/4 + 3) |S|; 2 products and a sum for u, 3 (|v| + |S|); at most 3 for each number,
// 3 |S|. A query has length 1 / sqrt(n).
TEST_P(StatesParity, DeltaRuleFollowsTheRecurrence) {
  Random random(31);
  SCOPED_TRACE(random.trace());
  for (const DeltaSpec& spec : kDeltas) {
    const DeltaOp op(spec);
    const int64_t rows = 40, keys = spec.key_columns(), width = op.in_columns();
    const auto x = op.draw(random, rows);
    StateBench bench(GetParam(), op.states(), 1);
    const std::vector<Slice> all = {{int32_t(rows), kZeroState, 0}};
    const auto got = op.step(bench, all, x);
    const double n = spec.key_dim;
    for (int32_t c = 0; c < spec.value_columns(); ++c) {
      const int32_t h = c / spec.value_dim, key_head = h / (spec.value_heads / spec.key_heads);
      Column column(spec.key_dim);
      double largest = 0.0;
      for (int64_t t = 0; t < rows; ++t) {
        const float* const q = x.data() + t * width + int64_t{key_head} * spec.key_dim;
        const float* const gates = x.data() + t * width + spec.qkv_columns();
        const double v = x[size_t(t * width + 2 * keys + c)], decay = gates[h];
        const double r = decay * column.read(q + keys);
        column.write(decay, q + keys, double{gates[spec.value_heads + h]} * (v - r));
        largest = std::max(largest, column.norm());
        const double state = double(t + 1) * ((n / 4.0 + 9.0) * largest + 6.0);
        const double bound = (state + (n / 4.0 + 4.0) * largest) / std::sqrt(n);
        ASSERT_NEAR(got[size_t(t * op.out_columns() + c)], column.read(q), bound * kF32Roundoff)
            << "row " << t << ", column " << c << " of " << n;
      }
    }
  }
}

// In roundoffs: a softplus is off by 12 of itself (an exponential of 4, a quotient, a polynomial),
// and by what rounding its argument (at most 4) makes of it, 4; a rate by 4; so the logarithm y of
// a decay by 21 |y|, and the decay by 4 more. With the 5 roundings of a row's numbers each row adds
// at most (21 |y| + 30) times the sum of what went into a number without its signs.
TEST_P(StatesParity, ScanFollowsTheRecurrence) {
  Random random(32);
  SCOPED_TRACE(random.trace());
  for (const ScanSpec& spec : kScans) {
    const ScanOp op(spec);
    const int64_t rows = 40, width = op.in_columns();
    const auto x = op.draw(random, rows);
    StateBench bench(GetParam(), op.states(), 1);
    const std::vector<Slice> all = {{int32_t(rows), kZeroState, 0}};
    const auto got = op.step(bench, all, x);
    for (int32_t c = 0; c < spec.x_columns(); ++c) {
      const int32_t h = c / spec.head_dim, group = h / (spec.heads / spec.groups);
      Column column(spec.state_dim), sizes(spec.state_dim);
      double steepest = 0.0;
      for (int64_t t = 0; t < rows; ++t) {
        const float* const row = x.data() + t * width;
        std::vector<float> b(row + spec.x_columns() + int64_t{group} * spec.state_dim,
                             row + spec.x_columns() + int64_t{group + 1} * spec.state_dim);
        std::vector<float> read(b.size());
        std::copy_n(row + spec.x_columns() + int64_t{spec.groups + group} * spec.state_dim,
                    read.size(), read.begin());
        const ScanOp::Gate gate = op.gate(h, row[spec.xbc_columns() + h]);
        const double value = row[c], skip = op.skip(h) * value;
        column.write(gate.decay, b.data(), gate.time * value);
        const double want = column.read(read.data()) + skip;
        for (float& number : b) number = std::abs(number);
        for (float& number : read) number = std::abs(number);
        sizes.write(gate.decay, b.data(), std::abs(gate.time * value));
        steepest = std::max(steepest, -std::log(gate.decay));
        const double state = double(t + 1) * (21.0 * steepest + 30.0);
        const double bound =
            (state + spec.state_dim / 4.0 + 6.0) * (sizes.read(read.data()) + std::abs(skip));
        ASSERT_NEAR(got[size_t(t * op.out_columns() + c)], want, bound * kF32Roundoff)
            << "row " << t << ", column " << c;
      }
    }
  }
}

// A sum of at most 9 products and a bias, 10 roundoffs of its terms' sizes; SiLU makes at most 1.1
// times as much of it, and adds 8 roundoffs of its result.
TEST_P(StatesParity, ConvolutionsAreSumsOverTime) {
  Random random(33);
  SCOPED_TRACE(random.trace());
  for (const ConvSpec& spec : {ConvSpec{1, 2, false}, ConvSpec{40, 4, true}, ConvSpec{133, 3, true},
                               ConvSpec{20, 8, false}}) {
    const ConvOp op(spec, spec.kernel != 3);
    const int64_t rows = 11;
    const auto x = op.draw(random, rows);
    StateBench bench(GetParam(), op.states(), 1);
    const std::vector<Slice> all = {{int32_t(rows), kZeroState, 0}};
    const auto got = op.step(bench, all, x);
    for (int32_t c = 0; c < spec.channels; ++c) {
      for (int64_t t = 0; t < rows; ++t) {
        double sum = op.bias(c), size = std::abs(sum);
        for (int32_t j = 0; j < spec.kernel; ++j) {
          const int64_t at = t + 1 - spec.kernel + j;
          if (at < 0) continue;
          const double product =
              op.tap(c, j) * double{x[size_t(at * op.in_columns() + ConvOp::kFirst + c)]};
          sum += product;
          size += std::abs(product);
        }
        const double want = spec.silu ? sum / (1.0 + std::exp(-sum)) : sum;
        ASSERT_NEAR(got[size_t(t * spec.channels + c)], want,
                    (11.0 * size + 8.0 * std::abs(want)) * kF32Roundoff)
            << "row " << t << ", channel " << c << ", kernel " << spec.kernel;
      }
    }
  }
}

// The sum of n squares is off by gamma_n, halved by the root; 5 more for the root, the quotient and
// products. Gates: see ScanFollowsTheRecurrence, but for arguments of any size x, whose rounding
// makes |x| roundoffs of a softplus. What is below the normal numbers may be 0.
TEST_P(StatesParity, PrepareNormalizesHeads) {
  const auto backend = make_backend(GetParam());
  Random random(34);
  SCOPED_TRACE(random.trace());
  for (const DeltaSpec& spec : kDeltas) {
    const int64_t rows = 5, heads = spec.value_heads, cols = spec.qkv_columns();
    const auto values = random.uniforms(rows * cols);
    auto logits = random.uniforms(rows * 2 * heads);
    for (const float extreme : {-100.0f, -30.0f, 15.0f, 100.0f}) {
      for (int64_t i = 0; i < 2; ++i) {
        logits[size_t(random.integer(0, rows * 2 * heads - 1))] = extreme;
      }
    }
    const auto a_log = random.uniforms(heads, -1.0f, 1.5f);
    const auto dt_bias = random.uniforms(heads, -3.0f, 0.5f);
    const Matrix qkv(*backend, rows, cols, values), ba(*backend, rows, 2 * heads, logits);
    const Matrix rates(*backend, 1, heads, a_log), bias(*backend, 1, heads, dt_bias);
    const Matrix gates(*backend, rows, 2 * heads);
    backend->delta_prepare(qkv.view(), ba.view().columns(0, heads), ba.view().columns(heads, heads),
                           rates.vector(), bias.vector(), spec, gates.view());
    const auto got = qkv.values(), opened = gates.values();
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t c = 0; c < cols; ++c) {
        const auto at = size_t(i * cols + c);
        if (c >= 2 * spec.key_columns()) {
          ASSERT_EQ(got[at], values[at]);
          continue;
        }
        double squares = 1e-6;
        const auto head = at - size_t(c % spec.key_dim);
        for (size_t j = 0; j < size_t(spec.key_dim); ++j) {
          squares += double{values[head + j]} * double{values[head + j]};
        }
        if (c < spec.key_columns()) squares *= spec.key_dim;
        const double want = double{values[at]} / std::sqrt(squares);
        ASSERT_NEAR(got[at], want, std::abs(want) * (spec.key_dim / 2.0 + 6.0) * kF32Roundoff);
      }
      for (int64_t h = 0; h < heads; ++h) {
        const double dt =
            double{logits[size_t((2 * i + 1) * heads + h)]} + double{dt_bias[size_t(h)]};
        const double y = std::exp(double{a_log[size_t(h)]}) * std::log1p(std::exp(dt));
        ASSERT_NEAR(opened[size_t(2 * i * heads + h)], std::exp(-y),
                    std::exp(-y) * ((17.0 + std::abs(dt)) * y + 5.0) * kF32Roundoff + kTiny);
        const double beta = 1.0 / (1.0 + std::exp(-double{logits[size_t(2 * i * heads + h)]}));
        ASSERT_NEAR(opened[size_t((2 * i + 1) * heads + h)], beta,
                    8.0 * beta * kF32Roundoff + kTiny);
      }
    }
  }
}

// A mean of n squares halved by the root, the squares' own 9 roundoffs of a gate, and 18 of the
// factors.
TEST_P(StatesParity, GatedNormMatchesReference) {
  const auto reference = make_cpu_backend({.isa = "reference"});
  const auto backend = make_backend(GetParam());
  Random random(35);
  SCOPED_TRACE(random.trace());
  const auto run = [](Backend& on, const std::vector<float>& x, const std::vector<float>& gate,
                      const std::vector<float>& weight, const GatedNormSpec& spec) {
    const int64_t cols = int64_t(x.size()) / 3;
    const Matrix out(on, 3, cols, x), gates(on, 3, cols, gate);
    const Matrix scale(on, 1, int64_t(weight.size()), weight);
    on.gated_norm(out.view(), gates.view(), scale.vector(), spec, out.view());
    return out.values();
  };
  for (const int32_t group : {5, 16, 128}) {
    const auto x = random.uniforms(3 * 2 * group), gate = random.uniforms(3 * 2 * group, -4, 4);
    for (const bool whole : {false, true}) {
      const auto weight = random.uniforms(whole ? 2 * group : group, 0.5f, 1.5f);
      for (const auto kind : {GatedNormSpec::Gate::kSilu, GatedNormSpec::Gate::kSigmoid}) {
        for (const bool first : {false, true}) {
          const GatedNormSpec spec{group, 1e-5f, kind, first};
          const auto want = run(*reference, x, gate, weight, spec);
          const auto got = run(*backend, x, gate, weight, spec);
          for (size_t i = 0; i < want.size(); ++i) {
            ASSERT_NEAR(got[i], want[i], std::abs(want[i]) * (group / 2.0 + 27.0) * kF32Roundoff);
          }
        }
      }
    }
  }
}

// With hardly any decay: rounding errors add up like steps of a random walk, sqrt(t) ulp.
TEST_P(StatesParity, LongSequencesStayExact) {
  const DeltaSpec spec{1, 1, 32, 16};
  const DeltaOp op(spec);
  Random random(36);
  SCOPED_TRACE(random.trace());
  constexpr int64_t kLong = 4096;
  auto x = op.draw(random, kLong);
  for (int64_t t = 0; t < kLong; ++t) x[size_t((t + 1) * op.in_columns() - 2)] = 0.9999f;
  StateBench bench(GetParam(), op.states(), 1);
  const std::vector<Slice> all = {{int32_t(kLong), kZeroState, 0}};
  op.step(bench, all, x);
  const auto got = state_numbers(bench, 0);
  double off = 0.0, size = 0.0;
  for (int32_t j = 0; j < spec.value_dim; ++j) {
    Column column(spec.key_dim);
    for (int64_t t = 0; t < kLong; ++t) {
      const float* const k = x.data() + t * op.in_columns() + spec.key_dim;
      const double decay = k[spec.key_dim + spec.value_dim], v = k[spec.key_dim + j];
      const double beta = k[spec.key_dim + spec.value_dim + 1];
      column.write(decay, k, beta * (v - decay * column.read(k)));
    }
    for (int32_t i = 0; i < spec.key_dim; ++i) {
      const double want = column.numbers[size_t(i)];
      const double difference = double{got[size_t(i * spec.value_dim + j)]} - want;
      off += difference * difference;
      size += want * want;
    }
  }
  EXPECT_LE(std::sqrt(off / size), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Isas, StatesParity,
                         testing::Values("reference", "baseline", "avx2", "avx512", "avx512_bf16"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace headrace::parity
