#include "benchmarks/cuda/float8/sum_cases.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tensor/float8.h"

namespace headrace::bench {
namespace {

uint8_t code(double number) { return f32_to_e4m3(static_cast<float>(number)); }

void put(SumCase& to, int k, double a, double b) {
  to.a[static_cast<size_t>(k)] = code(a);
  to.b[static_cast<size_t>(k)] = code(b);
}

/// A product of size 2^exponent, -18 to 16; from -12 on neither factor is subnormal.
void put_power(SumCase& to, int k, int exponent, double sign = 1) {
  const int half = static_cast<int>(std::floor(exponent / 2.0));
  put(to, k, sign * std::ldexp(1.0, half), std::ldexp(1.0, exponent - half));
}

constexpr double kSigns[] = {1, -1};
constexpr int kTop = 16;

/// How many bits below a product another one still counts, in the sum of both.
SumSet two_products() {
  SumSet out{.name = "two products"};
  for (const int place : {1, 8, 16, 31}) {
    for (const double first : kSigns) {
      for (const double second : kSigns) {
        for (int j = 1; j <= 28; ++j) {
          SumCase& one = out.cases.emplace_back();
          put_power(one, 0, kTop, first);
          put_power(one, place, kTop - j, second);
        }
      }
    }
  }
  return out;
}

/// The same where the large ones cancel: the result has bits enough for what is left.
SumSet cancelled_products() {
  SumSet out{.name = "cancelled products"};
  for (const int place : {2, 9, 17, 31}) {
    for (const double sign : kSigns) {
      for (int j = 8; j <= 28; ++j) {
        SumCase& one = out.cases.emplace_back();
        put_power(one, 0, kTop);
        put_power(one, 1, kTop, -1);
        put_power(one, place, kTop - j, sign);
      }
    }
  }
  return out;
}

/// Which products are added with which: a small one is lost beside two that cancel, or isn't.
SumSet groups() {
  SumSet out{.name = "groups"};
  constexpr int kPairs[][2] = {{0, 1}, {16, 17}, {0, 16}, {7, 24}, {3, 4}, {2, 8}};
  for (const auto& [first, second] : kPairs) {
    for (int place = 0; place < 32; ++place) {
      SumCase& one = out.cases.emplace_back();
      put_power(one, place, kTop - 22);
      put_power(one, first, kTop);
      put_power(one, second, kTop, -1);
    }
  }
  return out;
}

/// What the accumulator counts for: as the large one, and as the small one.
SumSet accumulator() {
  SumSet out{.name = "accumulator"};
  const auto power = [](int exponent, double sign) {
    return static_cast<float>(std::ldexp(sign, exponent));
  };
  for (const double first : kSigns) {
    for (const double second : kSigns) {
      for (int j = 1; j <= 28; ++j) {
        SumCase& sum = out.cases.emplace_back();
        sum.start = power(kTop, first);
        put_power(sum, 5, kTop - j, second);
        SumCase& cancelled = out.cases.emplace_back(sum);
        put_power(cancelled, 0, kTop, -first);
        SumCase& small = out.cases.emplace_back();
        small.start = power(kTop - j, second);
        put_power(small, 0, kTop, first);
        SumCase& lost = out.cases.emplace_back(small);
        put_power(lost, 9, kTop, -first);
      }
    }
  }
  return out;
}

/// An accumulator with all its bits: alone, and beside one product.
SumSet full_accumulator() {
  SumSet out{.name = "full accumulator"};
  for (const float start : {0x1.fffffep0f, 0x1.000002p0f, 0x1.555554p0f, 0x1.aaaaaap0f, 0x1p-126f,
                            0x1p-140f, 0x1.fffffep100f}) {
    for (const double sign : kSigns) {
      SumCase alone;
      alone.start = static_cast<float>(sign) * start;
      out.cases.push_back(alone);
      for (int exponent = -18; exponent <= kTop; ++exponent) {
        for (const double product : kSigns) {
          put_power(out.cases.emplace_back(alone), 3, exponent, product);
        }
      }
    }
  }
  return out;
}

/// Many small products beside a large one: whether each is cut, or their sum.
SumSet many_small(bool cancelled) {
  SumSet out{.name = cancelled ? "many small, cancelled" : "many small"};
  for (int j = 11; j <= 16; ++j) {
    for (const double sign : kSigns) {
      for (int count = 1; count < 32; ++count) {
        SumCase& one = out.cases.emplace_back();
        put_power(one, 0, 10);
        for (int i = 0; i < count; ++i) put_power(one, 1 + i, 10 - j, sign);
        if (cancelled) one.start = -0x1p10f;
      }
    }
  }
  return out;
}

/// Whether alignment goes by the factors' exponents or by the product's own.
SumSet wide_products() {
  SumSet out{.name = "wide products"};
  constexpr double kFactors[][2] = {{1.875, 1.875}, {1.5, 1.5}, {1.5, 1.25}, {1.25, 1.25}, {1, 1}};
  for (const auto& [a, b] : kFactors) {
    for (const double sign : kSigns) {
      for (int j = 4; j <= 24; ++j) {
        SumCase& one = out.cases.emplace_back();
        put(one, 0, 64 * a, 64 * b);
        put(one, 1, -64 * a, 64 * b);
        put_power(one, 2, 12 - j, sign);
      }
    }
  }
  return out;
}

/// Small products with bits of their own: what is cut of them.
SumSet cut_products() {
  SumSet out{.name = "cut products"};
  for (const double factor : {1.125, 1.5, 1.875}) {
    for (const double sign : kSigns) {
      for (int j = 6; j <= 18; ++j) {
        SumCase& one = out.cases.emplace_back();
        put_power(one, 0, 12);
        put_power(one, 1, 12, -1);
        const int exponent = 12 - j, half = static_cast<int>(std::floor(exponent / 2.0));
        put(one, 2, sign * std::ldexp(factor, half), std::ldexp(1.875, exponent - half));
      }
    }
  }
  return out;
}

/// Subnormal factors: the exponent that they count with.
SumSet subnormal_factors() {
  SumSet out{.name = "subnormal factors"};
  for (const int mantissa : {1, 2, 3, 5, 7}) {
    for (const double sign : kSigns) {
      for (int exponent = -18; exponent <= -1; ++exponent) {
        SumCase& one = out.cases.emplace_back();
        put(one, 0, std::ldexp(mantissa, -9), 64);
        put(one, 1, -std::ldexp(mantissa, -9), 64);
        put_power(one, 2, exponent, sign);
      }
    }
  }
  return out;
}

/// What is left of a sum from one step of a chain to the next.
SumSet chain(int steps) {
  SumSet out{.name = "chain of " + std::to_string(steps), .steps = steps};
  for (const double sign : kSigns) {
    for (int j = 1; j <= 24; ++j) {
      SumCase& one = out.cases.emplace_back();
      put_power(one, 0, 12, sign);
      put_power(one, 1, 12 - j);
      put_power(one, 32 * (steps - 1) + 4, 12, -sign);
      SumCase& later = out.cases.emplace_back();
      put_power(later, 0, 12, sign);
      put_power(later, 33, 12 - j);
      put_power(later, 32 * (steps - 1) + 5, 12, -sign);
    }
  }
  return out;
}

class Numbers {
 public:
  explicit Numbers(uint32_t seed) : state_(seed) {}
  uint32_t byte() {
    state_ = state_ * 1664525u + 1013904223u;
    return state_ >> 24;
  }
  /// Any code but NaN.
  uint8_t any_code() {
    const uint32_t code = byte();
    return static_cast<uint8_t>((code & 0x7fu) == 0x7fu ? code ^ 1u : code);
  }
  /// Bell-shaped, as rows and weights are that were rounded by their largest number.
  uint8_t bell_code() {
    int sum = -4 * 255;
    for (int i = 0; i < 8; ++i) sum += static_cast<int>(byte());
    return code(sum * (448.0 / 900));
  }
  /// All bits of a float's mantissa, 2^least <= size < 2^(least + range).
  float number(int least, uint32_t range) {
    uint32_t bits = byte() << 31;
    bits |= static_cast<uint32_t>(127 + least + static_cast<int>(byte() % range)) << 23;
    for (const int shift : {15, 7}) bits |= byte() << shift;
    return std::bit_cast<float>(bits | byte() >> 1);
  }

