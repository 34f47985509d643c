// The CUDA backend's quantized weights against the reference, through Backend's own interface.

#include <cmath>
#include <cstring>
#include <numeric>

#include "backend/host/weight_source.h"
#include "backend/reference/reference_backend.h"
#include "cpp/model/expect_error.h"
#include "cuda/host/support/gpu_under_test.h"
#include "cuda/host/support/uploaded.h"
#include "parity/quant/random_codes.h"

namespace headrace {
namespace {

using parity::Random;
using parity::RandomCodes;

constexpr int64_t kInputs = 205, kFirst = 71, kSecond = 59, kOutputs = kFirst + kSecond;

std::vector<float> rounded(std::vector<float> values, DType dtype) {
  for (float& x : values) x = round_to(dtype, x);
  return values;
}

/// x [rows, kInputs] of `dtype` times the weight, in float32.
std::vector<float> multiply(Backend& backend, DType dtype, const PackedWeight& weight,
                            const std::vector<float>& x) {
  const auto rows = static_cast<int64_t>(x.size()) / weight.k();
  const Uploaded in(backend, dtype, rows, weight.k(), x);
  const Uploaded out(backend, DType::kF32, rows, weight.n());
  backend.linear(in.view(), weight, {}, out.view());
  return out.read();
}

using Param = std::tuple<DType, int32_t, int32_t, int>;

class CudaQuantCodes : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    const auto& [dtype, bits, size, kind] = GetParam();
    dtype_ = dtype;
    format_ = {.bits = bits,
               .group_size = size,
               .zero_points = kind != 0,
               .f16_scales = kind != 1,
               .reordered = kind == 2,
               .activations = Activations::kWhole};
    if (format_.reordered) {
      order_.resize(size_t(kInputs));
      std::iota(order_.begin(), order_.end(), 0);
      for (int64_t i = kInputs - 1; i > 0; --i) {
        std::swap(order_[size_t(i)], order_[size_t(random_.integer(0, i))]);
      }
    }
    first_ =
        std::make_unique<RandomCodes>(random_, format_, parity::Shape{kFirst, kInputs}, order_);
    second_ =
        std::make_unique<RandomCodes>(random_, format_, parity::Shape{kSecond, kInputs}, order_);
    gpu_ = make_gpu_under_test(dtype_);
  }

  std::unique_ptr<PackedWeight> pack(Backend& backend, WeightUse use) {
    return backend.pack_weight({{first_->part(), second_->part()}, dtype_, use, format_});
  }
  float weight(int64_t n, int64_t k) const {
    return n < kFirst ? first_->weight(n, k) : second_->weight(n - kFirst, k);
  }

  DType dtype_{};
  QuantFormat format_;
  Random random_{51};
  std::vector<int32_t> order_;
  std::unique_ptr<RandomCodes> first_, second_;
  std::shared_ptr<Backend> gpu_;
};

TEST_P(CudaQuantCodes, EveryWeightIsWhereItBelongs) {
  std::vector<float> unit(size_t(kInputs * kInputs));
  for (int64_t i = 0; i < kInputs; ++i) unit[size_t(i * kInputs + i)] = 1.0f;
  for (const WeightUse use : {WeightUse::kLinear, WeightUse::kGateUp}) {
    const auto out = multiply(*gpu_, dtype_, *pack(*gpu_, use), unit);
    for (int64_t k = 0; k < kInputs; ++k) {
      for (int64_t n = 0; n < kOutputs; ++n) {
        ASSERT_EQ(out[size_t(k * kOutputs + n)], weight(n, k)) << n << ", " << k;
      }
    }
  }
}

