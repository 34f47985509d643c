// The kernels of quantized weights by themselves: rounding weights, and weights with zero points.

#include <cmath>
#include <limits>

#include "backend/cpu/cpu_isa.h"
#include "backend/reference/reference_quant.h"
#include "base/check.h"
#include "parity/parity.h"

namespace headrace::parity {
namespace {

class QuantKernelsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { HEADRACE_REQUIRE_ISA(GetParam()); }
  const QuantKernels& kernels() const { return *select_cpu_isa(GetParam()).quant; }
};

std::string isa_name(const testing::TestParamInfo<std::string>& info) { return info.param; }

std::vector<float> read(const QuantizedGroup& group, int32_t size, int32_t bits) {
  std::vector<float> out;
  for (int32_t i = 0; i < size; ++i) {
    out.push_back(bf16_to_f32(group.scale) * static_cast<float>(group.codes[i] - quant_zero(bits)));
  }
  return out;
}

double squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

/// Rounded to nearest with the scale that reaches the largest weight.
std::vector<float> rounded_to_nearest(const std::vector<float>& weights, int32_t bits) {
  const float most = bits == 8 ? 127.0f : 7.0f;
  float top = 0.0f;
  for (const float w : weights) top = std::max(top, std::abs(w));
  std::vector<float> out;
  for (const float w : weights) out.push_back(std::nearbyint(w / (top / most)) * (top / most));
  return out;
}

TEST_P(QuantKernelsTest, RoundsWeightsAsTheReferenceAndBetterThanToNearest) {
  Random random(31);
  SCOPED_TRACE(random.trace());
  for (const int32_t bits : {8, 4}) {
    for (const int32_t size : {32, 64, 128}) {
      double error = 0.0, plain_error = 0.0;
      for (int i = 0; i < 500; ++i) {
        std::vector<float> weights = random.uniforms(size);
        for (float& w : weights) w = w * w * w * std::ldexp(1.0f, i % 60 - 30);  // some stand out
        QuantizedGroup group, same;
        kernels().quantize_group(weights.data(), size, bits, &group);
        reference_quantize_group(weights.data(), size, bits, &same);
        ASSERT_EQ(group.scale, same.scale) << i;
        ASSERT_EQ(group.zero, same.zero) << i;
        for (int32_t j = 0; j < size; ++j) {
          ASSERT_EQ(group.codes[j], same.codes[j]) << i << " " << j;
          ASSERT_TRUE(bits == 8 ? group.codes[j] > 0 : group.codes[j] < 16) << i << " " << j;
        }
        double norm = 0.0;
        for (const float w : weights) norm += double{w} * w;
        error += squared_error(weights, read(group, size, bits)) / norm;
        plain_error += squared_error(weights, rounded_to_nearest(weights, bits)) / norm;
      }
      // bf16 scales cost int8, which gains little, a part in 256 of its largest weights.
      EXPECT_LT(error, plain_error * (bits == 8 ? 1.7 : 0.85)) << bits << " " << size;
    }
  }
}

TEST_P(QuantKernelsTest, WeightsThatAreNotNumbers) {
  for (const int32_t bits : {8, 4}) {
    for (const float strange :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      std::vector<float> weights(64, 0.5f);
      weights[37] = strange;
      QuantizedGroup group;
      kernels().quantize_group(weights.data(), 64, bits, &group);
      EXPECT_TRUE(std::isnan(bf16_to_f32(group.scale)));
    }
    for (const float nothing : {0.0f, 1e-40f, -1e-33f}) {
      const std::vector<float> weights(64, nothing);
      QuantizedGroup group;
      kernels().quantize_group(weights.data(), 64, bits, &group);
      for (const float w : read(group, 64, bits)) EXPECT_EQ(w, 0.0f);
      QuantizedGroup same;
      reference_quantize_group(weights.data(), 64, bits, &same);
      EXPECT_EQ(group.scale, same.scale);
    }
  }
}

/// One panel of random codes, zeros and scales (powers of two, so that sums are exact: with the
/// activations below they are less than 2^22, in quarters).
struct Panel {
  QuantFormat format;
  int64_t cols, groups;
  std::vector<uint8_t> bytes;
  std::vector<double> weights;  ///< [cols][groups * size]

