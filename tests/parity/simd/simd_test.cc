// The SIMD vocabulary of every ISA against scalar arithmetic.

#include <sys/mman.h>

#include <bit>
#include <cmath>
#include <limits>

#include "parity/parity.h"
#include "parity/simd/simd_ops.h"

namespace headrace {
namespace baseline {
extern const SimdOps kSimdOps;
}
namespace avx2 {
extern const SimdOps kSimdOps;
}
namespace avx512 {
extern const SimdOps kSimdOps;
}
namespace avx512_bf16 {
extern const SimdOps kSimdOps;
}
}  // namespace headrace

namespace headrace::parity {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Simd : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { HEADRACE_REQUIRE_ISA(GetParam()); }
  const SimdOps& ops() const {
    if (GetParam() == "avx2") return avx2::kSimdOps;
    if (GetParam() == "avx512") return avx512::kSimdOps;
    if (GetParam() == "avx512_bf16") return avx512_bf16::kSimdOps;
    return baseline::kSimdOps;
  }
};

/// A sample of all floats: every bit pattern whose low bits are one of a few.
std::vector<float> floats_of_all_sizes() {
  std::vector<float> out;
  for (uint32_t high = 0; high < 0x20000u; ++high) {
    for (const uint32_t low : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x4000u, 0x7fffu, 0x6001u}) {
      out.push_back(std::bit_cast<float>((high << 15) | low));
    }
  }
  return out;
}

