// pack_weight and pack_vector: what a checkpoint may hold, through linear and embed.

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>

#include "base/check.h"
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

// As gpt-oss's experts have them: a feature of gate, one of up, and so on.
TEST_P(PackParity, FeaturesOfTwoModulesTakeTurns) {
  const auto backend = make_backend(GetParam());
  Random random(14);
  SCOPED_TRACE(random.trace());
  const int64_t n = 71, k = 263;
  const std::vector<float> values = random.integers(2 * n * k, -99, 99);
  std::vector<float> sorted;
  for (const int64_t module : {0, 1}) {
    for (int64_t i = module; i < 2 * n; i += 2) {
      sorted.insert(sorted.end(), values.begin() + i * k, values.begin() + (i + 1) * k);
    }
  }
  const StoredMatrix together(sorted, 2 * n, k, DType::kBF16);
  for (const DType source : {DType::kBF16, DType::kF32}) {
    for (const bool transposed : {false, true}) {
      SCOPED_TRACE(testing::Message() << dtype_name(source) << " transposed " << transposed);
      const StoredMatrix stored(values, 2 * n, k, source, transposed);
      std::vector<WeightPart> parts(2, stored.part());
      for (WeightPart& part : parts) {
        part.n = n;
        (transposed ? part.feature_stride : part.row_stride) *= 2;
      }
      const int64_t second = transposed ? 1 : k;
      parts[1].data = static_cast<const char*>(parts[1].data) +
                      second * static_cast<int64_t>(dtype_size(source));
      for (const WeightUse use : {WeightUse::kLinear, WeightUse::kGateUp}) {
        const auto weight = backend->pack_weight({parts, DType::kBF16, use});
        EXPECT_EQ(unpack(*backend, *weight), sorted);
        const QuantFormat int4{.bits = 4, .group_size = 32};
        const auto codes = backend->pack_weight({parts, DType::kBF16, use, int4});
        const auto want = backend->pack_weight({{together.part()}, DType::kBF16, use, int4});
        EXPECT_EQ(unpack(*backend, *codes), unpack(*backend, *want));
      }
    }
  }
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
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const uint16_t exponent = dtype == DType::kBF16 ? 0x7f80 : 0x7c00;
    std::vector<uint16_t> bits(1u << 16);
    for (size_t i = 0; i < bits.size(); ++i) {
      if ((i & exponent) != exponent) bits[i] = uint16_t(i);  // the others are refused
    }
    const WeightPart part{bits.data(), dtype, 256, 256, false, 256};
    const auto table = backend->pack_weight({{part}, dtype, WeightUse::kEmbedding});
    const auto got = embed_all(*backend, *table);
    for (size_t i = 0; i < bits.size(); ++i) {
      const float want = dtype == DType::kBF16 ? bf16_to_f32(bits[i]) : f16_to_f32(bits[i]);
      ASSERT_EQ(got[i], want) << i;
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

/// Values with `bad` at one place, as a named part.
class BadMatrix {
 public:
  BadMatrix(float bad, int64_t at, int64_t n, int64_t k, DType dtype, bool transposed)
      : stored_(with(bad, at, n * k), n, k, dtype, transposed, 3) {}
  WeightPart part() const {
    WeightPart out = stored_.part();
    out.name = "the.bad.one";
    return out;
  }

 private:
  static std::vector<float> with(float bad, int64_t at, int64_t count) {
    std::vector<float> values(size_t(count), 0.5f);
    values[size_t(at)] = bad;
    return values;
  }
  StoredMatrix stored_;
};

template <class Action>
void expect_refused(ErrorCode code, const std::string& what, Action action) {
  try {
    action();
    ADD_FAILURE() << "was packed: " << what;
  } catch (const TensorError& error) {
    EXPECT_EQ(error.code(), code) << what;
    EXPECT_NE(std::string(error.what()).find("tensor the.bad.one holds"), std::string::npos)
        << error.what();
  }
}

TEST_P(PackParity, RefusesWhatIsNotFiniteByName) {
  const auto backend = make_backend(GetParam());
  const int64_t n = 71, k = 263;
  const StoredMatrix good(std::vector<float>(size_t(n * k), 1.0f), n, k, DType::kBF16);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), infinity, -infinity}) {
    for (const int64_t at : {int64_t{0}, 70 * k + 17, n * k - 1}) {
      for (const DType source : kSources) {
        for (const bool transposed : {false, true}) {
          const BadMatrix stored(bad, at, n, k, source, transposed);
          const std::string what = str_cat(bad, " at ", at, " in ", dtype_name(source));
          for (const DType storage : {DType::kF32, DType::kBF16, DType::kF16}) {
            for (const WeightUse use :
                 {WeightUse::kLinear, WeightUse::kEmbedding, WeightUse::kGateUp}) {
              expect_refused(ErrorCode::kCorruptFile, what, [&] {
                const std::vector<WeightPart> parts = {good.part(), stored.part()};
                backend->pack_weight({parts, storage, use});
              });
            }
          }
          expect_refused(ErrorCode::kCorruptFile, what + ", quantized", [&] {
            backend->pack_weight({{good.part(), stored.part()},
                                  DType::kBF16,
                                  WeightUse::kLinear,
                                  {.bits = 8, .group_size = 64}});
          });
        }
      }
    }
  }
  EXPECT_EQ(backend->bytes_in_use(), 0u);
}