  /// `extreme`: 0 or 1 for all codes the least or the largest, and a zero at the other end.
  Panel(Random& random, const QuantFormat& format_in, int64_t cols_in, int64_t groups_in,
        int extreme = -1)
      : format(format_in),
        cols(cols_in),
        groups(groups_in),
        bytes(size_t(groups * quant_group_bytes(format, cols))),
        weights(size_t(cols * groups * format.group_size)) {
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t c = 0; c < cols; ++c) fill(random, g, c, extreme);
    }
  }

  void fill(Random& random, int64_t g, int64_t c, int extreme) {
    uint8_t* at = &bytes[size_t(g * quant_group_bytes(format, cols))];
    const float scale = std::ldexp(random.integer(0, 1) == 0 ? 1.0f : -1.0f,
                                   static_cast<int>(random.integer(-2, 2)));
    const uint16_t stored = format.f16_scales ? f32_to_f16(scale) : f32_to_bf16(scale);
    std::memcpy(at + 2 * c, &stored, 2);
    const int64_t top = format.bits == 8 ? 255 : 15;
    int64_t zero = format.zero_points ? random.integer(0, top) : quant_zero(format.bits);
    if (format.zero_points && extreme >= 0) zero = extreme == 0 ? top : 0;
    if (format.zero_points) at[2 * cols + c] = static_cast<uint8_t>(zero);
    uint8_t* codes = at + quant_codes_offset(format, cols);
    for (int64_t i = 0; i < format.group_size; ++i) {
      const int64_t code = extreme < 0 ? random.integer(0, top) : extreme * top;
      weights[size_t((c * groups + g) * format.group_size + i)] =
          double{scale} * static_cast<double>(code - zero);
      if (format.bits == 8) {
        codes[(i / 4 * cols + c) * 4 + i % 4] = static_cast<uint8_t>(code);
      } else {
        codes[(i / 8 * cols + c) * 4 + i % 4] |= static_cast<uint8_t>(code << (i % 8 < 4 ? 0 : 4));
      }
    }
  }
};

/// x [rows][k] through the panel, [rows][cols]; k may end within the last group.
std::vector<float> multiply(const QuantKernels& kernels, const Panel& panel,
                            const std::vector<float>& x, int64_t rows, int64_t k) {
  const int64_t tile = kernels.tile_rows;
  std::vector<uint8_t> packed(size_t(rows * quant_row_bytes(kernels, panel.format, panel.groups)));
  kernels.pack_rows({{x.data(), k, rows, k, tile, 0}, panel.format}, packed.data());
  std::vector<float> out(size_t(rows * panel.cols)), sums(out.size() + 16);
  PanelTask task{};
  task.activations = packed.data();
  task.panel = panel.bytes.data();
  task.k_groups = panel.groups;
  task.rows = rows;
  task.tile_rows = tile;
  task.accumulators = sums.data();
  task.out = out.data();
  task.out_stride = panel.cols;
  task.cols = static_cast<int32_t>(panel.cols);
  kernels.panel_product(task, panel.format);
  return out;
}

void expect_products(const Panel& panel, const std::vector<float>& x, int64_t rows, int64_t k,
                     const std::vector<float>& out) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t c = 0; c < panel.cols; ++c) {
      double want = 0.0;
      for (int64_t j = 0; j < k; ++j) {
        want += double{x[size_t(i * k + j)]} *
                panel.weights[size_t(c * panel.groups * panel.format.group_size + j)];
      }
      ASSERT_EQ(out[size_t(i * panel.cols + c)], want)
          << panel.format.bits << " " << panel.format.group_size << " " << panel.format.zero_points
          << " " << i << " " << c;
    }
  }
}

TEST_P(QuantKernelsTest, ZeroPointsAndHalfPrecisionScales) {
  Random random(32);
  SCOPED_TRACE(random.trace());
  const int64_t rows = 13;
  for (const int32_t bits : {8, 4}) {
    for (const int32_t size : {32, 64, 128}) {
      for (const bool zero_points : {false, true}) {
        const QuantFormat format{bits, size, zero_points, !zero_points};
        const Panel panel(random, format, kernels().panel_cols, 3);
        const int64_t k = 3 * size - 5;
        std::vector<float> x = random.integers(rows * k, -9, 9);
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t g = 0; g < 3; ++g) x[size_t(row * k + g * size)] = 127.0f;
        }
        expect_products(panel, x, rows, k, multiply(kernels(), panel, x, rows, k));
      }
    }
  }
}

// The largest sums there are, of either sign: none of their parts saturates.
TEST_P(QuantKernelsTest, LargestSums) {
  Random random(33);
  SCOPED_TRACE(random.trace());
  const int64_t rows = 7;
  for (const int32_t bits : {8, 4}) {
    for (const int32_t size : {32, 64, 128}) {
      for (const bool zero_points : {false, true}) {
        for (const bool high : {false, true}) {
          const QuantFormat format{bits, size, zero_points, false};
          const Panel panel(random, format, kernels().panel_cols, 1, high ? 1 : 0);
          std::vector<float> x(size_t(rows * size));
          for (int64_t i = 0; i < rows * size; ++i) {
            const int64_t row = i / size;  // all of one sign, pairs, quads, one in eight
            const bool negative = row == 0 ? false : row == 1 ? true : (i >> (row - 2)) % 2 == 0;
            x[size_t(i)] = negative ? -127.0f : 127.0f;
          }
          expect_products(panel, x, rows, size, multiply(kernels(), panel, x, rows, size));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, QuantKernelsTest,
                         testing::Values("baseline", "avx2", "avx2_vnni", "avx512", "avx512_vnni"),
                         isa_name);

}  // namespace
}  // namespace headrace::parity
