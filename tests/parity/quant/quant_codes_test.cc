// Weights that come as codes: zero points, float16 scales, an order of inputs, several parts.

#include <cstring>

#include "headrace/status.h"
#include "parity/quant/random_codes.h"

namespace headrace::parity {
namespace {

constexpr int64_t kInputs = 205, kFirst = 71, kSecond = 59;

using Param = std::tuple<std::string, int32_t, int32_t, int>;

class QuantCodes : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    const auto& [isa, bits, size, kind] = GetParam();
    if (isa != "reference") HEADRACE_REQUIRE_ISA(isa);
    format_ = {.bits = bits,
               .group_size = size,
               .zero_points = kind != 0,
               .f16_scales = kind != 1,
               .reordered = kind == 2};
    random_ = std::make_unique<Random>(41);
    order_ = format_.reordered ? shuffled(*random_, kInputs) : std::vector<int32_t>{};
    first_ = std::make_unique<RandomCodes>(*random_, format_, Shape{kFirst, kInputs}, order_);
    second_ = std::make_unique<RandomCodes>(*random_, format_, Shape{kSecond, kInputs}, order_);
    backend_ = make_cpu_backend({.num_threads = 2, .isa = isa});
  }

  std::unique_ptr<PackedWeight> pack(WeightUse use) {
    return backend_->pack_weight({{first_->part(), second_->part()}, DType::kBF16, use, format_});
  }
  std::vector<float> multiply_all(const PackedWeight& weight, const std::vector<float>& x) {
    const auto rows = static_cast<int64_t>(x.size()) / kInputs;
    const Matrix input(*backend_, rows, kInputs, x);
    const Matrix out(*backend_, rows, kFirst + kSecond);
    backend_->linear(input.view(), weight, {}, out.view());
    return out.values();
  }

  QuantFormat format_;
  std::unique_ptr<Random> random_;
  std::vector<int32_t> order_;
  std::unique_ptr<RandomCodes> first_, second_;
  std::unique_ptr<Backend> backend_;
};

// An input of 127 with nothing beside it is rounded to 127 steps of 1.
TEST_P(QuantCodes, EveryWeightIsWhereItBelongs) {
  std::vector<float> unit(size_t(kInputs * kInputs));
  for (int64_t i = 0; i < kInputs; ++i) unit[size_t(i * kInputs + i)] = 127.0f;
  for (const WeightUse use : {WeightUse::kLinear, WeightUse::kGateUp}) {
    const auto out = multiply_all(*pack(use), unit);
    for (int64_t k = 0; k < kInputs; ++k) {
      for (int64_t n = 0; n < kFirst + kSecond; ++n) {
        const float want = n < kFirst ? first_->weight(n, k) : second_->weight(n - kFirst, k);
        ASSERT_EQ(out[size_t(k * (kFirst + kSecond) + n)], 127.0f * want) << n << ", " << k;
      }
    }
  }
}

TEST_P(QuantCodes, RowsAloneAndTogether) {
  const auto weight = pack(WeightUse::kLinear);
  const int64_t rows = 13, outputs = kFirst + kSecond;
  const std::vector<float> x = random_->uniforms(rows * kInputs);
  const auto together = multiply_all(*weight, x);
  for (int64_t row = 0; row < rows; ++row) {
    const auto alone =
        multiply_all(*weight, {x.begin() + row * kInputs, x.begin() + (row + 1) * kInputs});
    EXPECT_EQ(alone, std::vector<float>(together.begin() + row * outputs,
                                        together.begin() + (row + 1) * outputs));
  }
}

TEST_P(QuantCodes, Restored) {
  const auto weight = pack(WeightUse::kLinear);
  const WeightShape shape{weight->n(), weight->k(), DType::kBF16, WeightUse::kLinear, format_};
  ASSERT_EQ(weight->bytes(), backend_->packed_bytes(shape));
  const auto copy = [&] {
    Backend::Buffer buffer = backend_->allocate(weight->bytes());
    std::memcpy(buffer.data, weight->data(), weight->bytes());
    return buffer;
  };
  const std::vector<float> x = random_->uniforms(2 * kInputs);
  EXPECT_EQ(multiply_all(*backend_->restore_weight(shape, copy()), x), multiply_all(*weight, x));
  if (!format_.reordered) return;
  for (const int32_t wrong : {-1, static_cast<int32_t>(kInputs)}) {
    Backend::Buffer damaged = copy();
    std::memcpy(static_cast<std::byte*>(damaged.data) + damaged.bytes - 4, &wrong, 4);
    EXPECT_THROW(backend_->restore_weight(shape, damaged), Error);
  }
}