// Products of 16-bit numbers with codes are exact; k sums round once each, in whatever order, and
// so do a fused multiply-add for each group and a sum for each of four slices.
TEST_P(CudaQuantCodes, MatchesTheReference) {
  SCOPED_TRACE(random_.trace());
  const auto reference = make_reference_backend(0, Activations::kWhole);
  const auto on_gpu = pack(*gpu_, WeightUse::kLinear),
             wanted = pack(*reference, WeightUse::kLinear);
  for (const int64_t rows : {1, 7, 40}) {
    const auto x = rounded(random_.uniforms(rows * kInputs), dtype_);
    const auto got = multiply(*gpu_, dtype_, *on_gpu, x);
    const auto want = multiply(*reference, DType::kF32, *wanted, x);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t n = 0; n < kOutputs; ++n) {
        double size = 0.0;
        for (int64_t k = 0; k < kInputs; ++k) {
          size += std::abs(double{x[size_t(i * kInputs + k)]} * double{weight(n, k)});
        }
        const size_t at = size_t(i * kOutputs + n);
        const double groups = std::ceil(double(kInputs) / format_.group_size);
        ASSERT_NEAR(got[at], want[at], (double(kInputs) + groups + 6) * 0x1p-24 * size) << at;
      }
    }
  }
}

/// What doesn't depend on the dtype of activations.
class CudaQuantPacking : public CudaQuantCodes {};

TEST_P(CudaQuantPacking, Restored) {
  const auto weight = pack(*gpu_, WeightUse::kLinear);
  const WeightShape shape{weight->n(), weight->k(), dtype_, WeightUse::kLinear, format_};
  ASSERT_EQ(weight->bytes(), gpu_->packed_bytes(shape));
  EXPECT_NE(gpu_->weight_layout(dtype_, format_), gpu_->weight_layout(dtype_));
  std::vector<std::byte> bytes(weight->bytes());
  gpu_->read_back(weight->data(), bytes.data(), bytes.size());
  const auto restore = [&] {
    Backend::Buffer buffer = gpu_->allocate(bytes.size());
    gpu_->upload(bytes.data(), buffer.data, bytes.size());
    return gpu_->restore_weight(shape, std::move(buffer));
  };
  const auto x = rounded(random_.uniforms(2 * kInputs), dtype_);
  EXPECT_EQ(multiply(*gpu_, dtype_, *restore(), x), multiply(*gpu_, dtype_, *weight, x));
  if (!format_.reordered) return;
  for (const int32_t wrong : {-1, static_cast<int32_t>(kInputs)}) {
    std::memcpy(bytes.data() + bytes.size() - 4, &wrong, 4);
    expect_error(ErrorCode::kCorruptFile, {"order of inputs"}, restore);
  }
}

TEST_P(CudaQuantPacking, AScaleThatIsNotFiniteIsRefused) {
  const auto groups = size_t((kInputs + format_.group_size - 1) / format_.group_size);
  for (const uint16_t more : {0, 1}) {
    second_->set_scale(groups * size_t(kSecond) - 1,
                       static_cast<uint16_t>((format_.f16_scales ? 0x7c00 : 0x7f80) + more));
    EXPECT_THROW(pack(*gpu_, WeightUse::kLinear), TensorError);
    EXPECT_THROW(pack(*gpu_, WeightUse::kGateUp), TensorError);
  }
}

std::string param_name(const testing::TestParamInfo<Param>& info) {
  constexpr const char* kKinds[] = {"symmetric", "asymmetric", "reordered"};
  return str_cat(dtype_name(std::get<0>(info.param)), "_int", std::get<1>(info.param), "_g",
                 std::get<2>(info.param), "_", kKinds[std::get<3>(info.param)]);
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaQuantCodes,
                         testing::Combine(testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                                          testing::Values(8, 4), testing::Values(32, 64, 128),
                                          testing::Range(0, 3)),
                         param_name);
INSTANTIATE_TEST_SUITE_P(Formats, CudaQuantPacking,
                         testing::Combine(testing::Values(DType::kBF16), testing::Values(8, 4),
                                          testing::Values(32, 128), testing::Range(0, 3)),
                         param_name);

