// Mixture-of-experts layers on the CUDA backend: what the CPU's tests ask, through Backend's own
// interface.

#include <gtest/gtest.h>

#include <set>

#include "cuda/host/support/generate.h"
#include "cuda/host/support/gpu_under_test.h"
#include "cuda/host/support/uploaded.h"
#include "headrace/status.h"
#include "parity/experts/experts_harness.h"
#include "parity/experts/route_harness.h"
#include "parity/gates.h"
#include "parity/quant/random_codes.h"

namespace headrace::parity {
namespace {

class RouteParity : public testing::TestWithParam<int> {
 protected:
  std::shared_ptr<Backend> backend_ = make_gpu_under_test(DType::kF32);
};

#include "parity/experts/route_cases.inc"

INSTANTIATE_TEST_SUITE_P(Cuda, RouteParity, testing::Values(0));

std::vector<float> row_of(const std::vector<float>& x, int64_t row, int64_t cols) {
  return {x.begin() + row * cols, x.begin() + (row + 1) * cols};
}

std::vector<std::byte> bytes_of(Backend& backend, const PackedWeight& weight) {
  std::vector<std::byte> out(weight.bytes());
  backend.read_back(weight.data(), out.data(), out.size());
  return out;
}

struct ExpertKind {
  DType dtype;
  int32_t bits = 0, group_size = 0;
};

class CudaExperts : public testing::TestWithParam<ExpertKind> {
 protected:
  DType dtype() const { return GetParam().dtype; }
  QuantFormat quant() const {
    if (GetParam().bits == 0) return {};
    return {.bits = GetParam().bits,
            .group_size = GetParam().group_size,
            .activations = Activations::kWhole};
  }
  ExpertFormat format() const { return {"", dtype(), quant()}; }

  /// run_experts() with activations of the dtype.
  std::vector<float> run(const PackedExperts& layer, const Routes& routes,
                         const std::vector<float>& x) {
    const int64_t rows = routes.rows(), hidden = layer.down->n();
    const Backend::Buffer ids = backend_->allocate(routes.ids.size() * sizeof(int32_t));
    backend_->upload(routes.ids.data(), ids.data, routes.ids.size() * sizeof(int32_t));
    const Uploaded in(*backend_, dtype(), rows, hidden, x);
    const Uploaded weights(*backend_, DType::kF32, rows, routes.top_k, routes.weights);
    const Uploaded out(*backend_, dtype(), rows, hidden);
    Experts args{in.view(),      TensorView(ids.data, DType::kI32, {rows, routes.top_k}),
                 weights.view(), *layer.gate_up,
                 *layer.down,    out.view()};
    const int64_t outputs = layer.gate_up->n();
    const Uploaded gate_up_bias(*backend_, dtype(), 1, layer.down->experts() * outputs,
                                gates_.gate_up_bias);
    const Uploaded down_bias(*backend_, dtype(), 1, layer.down->experts() * hidden,
                             gates_.down_bias);
    args.gate = gates_.spec;
    if (!gates_.gate_up_bias.empty()) args.gate_up_bias = gate_up_bias.vector();
    if (!gates_.down_bias.empty()) args.down_bias = down_bias.vector();
    backend_->experts(args);
    return out.read();
  }

  /// What one expert gives for a row, by linear_gate_mul() (or linear() and activate()) and
  /// linear().
  std::vector<float> by_linears(const PackedExperts& expert, const std::vector<float>& row,
                                int64_t e) {
    const int64_t hidden = expert.down->n(), inner = expert.down->k();
    const Uploaded x(*backend_, dtype(), 1, hidden, row);
    const Uploaded between(*backend_, dtype(), 1, inner);
    const Uploaded out(*backend_, dtype(), 1, hidden);
    const auto bias = [&](const std::vector<float>& all, int64_t n) {
      if (all.empty()) return Uploaded(*backend_, dtype(), 0, 0);
      return Uploaded(*backend_, dtype(), 1, n, row_of(all, e, n));
    };
    const int64_t outputs = expert.gate_up->n();
    const Uploaded first = bias(gates_.gate_up_bias, outputs);
    const Uploaded second = bias(gates_.down_bias, hidden);
    const TensorView first_bias = gates_.gate_up_bias.empty() ? TensorView() : first.vector();
    if (outputs == 2 * inner) {
      backend_->linear_gate_mul(x.view(), *expert.gate_up, first_bias, gates_.spec, between.view());
    } else {
      backend_->linear(x.view(), *expert.gate_up, first_bias, between.view());
      backend_->activate(gates_.spec.activation, between.view());
    }
    backend_->linear(between.view(), *expert.down,
                     gates_.down_bias.empty() ? TensorView() : second.vector(), out.view());
    return out.read();
  }