 private:
  uint32_t state_;
};

constexpr int kRandomCases = 256;

template <class Make>
SumSet random_set(const std::string& name, int steps, uint32_t seed, const Make& make) {
  SumSet out{.name = name, .steps = steps};
  Numbers numbers(seed);
  for (int i = 0; i < kRandomCases; ++i) make(numbers, out.cases.emplace_back());
  return out;
}

template <class Code>
void fill(SumCase& to, int steps, const Code& make) {
  for (int k = 0; k < 32 * steps; ++k) {
    to.a[static_cast<size_t>(k)] = make();
    to.b[static_cast<size_t>(k)] = make();
  }
}

std::vector<SumSet> random_sets() {
  const auto any = [](int steps, bool starts) {
    return [=](Numbers& numbers, SumCase& one) {
      fill(one, steps, [&] { return numbers.any_code(); });
      if (starts) one.start = numbers.number(-10, 28);
    };
  };
  const auto below_2 = [](int steps, bool starts) {
    return [=](Numbers& numbers, SumCase& one) {
      fill(one, steps, [&] { return static_cast<uint8_t>(numbers.byte() & 0xbfu); });
      if (starts) one.start = numbers.number(-6, 12);
    };
  };
  const auto bell = [](int steps, bool starts) {
    return [=](Numbers& numbers, SumCase& one) {
      fill(one, steps, [&] { return numbers.bell_code(); });
      if (starts) one.start = numbers.number(8, 12);
    };
  };
  const auto sparse = [](Numbers& numbers, SumCase& one) {
    for (int i = 0; i < 4; ++i) {
      const uint32_t place = numbers.byte() % 32;
      one.a[place] = numbers.any_code();
      one.b[place] = numbers.any_code();
    }
    if (numbers.byte() % 2 == 0) one.start = numbers.number(-12, 28);
  };
  return {random_set("any codes", 1, 1, any(1, false)),
          random_set("any codes, any start", 1, 2, any(1, true)),
          random_set("codes below 2", 1, 3, below_2(1, false)),
          random_set("codes below 2, any start", 1, 4, below_2(1, true)),
          random_set("bells, any start", 1, 5, bell(1, true)),
          random_set("four products", 1, 6, sparse),
          random_set("any codes, unit", 4, 7, any(4, false)),
          random_set("codes below 2, unit", 4, 8, below_2(4, false)),
          random_set("bells, unit", 4, 9, bell(4, false))};
}

}  // namespace

std::vector<SumSet> sum_sets() {
  std::vector<SumSet> out = {
      two_products(),     cancelled_products(), groups(),         accumulator(),
      full_accumulator(), many_small(false),    many_small(true), wide_products(),
      cut_products(),     subnormal_factors(),  chain(2),         chain(4)};
  for (SumSet& set : random_sets()) out.push_back(std::move(set));
  return out;
}

}  // namespace headrace::bench