// Rounded at load, from stacked parts of any dtype: the weights of the reference, bit for bit,
// which products with a row of the unit matrix show.
TEST(CudaQuantRounding, GivesTheReferencesWeights) {
  Random random(52);
  SCOPED_TRACE(random.trace());
  const auto gpu = make_gpu_under_test(DType::kF32);
  const auto reference = make_reference_backend(0, Activations::kWhole);
  constexpr int64_t kRows = 70, kWidth = 141;
  std::vector<float> unit(size_t(kWidth * kWidth));
  for (int64_t i = 0; i < kWidth; ++i) unit[size_t(i * kWidth + i)] = 1.0f;
  for (const int32_t bits : {4, 8}) {
    for (const int32_t size : {32, 64, 128}) {
      SCOPED_TRACE(str_cat("int", bits, " by ", size));
      const QuantFormat format{
          .bits = bits, .group_size = size, .activations = Activations::kWhole};
      const parity::StoredMatrix upper(random.uniforms(kRows * kWidth), kRows, kWidth,
                                       DType::kBF16);
      const parity::StoredMatrix lower(random.uniforms(kRows * kWidth), kRows, kWidth, DType::kF32,
                                       true, 3);
      const auto pack = [&](Backend& backend, WeightUse use) {
        return backend.pack_weight({{upper.part(), lower.part()}, DType::kF32, use, format});
      };
      for (const WeightUse use : {WeightUse::kGateUp, WeightUse::kTiedEmbedding}) {
        EXPECT_EQ(multiply(*gpu, DType::kF32, *pack(*gpu, use), unit),
                  multiply(*reference, DType::kF32, *pack(*reference, use), unit));
      }
      const std::vector<int32_t> ids = {139, 0, 63, 64, 15, 16}, positions(ids.size(), 0);
      const std::vector<int32_t> blocks = {0};
      const SeqSlice seq{0, static_cast<int32_t>(ids.size()), 0, blocks};
      std::vector<std::vector<float>> rows;
      for (Backend* const backend : {gpu.get(), reference.get()}) {
        const auto table = pack(*backend, WeightUse::kTiedEmbedding);
        const auto cache =
            backend->make_kv_cache(CacheLayout::uniform(1, kv_rows(1, 16, DType::kF32), 16), 1);
        StepBatch batch{ids, positions, positions, {&seq, 1}, {}};
        batch.cache = cache.get();
        backend->begin_step(batch);
        const Uploaded out(*backend, DType::kF32, static_cast<int64_t>(ids.size()), kWidth);
        backend->embed(*table, out.view());
        rows.push_back(out.read());
      }
      EXPECT_EQ(rows[0], rows[1]);
    }
  }
}

TEST(CudaQuantRefusals, ByName) {
  const auto gpu = make_gpu_under_test(DType::kBF16);
  const QuantFormat whole{.bits = 4, .group_size = 32, .activations = Activations::kWhole};
  QuantFormat rounded_activations = whole;
  rounded_activations.activations = Activations::kInt8Groups;
  const WeightShape shape{64, 64, DType::kBF16, WeightUse::kLinear, rounded_activations};
  expect_error(ErrorCode::kUnsupported, {"W4A8", "use W4A16"}, [&] { gpu->packed_bytes(shape); });
  expect_error(ErrorCode::kUnsupported, {"W4A8", "use W4A16"},
               [&] { gpu->weight_layout(DType::kBF16, rounded_activations); });
  WeightShape many{64, 64, DType::kBF16, WeightUse::kLinear, whole, 8};
  const WeightShape one{64, 64, DType::kBF16, WeightUse::kLinear, whole};
  EXPECT_EQ(gpu->packed_bytes(many), 8 * gpu->packed_bytes(one));
  many.use = WeightUse::kGateUp;
  many.quant.reordered = true;
  EXPECT_EQ(gpu->packed_bytes(many), 8 * (gpu->packed_bytes(one) + 64 * sizeof(int32_t)));
  for (const int64_t side : {int64_t{1} << 40, int64_t{1} << 62}) {
    expect_error(ErrorCode::kLimitExceeded, {"more than any memory holds"},
                 [&] { gpu->packed_bytes({side, side, DType::kBF16, WeightUse::kLinear, whole}); });
  }
  EXPECT_EQ(gpu->device_info().quant_activations, Activations::kWhole);
}

}  // namespace
}  // namespace headrace