TEST_P(Simd, ExpIsWithinTwoUlp) {
  std::vector<float> in;
  for (float x = -87.33f; x <= 88.72f; x += 0.00037f) in.push_back(x);
  in.resize(in.size() / 16 * 16);
  std::vector<float> out(in.size());
  ops().exp(in.data(), static_cast<int64_t>(in.size()), out.data());
  double worst = 0.0;
  for (size_t i = 0; i < in.size(); ++i) {
    const double want = std::exp(static_cast<double>(in[i]));
    const float near = static_cast<float>(want);
    const double ulp = static_cast<double>(std::nextafter(near, kInfinity)) - near;
    worst = std::max(worst, std::abs(out[i] - want) / ulp);
  }
  EXPECT_LE(worst, 2.0);
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST_P(Simd, ExpAtTheEnds) {
  const std::vector<float> in = {
      -kInfinity, -1e30f, -88.0f, -87.4f,
      0.0f,       88.73f, 1e30f,  kInfinity,
      -0.0f,      89.0f,  1.0f,   -1e-30f,
      0.0f,       0.0f,   0.0f,   std::numeric_limits<float>::quiet_NaN()};
  const std::vector<float> want = {0.0f,           0.0f,      0.0f,      0.0f, 1.0f,
                                   kInfinity,      kInfinity, kInfinity, 1.0f, kInfinity,
                                   std::exp(1.0f), 1.0f,      1.0f,      1.0f, 1.0f};
  std::vector<float> out(in.size());
  ops().exp(in.data(), static_cast<int64_t>(in.size()), out.data());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_FLOAT_EQ(out[i], want[i]) << in[i];
  EXPECT_TRUE(std::isnan(out.back()));
}

TEST_P(Simd, Exp2IsWithinTwoUlp) {
  std::vector<float> in;
  for (float x = -126.0f; x <= 127.0f; x += 0.00037f) in.push_back(x);
  in.resize(in.size() / 16 * 16);
  std::vector<float> out(in.size());
  ops().exp2(in.data(), static_cast<int64_t>(in.size()), out.data());
  double worst = 0.0;
  for (size_t i = 0; i < in.size(); ++i) {
    const double want = std::exp2(static_cast<double>(in[i]));
    worst = std::max(worst, std::abs(static_cast<double>(out[i]) - want) / want);
  }
  EXPECT_LE(worst, 2 * 0x1p-23);

  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> ends = {0.0f, -0.0f, -1.0f, -150.5f, -1e30f, -kInfinity, nan,  -126.0f,
                                   0.0f, 0.0f,  0.0f,  0.0f,    0.0f,   0.0f,       0.0f, 0.0f};
  out.resize(ends.size());
  ops().exp2(ends.data(), static_cast<int64_t>(ends.size()), out.data());
  EXPECT_EQ(std::vector<float>(out.begin(), out.begin() + 3), (std::vector<float>{1, 1, 0.5f}));
  for (const size_t i : {3, 4, 5}) EXPECT_EQ(out[i], 0.0f) << ends[i];
  EXPECT_TRUE(std::isnan(out[6]));
  EXPECT_EQ(out[7], 0x1p-126f);
}

TEST_P(Simd, TanhIsWithinFourUlp) {
  std::vector<float> in = {0.0f, -0.0f, 1e-30f, 0.625f, -0.6250001f, 88.8f, -1e30f, kInfinity};
  for (float x = 1e-4f; x <= 12.0f; x *= 1.0013f) in.insert(in.end(), {x, -x});
  in.resize(in.size() / 16 * 16);
  std::vector<float> out(in.size());
  ops().tanh(in.data(), static_cast<int64_t>(in.size()), out.data());
  double worst = 0.0;
  for (size_t i = 0; i < in.size(); ++i) {
    const double want = std::tanh(static_cast<double>(in[i]));
    const float near = std::abs(static_cast<float>(want));
    const double ulp = static_cast<double>(std::nextafter(near, kInfinity)) - near;
    worst = std::max(worst, std::abs(static_cast<double>(out[i]) - want) / ulp);
  }
  EXPECT_LE(worst, 4.0);

  std::fill_n(in.begin(), 16, std::numeric_limits<float>::quiet_NaN());
  ops().tanh(in.data(), 16, out.data());
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(std::isnan(out[static_cast<size_t>(i)]));
}

TEST_P(Simd, MultipliesPairsOfWords) {
  Random random(31);
  SCOPED_TRACE(random.trace());
  for (int turn = 0; turn < 50; ++turn) {
    uint8_t bytes[32];
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.integer(0, 255));
    const int16_t pair[2] = {static_cast<int16_t>(random.integer(-32767, 32767)),
                             static_cast<int16_t>(random.integer(-32767, 32767))};
    float out[3][16];
    float* outs[3] = {out[0], out[1], out[2]};
    ops().dot_words(bytes, pair, outs);
    for (int lane = 0; lane < ops().lanes; ++lane) {
      const auto dot = [&](const auto& of) {
        return static_cast<float>(of(bytes[2 * lane]) * pair[0] +
                                  of(bytes[2 * lane + 1]) * pair[1]);
      };
      EXPECT_EQ(out[0][lane], dot([](uint8_t b) { return int{static_cast<int8_t>(b)}; }));
      EXPECT_EQ(out[1][lane], dot([](uint8_t b) { return b % 16; }));
      EXPECT_EQ(out[2][lane], dot([](uint8_t b) { return b / 16; }));
    }
  }
  const std::vector<float> in = {0.5f, 1.5f, -2.5f, 40000.0f, -40000.0f, 32767.0f, -1.0f, 7.0f,
                                 0.0f, 0.0f, 0.0f,  0.0f,     0.0f,      0.0f,     0.0f,  0.0f};
  std::vector<int16_t> words(in.size());
  ops().to_i16(in.data(), static_cast<int64_t>(in.size()), words.data());
  words.resize(8);
  EXPECT_EQ(words, (std::vector<int16_t>{0, 2, -2, 32767, -32768, 32767, -1, 7}));
}

TEST_P(Simd, NarrowsAsTheScalarConversionsDo) {
  const std::vector<float> in = floats_of_all_sizes();
  std::vector<uint16_t> bf16(in.size()), f16(in.size());
  ops().to_bf16(in.data(), static_cast<int64_t>(in.size()), bf16.data());
  ops().to_f16(in.data(), static_cast<int64_t>(in.size()), f16.data());
  for (size_t i = 0; i < in.size(); ++i) {
    if (std::isnan(in[i])) {
      ASSERT_TRUE(std::isnan(bf16_to_f32(bf16[i])) && std::isnan(f16_to_f32(f16[i]))) << i;
    } else {
      ASSERT_EQ(bf16[i], f32_to_bf16(in[i])) << in[i];
      ASSERT_EQ(f16[i], f32_to_f16(in[i])) << in[i];
    }
  }
}

