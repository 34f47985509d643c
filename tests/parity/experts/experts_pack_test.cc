// Weights of several experts: how they lie, restored ones, what is refused.

#include <cmath>
#include <cstring>

#include "headrace/status.h"
#include "parity/experts/experts_harness.h"
#include "parity/quant/random_codes.h"

namespace headrace::parity {
namespace {

constexpr ExpertSizes kOdd{5, 67, 35};

std::vector<std::byte> bytes_of(const PackedWeight& weight) {
  std::vector<std::byte> out(weight.bytes());
  std::memcpy(out.data(), weight.data(), out.size());
  return out;
}

WeightShape shape_of(const PackedWeight& weight, const WeightSpec& spec) {
  return {weight.n(), weight.k(), spec.storage, spec.use, spec.quant, spec.experts};
}

class ExpertsPack : public testing::TestWithParam<ExpertParam> {
 protected:
  void SetUp() override {
    if (isa() != "reference") HEADRACE_REQUIRE_ISA(isa());
    backend_ = make_backend(isa());
  }
  std::string isa() const { return std::get<0>(GetParam()); }
  const ExpertFormat& format() const { return std::get<1>(GetParam()); }

  std::unique_ptr<Backend> backend_;
};

// Expert e is the weight that would be packed of it alone, a multiple of 256 bytes from the start,
// with zeros behind it: packed files of the same model are the same.
TEST_P(ExpertsPack, EachLiesAsItWouldAlone) {
  Random random(81);
  SCOPED_TRACE(random.trace());
  const ExpertNumbers numbers = ExpertNumbers::random(random, kOdd);
  const PackedExperts all = pack_experts(*backend_, numbers, format());
  for (const bool down : {false, true}) {
    const PackedWeight& weight = down ? *all.down : *all.gate_up;
    EXPECT_EQ(weight.experts(), kOdd.experts);
    EXPECT_EQ(weight.n(), down ? kOdd.hidden : 2 * kOdd.inner);
    EXPECT_EQ(weight.k(), down ? kOdd.inner : kOdd.hidden);
    const std::vector<std::byte> packed = bytes_of(weight);
    ASSERT_EQ(packed.size() % static_cast<size_t>(kOdd.experts), 0u);
    const size_t stride = packed.size() / static_cast<size_t>(kOdd.experts);
    if (isa() != "reference") {
      EXPECT_EQ(stride % 256, 0u);
    }
    for (int64_t e = 0; e < kOdd.experts; ++e) {
      const PackedExperts single = pack_expert(*backend_, numbers, format(), e);
      std::vector<std::byte> alone = bytes_of(down ? *single.down : *single.gate_up);
      ASSERT_LE(alone.size(), stride);
      ASSERT_LT(stride - alone.size(), 256u);
      alone.resize(stride);
      const std::byte* const at = packed.data() + static_cast<size_t>(e) * stride;
      EXPECT_EQ(0, std::memcmp(at, alone.data(), stride)) << "expert " << e << ", down " << down;
    }
  }
}

TEST_P(ExpertsPack, RestoredFromItsBytes) {
  Random random(82);
  SCOPED_TRACE(random.trace());
  const ExpertNumbers numbers = ExpertNumbers::random(random, kOdd);
  const PackedExperts packed = pack_experts(*backend_, numbers, format());
  const auto restore = [&](const PackedWeight& weight, const WeightSpec& spec) {
    const WeightShape shape = shape_of(weight, spec);
    EXPECT_EQ(backend_->packed_bytes(shape), weight.bytes());
    Backend::Buffer copy = backend_->allocate(weight.bytes());
    std::memcpy(copy.data, weight.data(), weight.bytes());
    return backend_->restore_weight(shape, std::move(copy));
  };
  const PackedExperts restored{
      restore(*packed.gate_up, numbers.gate_up_spec(format(), 0, kOdd.experts)),
      restore(*packed.down, numbers.down_spec(format(), 0, kOdd.experts))};
  EXPECT_EQ(restored.down->experts(), kOdd.experts);
  const Routes routes = Routes::random(random, 9, 2, kOdd.experts);
  const std::vector<float> x = random.uniforms(9 * kOdd.hidden);
  EXPECT_EQ(run_experts(*backend_, restored, routes, x), run_experts(*backend_, packed, routes, x));
}

// [H, 2I] and [I, H], as Paddle and fused files have them: the same bits.
TEST_P(ExpertsPack, TransposedParts) {
  Random random(83);
  SCOPED_TRACE(random.trace());
  const ExpertNumbers numbers = ExpertNumbers::random(random, kOdd);
  const int64_t h = kOdd.hidden, i = kOdd.inner;
  std::vector<StoredMatrix> kept;
  kept.reserve(static_cast<size_t>(2 * kOdd.experts));
  WeightSpec gate_up = numbers.gate_up_spec(format(), 0, kOdd.experts);
  WeightSpec down = numbers.down_spec(format(), 0, kOdd.experts);
  gate_up.parts.clear();
  down.parts.clear();
  const auto slice = [](const std::vector<float>& all, int64_t expert, int64_t size) {
    return std::vector<float>(all.begin() + expert * size, all.begin() + (expert + 1) * size);
  };
  for (int64_t e = 0; e < kOdd.experts; ++e) {
    kept.emplace_back(slice(numbers.gate_up, e, 2 * i * h), 2 * i, h, DType::kF32, true, 3);
    gate_up.parts.push_back(kept.back().part());
    kept.emplace_back(slice(numbers.down, e, h * i), h, i, DType::kF32, true);
    down.parts.push_back(kept.back().part());
  }
  const PackedExperts want = pack_experts(*backend_, numbers, format());
  EXPECT_EQ(bytes_of(*backend_->pack_weight(gate_up)), bytes_of(*want.gate_up));
  EXPECT_EQ(bytes_of(*backend_->pack_weight(down)), bytes_of(*want.down));
}

TEST_P(ExpertsPack, ABadNumberIsNamed) {
  Random random(84);
  ExpertNumbers numbers = ExpertNumbers::random(random, kOdd);
  WeightSpec spec = numbers.down_spec(format(), 0, kOdd.experts);
  for (size_t e = 0; e < spec.parts.size(); ++e) spec.parts[e].name = e == 3 ? "third" : "another";
  numbers.down[size_t(3 * kOdd.hidden * kOdd.inner + 40)] = std::nanf("");
  try {
    backend_->pack_weight(spec);
    FAIL() << "a NaN was packed";
  } catch (const TensorError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptFile);
    EXPECT_NE(std::string(error.what()).find("third"), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, ExpertsPack,
                         testing::Combine(testing::Values("baseline", "avx2", "avx512_bf16",
                                                          "reference"),
                                          testing::ValuesIn(kExpertFormats)),
                         expert_param_name);

class ExpertsRefused : public testing::TestWithParam<std::string> {};

TEST_P(ExpertsRefused, PartsThatDiffer) {
  const auto backend = make_backend(GetParam());
  Random random(85);
  const ExpertNumbers numbers = ExpertNumbers::random(random, {4, 16, 8});
  const WeightSpec good = numbers.down_spec(kExpertFormats[0], 0, 4);
  EXPECT_NO_THROW(backend->pack_weight(good));
  WeightSpec missing = good, uneven = good, shared = good, table = good, none = good;
  missing.parts.pop_back();
  uneven.parts[0].n += 1;
  uneven.parts[1].n -= 1;
  shared.experts = 8;  // half a part each
  table.use = WeightUse::kTiedEmbedding;
  none.experts = 0;
  for (const WeightSpec& bad : {missing, uneven, shared, table, none}) {
    EXPECT_THROW(backend->pack_weight(bad), InternalError);
  }
  WeightShape huge{int64_t{1} << 40, int64_t{1} << 12, DType::kF32, WeightUse::kLinear, {}, 1024};
  EXPECT_THROW(backend->packed_bytes(huge), Error);
  huge = {8, 8, DType::kF32, WeightUse::kLinear, {}, kMaxExperts + 1};
  EXPECT_THROW(backend->packed_bytes(huge), InternalError);
}

/// Gate and up of two experts, and what of an order of inputs isn't one weight.
TEST_P(ExpertsRefused, OrdersThatAreNone) {
  const auto backend = make_backend(GetParam());
  Random random(86);
  const QuantFormat format{.bits = 4, .group_size = 32, .f16_scales = true, .reordered = true};
  const RandomCodes one(random, format, {16, 64}, shuffled(random, 64));
  const RandomCodes other(random, format, {16, 64}, shuffled(random, 64));
  WeightSpec spec{{one.part(), one.part(), other.part(), other.part()},
                  DType::kBF16,
                  WeightUse::kGateUp,
                  format};
  spec.experts = 2;
  const auto weight = backend->pack_weight(spec);
  const WeightShape shape = shape_of(*weight, spec);
  std::vector<std::byte> damaged = bytes_of(*weight);
  const int32_t wrong = 64;
  std::memcpy(damaged.data() + damaged.size() - 4, &wrong, 4);
  const Backend::Buffer buffer = backend->allocate(damaged.size());
  backend->upload(damaged.data(), buffer.data, damaged.size());
  EXPECT_THROW(backend->restore_weight(shape, buffer), Error);
  WeightSpec mixed = spec;
  std::swap(mixed.parts[1], mixed.parts[2]);
  EXPECT_THROW(backend->pack_weight(mixed), InternalError);
  WeightSpec down{{one.part(), other.part()}, DType::kBF16, WeightUse::kLinear, format};
  down.experts = 2;
  EXPECT_THROW(backend->pack_weight(down), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Isas, ExpertsRefused, testing::Values("baseline", "reference"));

}  // namespace
}  // namespace headrace::parity