TEST_P(QuantCodes, AScaleThatIsNotFiniteIsRefused) {
  const size_t groups = size_t((kInputs + format_.group_size - 1) / format_.group_size);
  for (const bool is_nan : {true, false}) {
    second_ = std::make_unique<RandomCodes>(*random_, format_, Shape{kSecond, kInputs}, order_);
    const uint16_t infinity = format_.f16_scales ? 0x7c00 : 0x7f80;
    second_->set_scale(groups * size_t(kSecond) - 1, uint16_t(infinity + (is_nan ? 1 : 0)));
    EXPECT_THROW(pack(WeightUse::kLinear), TensorError);
    EXPECT_THROW(pack(WeightUse::kGateUp), TensorError);
  }
}

/// W4A16 and W8A16: what the reference computes, and what the CPU's kernels don't.
class WholeActivations : public testing::TestWithParam<int32_t> {
 protected:
  QuantFormat format_{.bits = GetParam(),
                      .group_size = 32,
                      .zero_points = true,
                      .activations = Activations::kWhole};
};

TEST_P(WholeActivations, ReferenceMultipliesThemUnrounded) {
  Random random(43);
  SCOPED_TRACE(random.trace());
  const int64_t rows = 3;
  const std::vector<float> x = random.uniforms(rows * kInputs);
  const auto reference = make_cpu_backend({.isa = "reference"});
  const auto multiply = [&](const RandomCodes& codes, const QuantFormat& format) {
    const auto weight =
        reference->pack_weight({{codes.part()}, DType::kBF16, WeightUse::kLinear, format});
    const Matrix input(*reference, rows, kInputs, x), out(*reference, rows, kFirst);
    reference->linear(input.view(), *weight, {}, out.view());
    return out.values();
  };
  const RandomCodes codes(random, format_, Shape{kFirst, kInputs}, {});
  const std::vector<float> whole = multiply(codes, format_);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t n = 0; n < kFirst; ++n) {
      double sum = 0.0;
      for (int64_t k = 0; k < kInputs; ++k) {
        sum += double{x[size_t(row * kInputs + k)]} * double{codes.weight(n, k)};
      }
      EXPECT_EQ(whole[size_t(row * kFirst + n)], static_cast<float>(sum)) << row << ", " << n;
    }
  }
  QuantFormat rounded = format_;
  rounded.activations = Activations::kInt8Groups;
  EXPECT_NE(rounded, format_);
  Random again(43);
  again.uniforms(rows * kInputs);
  EXPECT_NE(multiply(RandomCodes(again, rounded, Shape{kFirst, kInputs}, {}), rounded), whole);
  EXPECT_NE(reference->weight_layout(DType::kBF16, format_),
            reference->weight_layout(DType::kBF16, rounded));
}

TEST_P(WholeActivations, CpuRefusesThemByName) {
  Random random(44);
  const RandomCodes codes(random, format_, Shape{kFirst, kInputs}, {});
  const auto backend = make_cpu_backend({.num_threads = 1, .isa = "baseline"});
  const WeightShape shape{kFirst, kInputs, DType::kBF16, WeightUse::kLinear, format_};
  const auto refused = [&](const auto& ask) {
    try {
      ask();
      FAIL() << "nothing was thrown";
    } catch (const Error& e) {
      const std::string message = e.what();
      EXPECT_EQ(e.code(), ErrorCode::kUnsupported) << message;
      EXPECT_NE(message.find(str_cat("W", format_.bits, "A16")), message.npos) << message;
      EXPECT_NE(message.find(str_cat("use W", format_.bits, "A8 ")), message.npos) << message;
    }
  };
  refused(
      [&] { backend->pack_weight({{codes.part()}, DType::kBF16, WeightUse::kLinear, format_}); });
  refused([&] { backend->packed_bytes(shape); });
  refused([&] { backend->restore_weight(shape, {}); });
  refused([&] { backend->weight_layout(DType::kBF16, format_); });
}

INSTANTIATE_TEST_SUITE_P(Bits, WholeActivations, testing::Values(4, 8));

std::string param_name(const testing::TestParamInfo<Param>& info) {
  constexpr const char* kKinds[] = {"symmetric", "asymmetric", "reordered"};
  return str_cat(std::get<0>(info.param), "_int", std::get<1>(info.param), "_g",
                 std::get<2>(info.param), "_", kKinds[std::get<3>(info.param)]);
}

INSTANTIATE_TEST_SUITE_P(
    Isas, QuantCodes,
    testing::Combine(testing::Values("reference", "baseline", "avx2", "avx512", "avx512_bf16"),
                     testing::Values(8, 4), testing::Values(32, 64, 128), testing::Range(0, 3)),
    param_name);

}  // namespace
}  // namespace headrace::parity
