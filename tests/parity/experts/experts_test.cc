// experts(): every kernel set and format against linears of one expert each, against plain loops,
// and against itself in other company.

#include <cmath>
#include <cstring>
#include <limits>

#include "headrace/status.h"
#include "parity/experts/experts_harness.h"
#include "parity/gates.h"
#include "parity/quant/random_codes.h"
#include "parity/ranks/ranks.h"

namespace headrace::parity {
namespace {

// Nothing divides by a panel, a tile or a group of k; the last spans several of each.
constexpr ExpertSizes kSizes[] = {{1, 1, 1}, {2, 7, 3}, {5, 66, 33}, {4, 130, 205}};

std::vector<std::string> all_isas() {
  std::vector<std::string> names = kernel_isas();
  names.insert(names.end(), {"avx2_vnni", "avx512_vnni", "reference"});
  return names;
}

std::vector<float> row_of(const std::vector<float>& x, int64_t row, int64_t cols) {
  return {x.begin() + row * cols, x.begin() + (row + 1) * cols};
}

/// What one expert gives for a row, by linear(), gate_mul() (or activate()) and linear().
std::vector<float> by_linears(Backend& backend, const PackedExperts& expert,
                              const std::vector<float>& row, const ExpertGates& gates = {}) {
  const int64_t hidden = expert.down->n(), inner = expert.down->k();
  const Matrix x(backend, 1, hidden, row), between(backend, 1, inner), out(backend, 1, hidden);
  const int64_t outputs = expert.gate_up->n();
  const Matrix gate_up(backend, 1, outputs);
  const Matrix gate_up_bias(backend, 1, outputs, gates.gate_up_bias);
  const Matrix down_bias(backend, 1, hidden, gates.down_bias);
  backend.linear(x.view(), *expert.gate_up,
                 gates.gate_up_bias.empty() ? TensorView() : gate_up_bias.vector(), gate_up.view());
  const bool gated = outputs == 2 * inner;
  if (gated) {
    backend.gate_mul(gate_up.view(), gates.spec, between.view());
  } else {
    backend.activate(gates.spec.activation, gate_up.view());
  }
  backend.linear(gated ? between.view() : gate_up.view(), *expert.down,
                 gates.down_bias.empty() ? TensorView() : down_bias.vector(), out.view());
  return out.values();
}

class ExpertsParity : public testing::TestWithParam<ExpertParam> {
 protected:
  void SetUp() override {
    if (isa() != "reference") HEADRACE_REQUIRE_ISA(isa());
  }
  std::string isa() const { return std::get<0>(GetParam()); }
  const ExpertFormat& format() const { return std::get<1>(GetParam()); }
};

/// Expects the weighted sums of what each expert's own linears give. Those have the same bits; a
/// sum of k rounded products in any order is off by at most gamma_{k+1} of the sum of their
/// magnitudes (Higham, Accuracy and Stability, 3.1), and rounding to float32 is one roundoff more.
void expect_sums_of(Backend& backend, const std::vector<PackedExperts>& experts,
                    const Routes& routes, const std::vector<float>& x,
                    const std::vector<float>& got, const std::vector<ExpertGates>& gates = {}) {
  const int64_t hidden = experts.front().down->n();
  const double bound = static_cast<double>(routes.top_k + 3) * kF32Roundoff;
  for (int64_t i = 0; i < routes.rows(); ++i) {
    std::vector<double> sums(static_cast<size_t>(hidden)), magnitudes(sums);
    for (int64_t slot = 0; slot < routes.top_k; ++slot) {
      const auto at = static_cast<size_t>(i * routes.top_k + slot);
      const auto expert = size_t(routes.ids[at]);
      const std::vector<float> y = by_linears(backend, experts[expert], row_of(x, i, hidden),
                                              gates.empty() ? ExpertGates{} : gates[expert]);
      for (size_t j = 0; j < sums.size(); ++j) {
        const double product = double{routes.weights[at]} * double{y[j]};
        sums[j] += product;
        magnitudes[j] += std::abs(product);
      }
    }
    for (size_t j = 0; j < sums.size(); ++j) {
      ASSERT_NEAR(got[size_t(i * hidden) + j], sums[j], bound * magnitudes[j])
          << "row " << i << " of " << routes.rows() << ", column " << j;
    }
  }
}

TEST_P(ExpertsParity, SumsWhatTheirLinearsGive) {
  const auto backend = make_backend(isa());
  Random random(71);
  SCOPED_TRACE(random.trace());
  for (const ExpertSizes& sizes : kSizes) {
    const ExpertNumbers numbers = ExpertNumbers::random(random, sizes);
    const PackedExperts layer = pack_experts(*backend, numbers, format());
    std::vector<PackedExperts> each;
    for (int64_t e = 0; e < sizes.experts; ++e) {
      each.push_back(pack_expert(*backend, numbers, format(), e));
    }
    for (const int64_t rows : {1, 2, 9, 37}) {
      const int64_t top_k = std::min<int64_t>(sizes.experts, 3);
      const Routes routes = Routes::random(random, rows, top_k, sizes.experts);
      const std::vector<float> x = random.uniforms(rows * sizes.hidden);
      expect_sums_of(*backend, each, routes, x, run_experts(*backend, layer, routes, x));
    }
  }
}

// Every kind of gate, with both biases, one or none.
TEST_P(ExpertsParity, GatesAndBiases) {
  const auto backend = make_backend(isa());
  Random random(77);
  SCOPED_TRACE(random.trace());
  const ExpertSizes sizes{5, 66, 33};
  const ExpertNumbers numbers = ExpertNumbers::random(random, sizes);
  const PackedExperts layer = pack_experts(*backend, numbers, format());
  std::vector<PackedExperts> each;
  for (int64_t e = 0; e < sizes.experts; ++e) {
    each.push_back(pack_expert(*backend, numbers, format(), e));
  }
  for (size_t kind = 0; kind < std::size(kGates); ++kind) {
    ExpertGates all{kGates[kind], {}, {}};
    if (kind != 1) all.gate_up_bias = random.uniforms(sizes.experts * 2 * sizes.inner);
    if (kind != 2) all.down_bias = random.uniforms(sizes.experts * sizes.hidden);
    std::vector<ExpertGates> own(static_cast<size_t>(sizes.experts), {kGates[kind], {}, {}});
    for (int64_t e = 0; e < sizes.experts; ++e) {
      if (kind != 1) own[size_t(e)].gate_up_bias = row_of(all.gate_up_bias, e, 2 * sizes.inner);
      if (kind != 2) own[size_t(e)].down_bias = row_of(all.down_bias, e, sizes.hidden);
    }
    for (const int64_t rows : {1, 11}) {
      const Routes routes = Routes::random(random, rows, 3, sizes.experts);
      const std::vector<float> x = random.uniforms(rows * sizes.hidden);
      const auto got = run_experts(*backend, layer, routes, x, all);
      expect_sums_of(*backend, each, routes, x, got, own);
    }
  }
  ExpertGates wrong{{}, std::vector<float>(size_t(2 * sizes.inner), 1.0f), {}};
  const Routes routes = Routes::random(random, 1, 1, sizes.experts);
  EXPECT_THROW(run_experts(*backend, layer, routes, random.uniforms(sizes.hidden), wrong),
               InternalError);
}

// Experts without gates: up, relu^2, down; rows have the bits that they have alone.
TEST_P(ExpertsParity, UpAlone) {
  const auto backend = make_backend(isa());
  Random random(79);
  SCOPED_TRACE(random.trace());
  const ExpertSizes sizes{5, 66, 33, 1};
  const ExpertNumbers numbers = ExpertNumbers::random(random, sizes);
  const PackedExperts layer = pack_experts(*backend, numbers, format());
  std::vector<PackedExperts> each;
  for (int64_t e = 0; e < sizes.experts; ++e) {
    each.push_back(pack_expert(*backend, numbers, format(), e));
  }
  const GateSpec relu2{.activation = Activation::kRelu2};
  for (const bool biased : {false, true}) {
    ExpertGates all{relu2, {}, {}};
    if (biased) all.gate_up_bias = random.uniforms(sizes.experts * sizes.inner);
    std::vector<ExpertGates> own(static_cast<size_t>(sizes.experts), {relu2, {}, {}});
    for (int64_t e = 0; biased && e < sizes.experts; ++e) {
      own[size_t(e)].gate_up_bias = row_of(all.gate_up_bias, e, sizes.inner);
    }
    for (const int64_t rows : {1, 21}) {
      const Routes routes = Routes::random(random, rows, 3, sizes.experts);
      const std::vector<float> x = random.uniforms(rows * sizes.hidden);
      const auto got = run_experts(*backend, layer, routes, x, all);
      expect_sums_of(*backend, each, routes, x, got, own);
      ASSERT_EQ(row_of(got, rows - 1, sizes.hidden),
                run_experts(*backend, layer, routes.row(rows - 1),
                            row_of(x, rows - 1, sizes.hidden), all));
    }
  }
  const Routes routes = Routes::random(random, 1, 1, sizes.experts);
  EXPECT_THROW(run_experts(*backend, layer, routes, random.uniforms(sizes.hidden)), InternalError);
}

// Weights that come as codes, zero points, float16 scales and inputs in an order of each expert's
// own among them: as their linears, too.
TEST_P(ExpertsParity, Codes) {
  if (format().quant.bits == 0) GTEST_SKIP() << "no codes";
  const auto backend = make_backend(isa());
  Random random(72);
  SCOPED_TRACE(random.trace());
  const int64_t experts = 3, hidden = 70, inner = 45;
  for (const auto& [zero_points, reordered] :
       {std::pair{false, false}, {true, false}, {true, true}}) {
    QuantFormat quant = format().quant;
    quant.zero_points = zero_points;
    quant.f16_scales = zero_points;
    const QuantFormat in_order = quant;
    quant.reordered = reordered;
    std::vector<std::unique_ptr<RandomCodes>> kept;
    const auto codes = [&](Shape shape, const QuantFormat& own, std::vector<int32_t> order) {
      kept.push_back(std::make_unique<RandomCodes>(random, own, shape, std::move(order)));
      return kept.back()->part();
    };
    WeightSpec gate_up{{}, DType::kBF16, WeightUse::kGateUp, quant};
    WeightSpec down{{}, DType::kBF16, WeightUse::kLinear, in_order};
    std::vector<PackedExperts> each;
    for (int64_t e = 0; e < experts; ++e) {
      const auto order = reordered ? shuffled(random, hidden) : std::vector<int32_t>{};
      const WeightPart gate = codes({inner, hidden}, quant, order);
      const WeightPart up = codes({inner, hidden}, quant, order);
      const WeightPart back = codes({hidden, inner}, in_order, {});
      gate_up.parts.insert(gate_up.parts.end(), {gate, up});
      down.parts.push_back(back);
      each.push_back({backend->pack_weight({{gate, up}, DType::kBF16, WeightUse::kGateUp, quant}),
                      backend->pack_weight({{back}, DType::kBF16, WeightUse::kLinear, in_order})});
    }
    gate_up.experts = down.experts = static_cast<int32_t>(experts);
    const PackedExperts layer{backend->pack_weight(gate_up), backend->pack_weight(down)};
    for (const int64_t rows : {1, 11, 40}) {
      const Routes routes = Routes::random(random, rows, 2, experts);
      const std::vector<float> x = random.uniforms(rows * hidden);
      expect_sums_of(*backend, each, routes, x, run_experts(*backend, layer, routes, x));
    }
  }
}

/// Numbers with which everything is exact: a gate of 64, whose sigmoid is 1, for a first input of
/// 1; small whole numbers; weights that are powers of two.
ExpertNumbers whole_numbers(Random& random, const ExpertSizes& sizes) {
  const int64_t count = sizes.experts * sizes.hidden * sizes.inner;
  ExpertNumbers out{sizes, random.integers(2 * count, -1, 1), random.integers(count, -3, 3)};
  for (int64_t e = 0; e < sizes.experts; ++e) {
    for (int64_t i = 0; i < sizes.inner; ++i) {
      float* gate = &out.gate_up[size_t((2 * e * sizes.inner + i) * sizes.hidden)];
      std::fill(gate, gate + sizes.hidden, 0.0f);
      gate[0] = 64.0f;
    }
  }
  return out;
}

// Any misplaced row, expert or column shows, in the reference, too.
TEST_P(ExpertsParity, WholeNumbersAreExact) {
  if (format().quant.bits != 0) GTEST_SKIP() << "activations are rounded";
  const auto backend = make_backend(isa());
  Random random(73);
  SCOPED_TRACE(random.trace());
  const ExpertSizes sizes{6, 67, 35};
  const ExpertNumbers numbers = whole_numbers(random, sizes);
  const PackedExperts layer = pack_experts(*backend, numbers, format());
  for (const int64_t rows : {1, 4, 50}) {
    Routes routes = Routes::random(random, rows, 3, sizes.experts);
    for (float& w : routes.weights) w = std::ldexp(1.0f, static_cast<int>(random.integer(-2, 2)));
    std::vector<float> x = random.integers(rows * sizes.hidden, 0, 1);
    for (int64_t i = 0; i < rows; ++i) {
      float* row = &x[size_t(i * sizes.hidden)];
      row[0] = 1.0f;
      // At most four inputs of 1: what comes of them, times 64, has few enough bits for bf16.
      for (int64_t j = 4; j < sizes.hidden; ++j) row[j] = 0.0f;
    }
    std::vector<float> want(size_t(rows * sizes.hidden));
    for (size_t at = 0; at < routes.ids.size(); ++at) {
      const auto row = static_cast<int64_t>(at) / routes.top_k;
      const int64_t expert = routes.ids[at];
      for (int64_t i = 0; i < sizes.inner; ++i) {
        float up = 0.0f;
        const int64_t feature = (2 * expert + 1) * sizes.inner + i;
        for (int64_t j = 0; j < sizes.hidden; ++j) {
          up += x[size_t(row * sizes.hidden + j)] *
                numbers.gate_up[size_t(feature * sizes.hidden + j)];
        }
        for (int64_t j = 0; j < sizes.hidden; ++j) {
          const float down = numbers.down[size_t((expert * sizes.hidden + j) * sizes.inner + i)];
          want[size_t(row * sizes.hidden + j)] += routes.weights[at] * 64.0f * up * down;
        }
      }
    }
    ASSERT_EQ(run_experts(*backend, layer, routes, x), want) << rows << " rows";
  }
}

// The guarantee behind "same tokens every time": a row's bits depend on the row and its experts.
TEST_P(ExpertsParity, RowsDoNotDependOnTheirCompany) {
  if (isa() == "reference") GTEST_SKIP() << "one row at a time anyway";
  Random random(74);
  SCOPED_TRACE(random.trace());
  const ExpertSizes sizes{6, 130, 205};
  const ExpertNumbers numbers = ExpertNumbers::random(random, sizes);
  const auto alone = make_backend(isa(), 1);
  const PackedExperts layer = pack_experts(*alone, numbers, format());
  for (const int32_t threads : {1, 2, 3}) {
    const auto backend = make_backend(isa(), threads);
    const PackedExperts same = pack_experts(*backend, numbers, format());
    for (const int64_t rows : {2, 3, 8, 17, 150}) {
      const Routes routes = Routes::random(random, rows, 2, sizes.experts);
      const std::vector<float> x = random.uniforms(rows * sizes.hidden);
      const std::vector<float> got = run_experts(*backend, same, routes, x);
      for (int64_t i = 0; i < rows; i += rows > 20 ? 7 : 1) {
        ASSERT_EQ(row_of(got, i, sizes.hidden),
                  run_experts(*alone, layer, routes.row(i), row_of(x, i, sizes.hidden)))
            << "row " << i << " of " << rows << ", " << threads << " threads";
      }
    }
  }
}

// More rows than an expert takes at once, and more pairs than a block holds.
TEST_P(ExpertsParity, RowsDoNotDependOnBlocks) {
  if (isa() == "reference") GTEST_SKIP() << "one row at a time anyway";
  Random random(75);
  SCOPED_TRACE(random.trace());
  const ExpertSizes sizes{4, 33, 20};
  const ExpertNumbers numbers = ExpertNumbers::random(random, sizes);
  const auto backend = make_backend(isa(), 2);
  const PackedExperts layer = pack_experts(*backend, numbers, format());
  const int64_t rows = 2500;
  const std::vector<float> x = random.uniforms(rows * sizes.hidden);
  Routes mixed = Routes::random(random, rows, 2, sizes.experts), one = mixed;
  for (size_t i = 0; i < one.ids.size(); ++i) one.ids[i] = i % 2 == 0 ? 1 : 3;
  for (const Routes& routes : {mixed, one}) {
    const std::vector<float> got = run_experts(*backend, layer, routes, x);
    for (const int64_t i : {0, 1, 1023, 1024, 1249, 1250, 2047, 2048, 2499}) {
      ASSERT_EQ(row_of(got, i, sizes.hidden),
                run_experts(*backend, layer, routes.row(i), row_of(x, i, sizes.hidden)))
          << "row " << i;
    }
  }
}

TEST_P(ExpertsParity, ANanRowStaysItsOwn) {
  const auto backend = make_backend(isa());
  Random random(76);
  SCOPED_TRACE(random.trace());
  const ExpertSizes sizes{3, 70, 40};
  const ExpertNumbers numbers = ExpertNumbers::random(random, sizes);
  const PackedExperts layer = pack_experts(*backend, numbers, format());
  const int64_t rows = 9, bad = 4;
  const Routes routes = Routes::random(random, rows, 2, sizes.experts);
  std::vector<float> x = random.uniforms(rows * sizes.hidden);
  const std::vector<float> want = run_experts(*backend, layer, routes, x);
  x[size_t(bad * sizes.hidden + 3)] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> got = run_experts(*backend, layer, routes, x);
  for (int64_t i = 0; i < rows; ++i) {
    if (i != bad) {
      EXPECT_EQ(row_of(got, i, sizes.hidden), row_of(want, i, sizes.hidden)) << i;
      continue;
    }
    for (const float y : row_of(got, i, sizes.hidden)) EXPECT_TRUE(std::isnan(y));
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, ExpertsParity,
                         testing::Combine(testing::ValuesIn(all_isas()),
                                          testing::ValuesIn(kExpertFormats)),
                         expert_param_name);

TEST(Experts, ReservedMemoryIsEnough) {
  const auto backend = make_cpu_backend({.num_threads = 2});
  Random random(77);
  const ExpertSizes sizes{8, 96, 64};
  const ExpertNumbers numbers = ExpertNumbers::random(random, sizes);
  const PackedExperts layer = pack_experts(*backend, numbers, kExpertFormats[1]);
  constexpr int64_t kRows = 300;
  const Matrix x(*backend, kRows, sizes.hidden, random.uniforms(kRows * sizes.hidden));
  const Matrix out(*backend, kRows, sizes.hidden), weights(*backend, kRows, 4);
  const Routes routes = Routes::random(random, kRows, 4, sizes.experts);
  const Backend::Buffer ids = backend->allocate(routes.ids.size() * sizeof(int32_t));
  // What is reserved for doesn't depend on ids, which aren't there yet.
  std::memset(ids.data, 0xff, ids.bytes);
  const auto run = [&](int64_t rows) {
    backend->experts({x.view().first_rows(rows),
                      TensorView(ids.data, DType::kI32, {rows, routes.top_k}),
                      weights.view().first_rows(rows), *layer.gate_up, *layer.down,
                      out.view().first_rows(rows)});
  };
  backend->reserve([&] { run(kRows); });
  const size_t reserved = backend->bytes_in_use();
  EXPECT_THROW(run(1), InternalError);  // ids out of range
  backend->upload(routes.ids.data(), ids.data, ids.bytes);
  for (const int64_t rows : {1, 2, 17, 299, 300}) run(rows);
  EXPECT_EQ(backend->bytes_in_use(), reserved);
}

TEST(Experts, LinearRefusesThem) {
  for (const char* isa : {"baseline", "reference"}) {
    const auto backend = make_cpu_backend({.isa = isa});
    Random random(78);
    const ExpertNumbers numbers = ExpertNumbers::random(random, {2, 16, 8});
    const PackedExperts layer = pack_experts(*backend, numbers, kExpertFormats[0]);
    const Matrix x(*backend, 1, 8), out(*backend, 1, 16);
    EXPECT_THROW(backend->linear(x.view(), *layer.down, {}, out.view()), InternalError) << isa;
  }
}

// A node's threads have their part of every expert's panels.
TEST(Experts, RanksGiveTheBitsOfOne) {
  const std::string ranks = ranks_of(2);
  if (ranks.empty()) GTEST_SKIP() << "needs two cores";
  Random random(79);
  SCOPED_TRACE(random.trace());
  const ExpertSizes sizes{5, 320, 200};
  const ExpertNumbers numbers = ExpertNumbers::random(random, sizes);
  const auto one = make_cpu_backend({.num_threads = 1});
  const auto two = make_cpu_backend({.num_threads = 3, .numa = true, .numa_nodes = ranks});
  for (const ExpertFormat& format : kExpertFormats) {
    const PackedExperts alone = pack_experts(*one, numbers, format);
    const PackedExperts shared = pack_experts(*two, numbers, format);
    for (const int64_t rows : {1, 6, 90}) {
      const Routes routes = Routes::random(random, rows, 2, sizes.experts);
      const std::vector<float> x = random.uniforms(rows * sizes.hidden);
      ASSERT_EQ(run_experts(*two, shared, routes, x), run_experts(*one, alone, routes, x))
          << format.name << ", " << rows << " rows";
    }
  }
}

}  // namespace
}  // namespace headrace::parity
