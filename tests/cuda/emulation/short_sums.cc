#include "short_sums.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tensor/float8.h"

namespace headrace::emulation {
namespace {

/// Below all exponents of products: with no larger one a sum is its start.
constexpr int kLeastExponent = -100;

/// What sums of short products need of a code.
struct Float8Code {
  float number;      // of NaN 0
  int32_t exponent;  // of zero less than any
};

bool is_nan(uint8_t code) { return (code & 0x7f) == 0x7f; }
bool has_nan(const uint8_t* codes) { return std::any_of(codes, codes + kShortDepth, &is_nan); }

const std::array<Float8Code, 256>& float8_codes() {
  static const auto kCodes = [] {
    std::array<Float8Code, 256> out{};
    for (int i = 0; i < 256; ++i) {
      const auto code = static_cast<uint8_t>(i);
      const float number = is_nan(code) ? 0.0f : e4m3_to_f32(code);
      const int exponent = std::max(i >> 3 & 15, 1) - 7;
      out[code] = {number, number == 0.0f ? 2 * kLeastExponent : exponent};
    }
    return out;
  }();
  return kCodes;
}

int32_t exponent_of(float number) {
  return static_cast<int32_t>(std::bit_cast<uint32_t>(number) >> 23 & 255) - 127;
}
float power_of_two(int32_t exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}
float cut_fraction(float number) {
  const uint32_t cut = (1u << (23 - kShortBits)) - 1;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(number) & ~cut);
}

/// b [n][32] as numbers and exponents [32][n].
struct Columns {
  std::vector<float> numbers;
  std::vector<int32_t> exponents;

  Columns(const uint8_t* b, int n)
      : numbers(static_cast<size_t>(kShortDepth * n)), exponents(numbers.size()) {
    for (int j = 0; j < n; ++j) {
      for (int k = 0; k < kShortDepth; ++k) {
        const Float8Code& code = float8_codes()[b[j * kShortDepth + k]];
        numbers[static_cast<size_t>(k * n + j)] = code.number;
        exponents[static_cast<size_t>(k * n + j)] = code.exponent;
      }
    }
  }
};

}  // namespace

// Loops over columns, which compilers make vectors of. What is left of a term is a whole number of
// 2^(top - kShortBits), below 2^16, and so is the sum of all, below 2^22.
void add_short_matrix(const uint8_t* a, const uint8_t* b, int rows, int n, bool keep, float* sums) {
  const Columns columns(b, n);
  const auto count = static_cast<size_t>(n);
  std::vector<int32_t> top(count), whole(count);
  std::vector<float> scale(count), other(count);
  for (int row = 0; row < rows; ++row) {
    const uint8_t* const codes = a + row * kShortDepth;
    float* const to = sums + row * n;
    if (!keep) std::fill_n(to, n, 0.0f);
    const bool spoiled = has_nan(codes);
    for (size_t j = 0; j < count; ++j) {
      const bool finite = std::isfinite(to[j]) && !spoiled && !has_nan(b + j * kShortDepth);
      other[j] = finite ? 0.0f : to[j] + std::nanf("");
      if (!finite) to[j] = 0.0f;
      top[j] = std::max(exponent_of(to[j]), kLeastExponent);
    }
    for (int k = 0; k < kShortDepth; ++k) {
      const int32_t own = float8_codes()[codes[k]].exponent;
      const int32_t* const exponents = columns.exponents.data() + k * n;
      for (size_t j = 0; j < count; ++j) top[j] = std::max(top[j], own + exponents[j]);
    }
    for (size_t j = 0; j < count; ++j) {
      scale[j] = power_of_two(kShortBits - top[j]);
      whole[j] = static_cast<int32_t>(to[j] * scale[j]);
    }
    for (int k = 0; k < kShortDepth; ++k) {
      const float own = float8_codes()[codes[k]].number;
      const float* const numbers = columns.numbers.data() + k * n;
      for (size_t j = 0; j < count; ++j) {
        whole[j] += static_cast<int32_t>(own * numbers[j] * scale[j]);
      }
    }
    for (size_t j = 0; j < count; ++j) {
      const float sum = static_cast<float>(whole[j]) * power_of_two(top[j] - kShortBits);
      const float alone = std::abs(to[j]) < 0x1p-126f ? 0.0f : to[j];
      to[j] = cut_fraction(top[j] > kLeastExponent ? sum : alone) + other[j];
    }
  }
}

float add_short(const uint8_t* a, const uint8_t* b, float start) {
  add_short_matrix(a, b, 1, 1, true, &start);
  return start;
}

float sum_short(const uint8_t* a, const uint8_t* b, int count) {
  float sum = 0.0f;
  for (int first = 0; first < count; first += kShortDepth) {
    uint8_t rows[2][kShortDepth] = {};
    const auto part = static_cast<size_t>(std::min(kShortDepth, count - first));
    std::memcpy(rows[0], a + first, part);
    std::memcpy(rows[1], b + first, part);
    sum = add_short(rows[0], rows[1], sum);
  }
  return sum;
}

}  // namespace headrace::emulation