TEST_P(PackParity, RefusesWhatItsDtypeCannotHold) {
  const auto backend = make_backend(GetParam());
  struct Case {
    float value;
    DType storage;
    bool fits;
  };
  for (const auto& [value, storage, fits] :
       {Case{65519.0f, DType::kF16, true}, Case{65520.0f, DType::kF16, false},
        Case{-7e4f, DType::kF16, false}, Case{7e4f, DType::kBF16, true},
        Case{3.39e38f, DType::kBF16, true}, Case{3.40e38f, DType::kBF16, false},
        Case{3.40e38f, DType::kF32, true}}) {
    const BadMatrix stored(value, 1000, 71, 263, DType::kF32, false);
    const auto pack = [&] { backend->pack_weight({{stored.part()}, storage, WeightUse::kLinear}); };
    if (fits) {
      EXPECT_NO_THROW(pack()) << value;
    } else {
      expect_refused(ErrorCode::kUnsupported, str_cat(value, " as ", dtype_name(storage)), pack);
    }
  }
  const BadMatrix wide(1.0f, 0, 1, 5, DType::kF64, false);
  const double huge = 1e300;
  WeightPart part = wide.part();
  part.data = &huge;
  part.k = part.row_stride = 1;
  expect_refused(ErrorCode::kCorruptFile, "1e300",
                 [&] { backend->pack_weight({{part}, DType::kF32, WeightUse::kLinear}); });
}

TEST_P(PackParity, RefusesVectorsAndAdaptersThatAreNotFinite) {
  const auto backend = make_backend(GetParam());
  for (const DType source : kSources) {
    const BadMatrix vector(std::nanf(""), 70, 71, 1, source, false);
    Backend::Buffer owner;
    expect_refused(ErrorCode::kCorruptFile, "a vector",
                   [&] { backend->pack_vector(vector.part(), &owner); });
    const BadMatrix bad(std::nanf(""), 300, 8, 64, source, false);
    const StoredMatrix other(std::vector<float>(size_t{96 * 8}, 1.0f), 96, 8, source);
    const LoraSpec spec{{{bad.part(), other.part(), 0, 1.0f}}, 96, 64, DType::kBF16};
    expect_refused(ErrorCode::kCorruptFile, "an adapter", [&] { backend->pack_lora(spec); });
  }
}

TEST_P(PackParity, CallsBetweenPiecesAndEndsWhereThatThrows) {
  const auto backend = make_backend(GetParam());
  const int64_t n = 2048, k = 512;
  const StoredMatrix stored(std::vector<float>(size_t(n * k), 1.0f), n, k, DType::kF32);
  for (const WeightUse use : {WeightUse::kLinear, WeightUse::kEmbedding}) {
    for (const int32_t bits : {0, 8}) {
      if (bits != 0 && use == WeightUse::kEmbedding) continue;
      std::atomic<int> calls{0}, most{1 << 30};
      const std::function<void()> between = [&] {
        if (++calls > most) throw Error(ErrorCode::kCancelled, "enough");
      };
      const WeightSpec spec{{stored.part()},
                            DType::kF32,
                            use,
                            bits == 0 ? QuantFormat{} : QuantFormat{.bits = bits, .group_size = 64},
                            &between};
      backend->pack_weight(spec);
      EXPECT_GE(calls, 4) << "a piece is about a MiB";
      calls = 0;
      most = 2;
      EXPECT_THROW(backend->pack_weight(spec), Error);
      EXPECT_EQ(backend->bytes_in_use(), 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, PackParity,
                         testing::Values("reference", "baseline", "avx2", "avx512", "avx512_bf16"),
                         isa_name);

}  // namespace
}  // namespace headrace::parity
