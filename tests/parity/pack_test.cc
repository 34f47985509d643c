// pack_weight and pack_vector: what a checkpoint may hold, through linear and embed.

#include <cstdlib>
#include <cstring>

#include "headrace/status.h"
#include "parity/parity.h"

namespace headrace::parity {
namespace {

constexpr DType kSources[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};

class PackParity : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { HEADRACE_REQUIRE_ISA(GetParam()); }
};

std::string isa_name(const testing::TestParamInfo<std::string>& info) { return info.param; }

/// The weight as a matrix: its product with the unit vectors, exact in every arithmetic.
std::vector<float> unpack(Backend& backend, const PackedWeight& weight) {
  const int64_t n = weight.n(), k = weight.k();
  std::vector<float> unit(size_t(k * k));
  for (int64_t i = 0; i < k; ++i) unit[size_t(i * k + i)] = 1.0f;
  const Matrix x(backend, k, k, unit);
  const Matrix out(backend, k, n);
  backend.linear(x.view(), weight, {}, out.view());
  const auto transposed = out.values();
  std::vector<float> values(size_t(n * k));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < k; ++j) values[size_t(i * k + j)] = transposed[size_t(j * n + i)];
  }
  return values;
}

std::vector<float> embed_all(Backend& backend, const PackedWeight& table) {
  std::vector<int32_t> ids(size_t(table.n()));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = int32_t(ids.size() - 1 - i);
  const std::vector<int32_t> positions(ids.size(), 0);
  const SeqSlice seq{0, int32_t(ids.size()), 0, {}};
  backend.begin_step({ids, positions, positions, {&seq, 1}, {}});
  const Matrix out(backend, table.n(), table.k());
  backend.embed(table, out.view());
  auto values = out.values();
  std::vector<float> ordered;
  for (int64_t i = table.n() - 1; i >= 0; --i) {
    ordered.insert(ordered.end(), values.begin() + i * table.k(),
                   values.begin() + (i + 1) * table.k());
  }
  return ordered;
}

TEST_P(PackParity, EverySourceDtypeOrientationAndStride) {
  const auto backend = make_backend(GetParam());
  Random random(11);
  SCOPED_TRACE(random.trace());
  const int64_t n = 71, k = 263;
  // Whole numbers below 2^8 are exact in every dtype: what comes out is what went in.
  const std::vector<float> values = random.integers(n * k, -255, 255);
  for (const DType source : kSources) {
    for (const DType storage : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const bool transposed : {false, true}) {
        for (const int64_t gap : {0, 3}) {
          const StoredMatrix stored(values, n, k, source, transposed, gap);
          for (const WeightUse use : {WeightUse::kLinear, WeightUse::kTiedEmbedding}) {
            const auto weight = backend->pack_weight({{stored.part()}, storage, use});
            ASSERT_EQ(unpack(*backend, *weight), values)
                << dtype_name(source) << " as " << dtype_name(storage) << " transposed "
                << transposed << " gap " << gap;
          }
          for (const WeightUse use : {WeightUse::kEmbedding, WeightUse::kTiedEmbedding}) {
            const auto table = backend->pack_weight({{stored.part()}, storage, use});
            ASSERT_EQ(embed_all(*backend, *table), values)
                << dtype_name(source) << " as " << dtype_name(storage) << " transposed "
                << transposed << " gap " << gap;
          }
        }
      }
    }
  }
}

TEST_P(PackParity, StacksPartsInOrder) {
  const auto backend = make_backend(GetParam());
  Random random(12);
  SCOPED_TRACE(random.trace());
  const int64_t k = 37;
  const auto q = random.integers(70 * k, -99, 99);
  const auto key = random.integers(3 * k, -99, 99);
  const auto value = random.integers(130 * k, -99, 99);
  const StoredMatrix stored_q(q, 70, k, DType::kBF16);
  const StoredMatrix stored_k(key, 3, k, DType::kF32, true, 2);
  const StoredMatrix stored_v(value, 130, k, DType::kF16, true);
  const auto weight = backend->pack_weight(
      {{stored_q.part(), stored_k.part(), stored_v.part()}, DType::kBF16, WeightUse::kLinear});
  EXPECT_EQ(weight->n(), 203);
  EXPECT_EQ(weight->k(), k);
  std::vector<float> want = q;
  want.insert(want.end(), key.begin(), key.end());
  want.insert(want.end(), value.begin(), value.end());
  EXPECT_EQ(unpack(*backend, *weight), want);
}