TEST_P(Simd, WidensEveryHalf) {
  std::vector<uint16_t> in(1u << 16);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i);
  std::vector<float> bf16(in.size()), f16(in.size());
  ops().from_bf16(in.data(), static_cast<int64_t>(in.size()), bf16.data());
  ops().from_f16(in.data(), static_cast<int64_t>(in.size()), f16.data());
  for (size_t i = 0; i < in.size(); ++i) {
    const float want_bf16 = bf16_to_f32(in[i]), want_f16 = f16_to_f32(in[i]);
    ASSERT_TRUE(std::isnan(want_bf16) ? std::isnan(bf16[i]) : bf16[i] == want_bf16) << i;
    ASSERT_TRUE(std::isnan(want_f16) ? std::isnan(f16[i]) : f16[i] == want_f16) << i;
  }
}

TEST_P(Simd, SplitsPairs) {
  const auto lanes = static_cast<size_t>(ops().lanes);
  std::vector<uint16_t> in(2 * lanes);
  for (size_t i = 0; i < in.size(); ++i) in[i] = f32_to_bf16(static_cast<float>(i) - 3.0f);
  std::vector<float> even(lanes), odd(lanes);
  ops().split_bf16(in.data(), even.data(), odd.data());
  for (size_t i = 0; i < lanes; ++i) {
    EXPECT_EQ(even[i], static_cast<float>(2 * i) - 3.0f);
    EXPECT_EQ(odd[i], static_cast<float>(2 * i + 1) - 3.0f);
  }
}

TEST_P(Simd, ReducesAsAFixedTree) {
  const auto lanes = static_cast<size_t>(ops().lanes);
  Random random(31);
  SCOPED_TRACE(random.trace());
  for (int round = 0; round < 100; ++round) {
    std::vector<float> v = random.uniforms(ops().lanes);
    EXPECT_EQ(ops().reduce_max(v.data()), *std::max_element(v.begin(), v.end()));
    const float sum = ops().reduce_add(v.data());
    for (size_t half = lanes / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) v[i] += v[i + half];
    }
    EXPECT_EQ(sum, v[0]);
  }
}

TEST_P(Simd, ComparesLanes) {
  const auto lanes = static_cast<size_t>(ops().lanes);
  std::vector<float> a(lanes, 1.0f), b(lanes, 1.0f);
  EXPECT_EQ(ops().greater_mask(a.data(), b.data()), 0u);
  for (size_t i = 0; i < lanes; ++i) {
    a[i] = 2.0f;
    EXPECT_EQ(ops().greater_mask(a.data(), b.data()), 1u << i);
    a[i] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(ops().greater_mask(a.data(), b.data()), 0u);
    a[i] = 1.0f;
  }
}

// The numbers end where a page begins that may not be touched.
TEST_P(Simd, PartsReadAndWriteNothingBeyond) {
  constexpr size_t kPage = 4096;
  void* pages =
      ::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  auto* base = static_cast<char*>(pages);
  ASSERT_EQ(0, ::mprotect(base + kPage, kPage, PROT_NONE));
  ASSERT_EQ(0, ::mprotect(base + 3 * kPage, kPage, PROT_NONE));
  for (int n = 0; n <= ops().lanes; ++n) {
    auto* in = reinterpret_cast<float*>(base + kPage) - n;
    auto* out = reinterpret_cast<float*>(base + 3 * kPage) - n;
    for (int i = 0; i < n; ++i) in[i] = static_cast<float>(i + 1);
    EXPECT_EQ(ops().copy_part(in, n, out), static_cast<float>(n * (n + 1) / 2));
    for (int i = 0; i < n; ++i) EXPECT_EQ(out[i], static_cast<float>(i + 1));
  }
  ::munmap(pages, 4 * kPage);
}

TEST_P(Simd, TransposeTakesLanesToVectors) {
  const auto lanes = static_cast<size_t>(ops().lanes);
  std::vector<float> in(lanes * lanes), out(lanes * lanes);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  ops().transpose(in.data(), out.data());
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(out[i], in[i % lanes * lanes + i / lanes]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Simd, testing::ValuesIn(kernel_isas()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace headrace::parity