  /// The bits that a row must have: a chain over its experts' own linears.
  std::vector<float> sum_of(const std::vector<PackedExperts>& each, const Routes& routes,
                            const std::vector<float>& row) {
    std::vector<float> out(row.size(), 0.0f);
    for (size_t slot = 0; slot < routes.ids.size(); ++slot) {
      const auto y = by_linears(each[size_t(routes.ids[slot])], row, routes.ids[slot]);
      for (size_t j = 0; j < y.size(); ++j) {
        out[j] = std::fma(routes.weights[slot], y[j], out[j]);
      }
    }
    for (float& sum : out) sum = round_to(dtype(), sum);
    return out;
  }

  std::shared_ptr<Backend> backend_ = make_gpu_under_test(dtype());
  ExpertGates gates_;
};

// Nothing divides by a tile; the bits are those of a chain over the experts' own linears.
TEST_P(CudaExperts, SumWhatTheirLinearsGive) {
  Random random(71);
  SCOPED_TRACE(random.trace());
  for (const ExpertSizes& sizes : {ExpertSizes{1, 1, 1}, {2, 7, 3}, {5, 66, 33}}) {
    const ExpertNumbers numbers = ExpertNumbers::random(random, sizes);
    const PackedExperts layer = pack_experts(*backend_, numbers, format());
    std::vector<PackedExperts> each;
    for (int64_t e = 0; e < sizes.experts; ++e) {
      each.push_back(pack_expert(*backend_, numbers, format(), e));
    }
    for (const int64_t rows : {1, 9, 37}) {
      const int64_t top_k = std::min<int64_t>(sizes.experts, 3);
      const Routes routes = Routes::random(random, rows, top_k, sizes.experts);
      const auto x = random_values(size_t(rows * sizes.hidden), 3, dtype());
      const auto got = run(layer, routes, x);
      for (int64_t row = 0; row < rows; row += 4) {
        ASSERT_EQ(row_of(got, row, sizes.hidden),
                  sum_of(each, routes.row(row), row_of(x, row, sizes.hidden)))
            << row << " of " << rows;
      }
    }
  }
}

// Clamped gates and biases, as gpt-oss has them; other gates without.
TEST_P(CudaExperts, GatesAndBiases) {
  Random random(78);
  SCOPED_TRACE(random.trace());
  const ExpertSizes sizes{3, 66, 33};
  const ExpertNumbers numbers = ExpertNumbers::random(random, sizes);
  const PackedExperts layer = pack_experts(*backend_, numbers, format());
  std::vector<PackedExperts> each;
  for (int64_t e = 0; e < sizes.experts; ++e) {
    each.push_back(pack_expert(*backend_, numbers, format(), e));
  }
  for (const GateSpec& gate : kGates) {
    gates_ = {gate, {}, {}};
    if (gate.limit > 0.0f) {
      gates_.gate_up_bias = random_values(size_t(sizes.experts * 2 * sizes.inner), 5, dtype());
      gates_.down_bias = random_values(size_t(sizes.experts * sizes.hidden), 6, dtype());
    }
    const Routes routes = Routes::random(random, 9, 2, sizes.experts);
    const auto x = random_values(size_t(9 * sizes.hidden), 7, dtype());
    const auto got = run(layer, routes, x);
    for (const int64_t row : {0, 8}) {
      ASSERT_EQ(row_of(got, row, sizes.hidden),
                sum_of(each, routes.row(row), row_of(x, row, sizes.hidden)))
          << row;
    }
  }
}

// Experts without gates.
TEST_P(CudaExperts, UpAlone) {
  Random random(79);
  SCOPED_TRACE(random.trace());
  const ExpertSizes sizes{3, 66, 33, 1};
  const ExpertNumbers numbers = ExpertNumbers::random(random, sizes);
  const PackedExperts layer = pack_experts(*backend_, numbers, format());
  std::vector<PackedExperts> each;
  for (int64_t e = 0; e < sizes.experts; ++e) {
    each.push_back(pack_expert(*backend_, numbers, format(), e));
  }
  gates_ = {{.activation = Activation::kRelu2}, {}, {}};
  for (const int64_t rows : {1, 37}) {
    const Routes routes = Routes::random(random, rows, 2, sizes.experts);
    const auto x = random_values(size_t(rows * sizes.hidden), 7, dtype());
    const auto got = run(layer, routes, x);
    ASSERT_EQ(row_of(got, rows - 1, sizes.hidden),
              sum_of(each, routes.row(rows - 1), row_of(x, rows - 1, sizes.hidden)));
  }
}

// Weights that come as codes, zero points and float16 scales among them: as their linears, too.
TEST_P(CudaExperts, Codes) {
  if (quant().bits == 0) return;
  Random random(72);
  SCOPED_TRACE(random.trace());
  const int64_t experts = 3, hidden = 70, inner = 45;
  QuantFormat codes_format = quant();
  codes_format.zero_points = codes_format.f16_scales = true;
  std::vector<std::unique_ptr<RandomCodes>> kept;
  const auto codes = [&](Shape shape) {
    kept.push_back(
        std::make_unique<RandomCodes>(random, codes_format, shape, std::vector<int32_t>{}));
    return kept.back()->part();
  };
  WeightSpec gate_up{{}, dtype(), WeightUse::kGateUp, codes_format};
  WeightSpec down{{}, dtype(), WeightUse::kLinear, codes_format};
  std::vector<PackedExperts> each;
  for (int64_t e = 0; e < experts; ++e) {
    const WeightPart gate = codes({inner, hidden}), up = codes({inner, hidden});
    const WeightPart back = codes({hidden, inner});
    gate_up.parts.insert(gate_up.parts.end(), {gate, up});
    down.parts.push_back(back);
    each.push_back({backend_->pack_weight({{gate, up}, dtype(), WeightUse::kGateUp, codes_format}),
                    backend_->pack_weight({{back}, dtype(), WeightUse::kLinear, codes_format})});
  }
  gate_up.experts = down.experts = static_cast<int32_t>(experts);
  const PackedExperts layer{backend_->pack_weight(gate_up), backend_->pack_weight(down)};
  const Routes routes = Routes::random(random, 11, 2, experts);
  auto x = random_values(size_t(11 * hidden), 3, dtype());
  for (float& value : x) value = round_to(dtype(), value / 256);  // float16 ends at 65504
  const auto got = run(layer, routes, x);
  for (int64_t row = 0; row < 11; ++row) {
    ASSERT_EQ(row_of(got, row, hidden), sum_of(each, routes.row(row), row_of(x, row, hidden)));
  }
}

TEST_P(CudaExperts, ARowAloneAndAmong300) {
  Random random(73);
  SCOPED_TRACE(random.trace());
  const ExpertNumbers numbers = ExpertNumbers::random(random, {6, 72, 24});
  const PackedExperts layer = pack_experts(*backend_, numbers, format());
  const Routes routes = Routes::random(random, 300, 2, 6);
  const auto x = random_values(300 * 72, 5, dtype());
  const auto all = run(layer, routes, x);
  for (const int64_t row : {0, 17, 299}) {
    EXPECT_EQ(run(layer, routes.row(row), row_of(x, row, 72)), row_of(all, row, 72)) << row;
  }
}

TEST_P(CudaExperts, EachLiesAsItWouldAlone) {
  Random random(81);
  const ExpertNumbers numbers = ExpertNumbers::random(random, {5, 67, 35});
  const PackedExperts all = pack_experts(*backend_, numbers, format());
  for (const bool down : {false, true}) {
    const PackedWeight& weight = down ? *all.down : *all.gate_up;
    EXPECT_EQ(weight.experts(), 5);
    EXPECT_EQ(weight.n(), down ? 67 : 70);
    std::vector<std::byte> want;
    for (int64_t e = 0; e < 5; ++e) {
      const PackedExperts single = pack_expert(*backend_, numbers, format(), e);
      const auto alone = bytes_of(*backend_, down ? *single.down : *single.gate_up);
      EXPECT_EQ(alone.size() % (quant().bits == 0 ? 256 : 16), 0u);
      want.insert(want.end(), alone.begin(), alone.end());
    }
    EXPECT_EQ(bytes_of(*backend_, weight), want);
    const WeightShape shape{weight.n(), weight.k(),
                            dtype(),    down ? WeightUse::kLinear : WeightUse::kGateUp,
                            quant(),    weight.experts()};
    EXPECT_EQ(backend_->packed_bytes(shape), weight.bytes());
  }
  const WeightShape huge{int64_t{1} << 40,   int64_t{1} << 16, dtype(),
                         WeightUse::kLinear, quant(),          1024};
  EXPECT_THROW(backend_->packed_bytes(huge), Error);
}

TEST_P(CudaExperts, ReservedMemoryIsEnough) {
  Random random(93);
  const ExpertNumbers numbers = ExpertNumbers::random(random, {8, 40, 24});
  const PackedExperts layer = pack_experts(*backend_, numbers, format());
  const std::vector<float> gate = random.uniforms(8 * 40);
  const auto router =
      backend_->pack_weight({{{gate.data(), DType::kF32, 8, 40, false, 40}}, DType::kF32});
  constexpr int64_t kRows = 150;
  const Uploaded x(*backend_, dtype(), kRows, 40, random_values(kRows * 40, 7, dtype()));
  const Uploaded out(*backend_, dtype(), kRows, 40), weights(*backend_, DType::kF32, kRows, 2);
  const Backend::Buffer ids = backend_->allocate(kRows * 2 * sizeof(int32_t));
  const auto step = [&](int64_t rows) {
    const TensorView chosen(ids.data, DType::kI32, {rows, 2});
    const TensorView in = x.view().first_rows(rows), shares = weights.view().first_rows(rows);
    backend_->route(in, *router, {}, {}, {.num_experts = 8, .top_k = 2}, chosen, shares);
    backend_->experts(
        {in, chosen, shares, *layer.gate_up, *layer.down, out.view().first_rows(rows)});
  };
  const size_t before = backend_->bytes_in_use();
  backend_->reserve([&] { step(kRows); });
  const size_t reserved = backend_->bytes_in_use();
  EXPECT_GT(reserved, before);
  for (const int64_t rows : {1, 17, 150}) step(rows);
  EXPECT_EQ(out.read().size(), size_t(kRows * 40));
  EXPECT_EQ(backend_->bytes_in_use(), reserved);
}

TEST_P(CudaExperts, ContractsAreChecked) {
  Random random(94);
  const ExpertNumbers numbers = ExpertNumbers::random(random, {3, 16, 8});
  const PackedExperts layer = pack_experts(*backend_, numbers, format());
  const PackedExperts other =
      pack_experts(*backend_, ExpertNumbers::random(random, {2, 16, 8}), format());
  const Uploaded x(*backend_, dtype(), 2, 16), out(*backend_, dtype(), 2, 16);
  const Uploaded narrow(*backend_, dtype(), 2, 8), weights(*backend_, DType::kF32, 2, 2);
  const Uploaded four(*backend_, DType::kF32, 2, 4);
  const TensorView ids(x.view().data, DType::kI32, {2, 2});
  const TensorView four_ids(x.view().data, DType::kI32, {2, 4});
  const TensorView in = x.view(), to = out.view(), w = weights.view();
  const auto expect_refused = [&](const Experts& bad) {
    EXPECT_THROW(backend_->experts(bad), InternalError);
  };
  expect_refused({narrow.view(), ids, w, *layer.gate_up, *layer.down, to});
  expect_refused({in, ids, w, *layer.gate_up, *other.down, to});
  expect_refused({in, ids, w, *layer.down, *layer.gate_up, to});
  expect_refused({in, ids, four.view(), *layer.gate_up, *layer.down, to});
  expect_refused({in, four_ids, four.view(), *layer.gate_up, *layer.down, to});
  EXPECT_THROW(backend_->add(narrow.view(), to), InternalError);
  EXPECT_THROW(backend_->add_gated(in, narrow.vector(), in, to), InternalError);
}

std::string name_of(const testing::TestParamInfo<ExpertKind>& test) {
  const ExpertKind& kind = test.param;
  if (kind.bits == 0) return dtype_name(kind.dtype);
  return str_cat(dtype_name(kind.dtype), "_int", kind.bits, "_g", kind.group_size);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaExperts,
                         testing::Values(ExpertKind{DType::kF32}, ExpertKind{DType::kBF16},
                                         ExpertKind{DType::kF16}, ExpertKind{DType::kF32, 4, 32},
                                         ExpertKind{DType::kBF16, 4, 128},
                                         ExpertKind{DType::kBF16, 8, 32},
                                         ExpertKind{DType::kF16, 4, 64}),
                         name_of);

// Steps of 1 to 3 sequences, recorded ones with padding among them, and a prompt of 150 tokens.
TEST(CudaExpertModels, ASequencesBitsDependOnNothingElse) {
  const std::string folder = load_golden_case("ernie4_5_moe").folder;
  DecoderHarness harness(make_gpu_under_test(DType::kBF16), folder,
                         {.storage = DType::kBF16, .kv_dtype = DType::kBF16});
  const auto long_prompt = prompt(90, 2), short_prompt = prompt(5, 1);
  const Rows alone = generate_alone(harness, 0, short_prompt, 5);
  harness.start(0, 5);
  harness.start(1, 90);
  Rows last = harness.step({{1, long_prompt}, {0, short_prompt}});
  EXPECT_EQ(last.back(), alone[0]);
  std::vector<float> mine = last.back(), other = last[89];
  for (size_t step = 1; step < 5; ++step) {
    last = harness.step({{1, {argmax(other)}}, {0, {argmax(mine)}}});
    other = last[0];
    mine = last[1];
    EXPECT_EQ(mine, alone[step]) << "step " << step;
  }
}

}  // namespace
}  // namespace headrace::parity