TEST_P(PackParity, RoundsToStorage) {
  const auto backend = make_backend(GetParam());
  Random random(13);
  SCOPED_TRACE(random.trace());
  const int64_t n = 5, k = 40;
  const auto values = random.uniforms(n * k);
  const StoredMatrix stored(values, n, k, DType::kF32);
  for (const DType storage : {DType::kBF16, DType::kF16}) {
    const auto table = backend->pack_weight({{stored.part()}, storage, WeightUse::kEmbedding});
    const auto got = embed_all(*backend, *table);
    for (size_t i = 0; i < values.size(); ++i) {
      const float want = storage == DType::kBF16 ? bf16_to_f32(f32_to_bf16(values[i]))
                                                 : f16_to_f32(f32_to_f16(values[i]));
      ASSERT_EQ(got[i], want);
    }
  }
}

// Every bit pattern of the 16-bit dtypes survives the kernels' widening (NaNs as NaNs).
TEST_P(PackParity, WidensEveryHalf) {
  const auto backend = make_backend(GetParam());
  std::vector<uint16_t> bits(1u << 16);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = uint16_t(i);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const WeightPart part{bits.data(), dtype, 256, 256, false, 256};
    const auto table = backend->pack_weight({{part}, dtype, WeightUse::kEmbedding});
    const auto got = embed_all(*backend, *table);
    for (size_t i = 0; i < bits.size(); ++i) {
      const float want = dtype == DType::kBF16 ? bf16_to_f32(bits[i]) : f16_to_f32(bits[i]);
      if (want != want) {
        ASSERT_NE(got[i], got[i]) << i;
      } else {
        ASSERT_EQ(got[i], want) << i;
      }
    }
  }
}

TEST_P(PackParity, VectorsFromAnySource) {
  const auto backend = make_backend(GetParam());
  Random random(14);
  SCOPED_TRACE(random.trace());
  const auto values = random.integers(19, -99, 99);
  for (const DType source : kSources) {
    const StoredMatrix stored(values, 19, 1, source);
    Backend::Buffer owner;
    const TensorView view = backend->pack_vector(stored.part(), &owner);
    ASSERT_EQ(view.shape, (Shape{19}));
    std::vector<float> got(19);
    backend->read_back(view.data, got.data(), got.size() * sizeof(float));
    EXPECT_EQ(got, values);
  }
}

// What was packed works from a copy of its bytes, in memory that the backend did not allocate.
TEST_P(PackParity, RestoresWhatWasPacked) {
  const auto backend = make_backend(GetParam());
  Random random(15);
  SCOPED_TRACE(random.trace());
  const int64_t n = 142, k = 77;
  const auto values = random.integers(n * k, -255, 255);
  const StoredMatrix stored(values, n, k, DType::kF32);
  for (const DType storage : {DType::kF32, DType::kBF16, DType::kF16}) {
    EXPECT_FALSE(backend->weight_layout(storage).empty());
    for (const WeightUse use : {WeightUse::kLinear, WeightUse::kGateUp, WeightUse::kEmbedding,
                                WeightUse::kTiedEmbedding}) {
      const WeightShape shape{n, k, storage, use};
      auto packed = backend->pack_weight({{stored.part()}, storage, use});
      ASSERT_EQ(packed->bytes(), backend->packed_bytes(shape));
      const auto copy = std::shared_ptr<void>(
          std::aligned_alloc(256, (packed->bytes() + 255) / 256 * 256), std::free);
      backend->read_back(packed->data(), copy.get(), packed->bytes());
      const size_t bytes = packed->bytes();
      packed.reset();
      const size_t held = backend->bytes_in_use();
      const auto restored = backend->restore_weight(shape, backend->adopt(copy.get(), bytes, copy));
      EXPECT_EQ(backend->bytes_in_use(), held);
      EXPECT_EQ(restored->data(), copy.get());
      EXPECT_GT(copy.use_count(), 1);
      if (use == WeightUse::kEmbedding || use == WeightUse::kTiedEmbedding) {
        ASSERT_EQ(embed_all(*backend, *restored), values) << dtype_name(storage);
      }
      if (use == WeightUse::kLinear || use == WeightUse::kTiedEmbedding) {
        ASSERT_EQ(unpack(*backend, *restored), values) << dtype_name(storage);
      }
      if (use == WeightUse::kGateUp) {
        const auto again = backend->pack_weight({{stored.part()}, storage, use});
        EXPECT_EQ(std::memcmp(again->data(), copy.get(), bytes), 0) << dtype_name(storage);
      }
    }
  }
}

TEST_P(PackParity, RefusesToRestoreOtherSizes) {
  const auto backend = make_backend(GetParam());
  const WeightShape shape{32, 32, DType::kF32, WeightUse::kLinear};
  auto buffer = backend->allocate(backend->packed_bytes(shape) + 256);
  EXPECT_THROW(backend->restore_weight(shape, buffer), InternalError);
  const auto* odd = static_cast<const char*>(buffer.data) + 8;
  EXPECT_THROW(backend->adopt(odd, 64, nullptr), InternalError);
  for (const WeightShape& huge :
       {WeightShape{int64_t{1} << 40, int64_t{1} << 40}, WeightShape{int64_t{1} << 62, 1}}) {
    try {
      backend->packed_bytes(huge);
      FAIL() << huge.n;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kLimitExceeded);
    }
  }
}

TEST_P(PackParity, CountsAndBoundsMemory) {
  const auto backend =
      make_cpu_backend({.num_threads = 1, .isa = GetParam(), .memory_limit = size_t{8} << 20});
  EXPECT_EQ(backend->bytes_in_use(), 0u);
  const std::vector<float> values(512 * 1024, 1.0f);
  const StoredMatrix stored(values, 512, 1024, DType::kBF16);
  const WeightSpec spec{{stored.part()}, DType::kF32, WeightUse::kLinear};
  auto weight = backend->pack_weight(spec);
  EXPECT_GE(weight->bytes(), values.size() * sizeof(float));
  EXPECT_GE(backend->bytes_in_use(), weight->bytes());
  auto second = backend->allocate(4096);
  const size_t held = backend->bytes_in_use();
  try {
    const auto third = backend->allocate(size_t{7} << 20);
    FAIL() << "8 MiB hold more than 8 MiB";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kOutOfMemory);
    const std::string message = e.what();
    EXPECT_NE(message.find(std::to_string(size_t{8} << 20)), std::string::npos) << message;
    EXPECT_NE(message.find(std::to_string(held)), std::string::npos) << message;
  }
  EXPECT_EQ(backend->bytes_in_use(), held);
  weight.reset();
  second = {};
  EXPECT_EQ(backend->bytes_in_use(), 0u);
}

TEST_P(PackParity, RefusesMalformedSpecs) {
  const auto backend = make_backend(GetParam());
  const std::vector<float> values(12, 1.0f);
  const WeightPart good{values.data(), DType::kF32, 3, 4, false, 4};
  WeightPart bad = good;
  bad.row_stride = 3;
  EXPECT_THROW(backend->pack_weight({{bad}, DType::kF32, WeightUse::kLinear}), InternalError);
  bad = good;
  bad.dtype = DType::kI8;
  EXPECT_THROW(backend->pack_weight({{bad}, DType::kF32, WeightUse::kLinear}), InternalError);
  bad = good;
  bad.k = 2;
  bad.row_stride = 2;
  EXPECT_THROW(backend->pack_weight({{good, bad}, DType::kF32, WeightUse::kLinear}), InternalError);
  bad = good;
  bad.n = int64_t{1} << 60;
  bad.k = bad.row_stride = int64_t{1} << 10;
  EXPECT_THROW(backend->pack_weight({{bad}, DType::kF32, WeightUse::kLinear}), InternalError);
  EXPECT_THROW(backend->pack_weight({{good}, DType::kI8, WeightUse::kLinear}), InternalError);
  EXPECT_THROW(backend->pack_weight({{good}, DType::kF32, WeightUse::kGateUp}), InternalError);
  EXPECT_THROW(backend->pack_weight({{}, DType::kF32, WeightUse::kLinear}), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Isas, PackParity,
                         testing::Values("reference", "baseline", "avx2", "avx512", "avx512_bf16"),
                         isa_name);

}  // namespace
}  // namespace headrace::parity
