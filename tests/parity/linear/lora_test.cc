// lora: every kernel set against the reference, and against itself in other company.

#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "parity/gates.h"
#include "parity/parity.h"

namespace headrace::parity {
namespace {

using Param = std::tuple<std::string, DType>;

std::string param_name(const testing::TestParamInfo<Param>& info) {
  return std::get<0>(info.param) + "_" + dtype_name(std::get<1>(info.param));
}

struct Part {
  int64_t rank, column, cols;
  float scale;
  std::vector<float> a, b;  // [rank][k], [cols][rank]
};

struct Adapter {
  int64_t n, k;
  std::vector<Part> parts;
};

struct Shape {
  int64_t n, k;
  std::vector<std::array<int64_t, 3>> parts;  // rank, column, cols
};

// Nothing here divides by a vector, a panel or the sums of a row; some columns have no part.
const std::vector<Shape> kShapes = {
    {1, 1, {{1, 0, 1}}},         {10, 7, {{3, 2, 5}}},
    {66, 33, {{8, 0, 66}}},      {200, 130, {{16, 0, 130}, {4, 130, 33}, {17, 165, 35}}},
    {301, 1030, {{64, 1, 299}}},
};
constexpr int64_t kRows[] = {1, 2, 5, 9, 70};

using Numbers = std::vector<float> (*)(Random&, int64_t);

std::vector<float> fractions(Random& random, int64_t count) { return random.uniforms(count); }
std::vector<float> small_whole(Random& random, int64_t count) {
  return random.integers(count, -4, 4);
}

Adapter random_adapter(Random& random, const Shape& shape, Numbers numbers, float scale) {
  Adapter out{shape.n, shape.k, {}};
  for (const auto& [rank, column, cols] : shape.parts) {
    out.parts.push_back(
        {rank, column, cols, scale, numbers(random, rank * shape.k), numbers(random, cols * rank)});
  }
  return out;
}

/// Packed; what it was made of may go away.
std::unique_ptr<PackedLora> pack(Backend& backend, const Adapter& adapter, DType storage) {
  std::vector<StoredMatrix> stored;
  LoraSpec spec{{}, adapter.n, adapter.k, storage};
  for (const Part& part : adapter.parts) {
    stored.emplace_back(part.a, part.rank, adapter.k, DType::kF32);
    stored.emplace_back(part.b, part.cols, part.rank, DType::kF32);
  }
  for (size_t i = 0; i < adapter.parts.size(); ++i) {
    const Part& part = adapter.parts[i];
    spec.parts.push_back({stored[2 * i].part(), stored[2 * i + 1].part(), part.column, part.scale});
  }
  return backend.pack_lora(spec);
}

/// Which adapter each row uses; -1: none.
using Choice = std::vector<int>;

Choice random_choice(Random& random, int64_t rows, int adapters) {
  Choice out(static_cast<size_t>(rows));
  for (int& x : out) x = static_cast<int>(random.integer(-1, adapters - 1));
  return out;
}

std::vector<float> run(Backend& backend, const std::vector<Adapter>& adapters, DType storage,
                       const Choice& choice, const std::vector<float>& x,
                       const std::vector<float>& before) {
  const auto rows = static_cast<int64_t>(choice.size());
  std::vector<std::unique_ptr<PackedLora>> packed;
  std::vector<std::vector<int32_t>> chosen(adapters.size());
  for (size_t i = 0; i < choice.size(); ++i) {
    if (choice[i] >= 0) chosen[static_cast<size_t>(choice[i])].push_back(static_cast<int32_t>(i));
  }
  std::vector<LoraGroup> groups;
  int64_t columns = 1;
  for (size_t i = 0; i < adapters.size(); ++i) {
    packed.push_back(pack(backend, adapters[i], storage));
    if (chosen[i].empty()) continue;
    groups.push_back({packed.back().get(), chosen[i]});
    columns = std::max(columns, packed.back()->scratch_columns());
  }
  const Matrix input(backend, rows, adapters.front().k, x);
  const Matrix out(backend, rows, adapters.front().n, before);
  const Matrix scratch(backend, rows, columns);
  backend.lora(input.view(), groups, scratch.view(), out.view());
  return out.values();
}

/// What one row gets in absolute values: |scale| sum_i (sum_k |x| |a|) |b|, by column.
std::vector<double> magnitude(const Adapter& adapter, const float* x) {
  std::vector<double> out(static_cast<size_t>(adapter.n), 0.0);
  for (const Part& part : adapter.parts) {
    for (int64_t i = 0; i < part.rank; ++i) {
      double inner = 0.0;
      for (int64_t k = 0; k < adapter.k; ++k) {
        inner += std::abs(double(x[k]) * part.a[size_t(i * adapter.k + k)]);
      }
      for (int64_t j = 0; j < part.cols; ++j) {
        out[size_t(part.column + j)] +=
            std::abs(part.scale) * inner * std::abs(part.b[size_t(j * part.rank + i)]);
      }
    }
  }
  return out;
}

class LoraParity : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override { HEADRACE_REQUIRE_ISA(isa()); }
  std::string isa() const { return std::get<0>(GetParam()); }
  DType storage() const { return std::get<1>(GetParam()); }
};

// With M = |scale| sum |x||a||b|: the inner sums of K products are off by gamma_{K+1}, the outer of
// R by gamma_{R+1} (each term's own rounding counted where the baseline rounds products; see
// linear_test), the scaled sum and its addition by 2 more roundoffs of M and of the result; the
// reference rounds once. A stored number is at most 1 + 2^-8 times what it was made of, twice.
TEST_P(LoraParity, MatchesReference) {
  const auto reference = make_cpu_backend({.isa = "reference"});
  const auto backend = make_backend(isa());
  Random random(31);
  SCOPED_TRACE(random.trace());
  for (const Shape& shape : kShapes) {
    std::vector<Adapter> adapters;
    for (int i = 0; i < 3; ++i) {
      adapters.push_back(random_adapter(random, shape, fractions, random.uniform(-2.0f, 2.0f)));
    }
    for (const int64_t rows : kRows) {
      const Choice choice = random_choice(random, rows, 3);
      const auto x = random.uniforms(rows * shape.k), before = random.uniforms(rows * shape.n);
      const auto want = run(*reference, adapters, storage(), choice, x, before);
      const auto got = run(*backend, adapters, storage(), choice, x, before);
      int64_t rank = 0;
      for (const auto& part : shape.parts) rank = std::max(rank, part[0]);
      const double m = double(shape.k + rank + 6) * kF32Roundoff * 1.01;
      for (int64_t i = 0; i < rows; ++i) {
        const int chosen = choice[size_t(i)];
        const auto size = chosen < 0 ? std::vector<double>(size_t(shape.n), 0.0)
                                     : magnitude(adapters[size_t(chosen)], &x[size_t(i * shape.k)]);
        for (int64_t j = 0; j < shape.n; ++j) {
          const auto at = size_t(i * shape.n + j);
          if (size[size_t(j)] == 0.0) {  // no adapter, or no part for this column
            ASSERT_EQ(0, std::memcmp(&got[at], &before[at], sizeof(float))) << i << ", " << j;
          }
          ASSERT_NEAR(got[at], want[at],
                      m * size[size_t(j)] + 2.0 * kF32Roundoff * std::abs(want[at]))
              << i << ", " << j << " of " << rows << " x " << shape.k << " -> " << shape.n;
        }
      }
    }
  }
}

// Exact in every storage and order of summation: whatever is misplaced shows.
TEST_P(LoraParity, WholeNumbersAreExact) {
  const auto reference = make_cpu_backend({.isa = "reference"});
  const auto backend = make_backend(isa());
  Random random(32);
  SCOPED_TRACE(random.trace());
  for (const Shape& shape : kShapes) {
    const std::vector<Adapter> adapters = {random_adapter(random, shape, small_whole, 2.0f),
                                           random_adapter(random, shape, small_whole, -0.5f)};
    for (const int64_t rows : kRows) {
      const Choice choice = random_choice(random, rows, 2);
      const auto x = random.integers(rows * shape.k, -4, 4);
      const auto before = random.integers(rows * shape.n, -99, 99);
      ASSERT_EQ(run(*backend, adapters, storage(), choice, x, before),
                run(*reference, adapters, storage(), choice, x, before))
          << rows << " x " << shape.k << " -> " << shape.n;
    }
  }
}

TEST_P(LoraParity, RowsDoNotDependOnTheirCompany) {
  Random random(33);
  SCOPED_TRACE(random.trace());
  const auto alone = make_backend(isa(), 1);
  for (const Shape& shape : kShapes) {
    std::vector<Adapter> adapters;
    for (int i = 0; i < 3; ++i) {
      adapters.push_back(random_adapter(random, shape, fractions, random.uniform(-2.0f, 2.0f)));
    }
    const auto row = random.uniforms(shape.k), start = random.uniforms(shape.n);
    const auto want = run(*alone, adapters, storage(), {1}, row, start);
    for (const int32_t threads : {1, 2, 3}) {
      const auto backend = make_backend(isa(), threads);
      for (const int64_t rows : kRows) {
        const int64_t place = random.integer(0, rows - 1);
        Choice choice = random_choice(random, rows, 3);
        auto x = random.uniforms(rows * shape.k), before = random.uniforms(rows * shape.n);
        choice[size_t(place)] = 1;
        std::copy(row.begin(), row.end(), x.begin() + place * shape.k);
        std::copy(start.begin(), start.end(), before.begin() + place * shape.n);
        const auto got = run(*backend, adapters, storage(), choice, x, before);
        ASSERT_EQ(
            0, std::memcmp(&got[size_t(place * shape.n)], want.data(), want.size() * sizeof(float)))
            << "row " << place << " of " << rows << ", " << threads << " threads, " << shape.k
            << " -> " << shape.n;
      }
    }
  }
}

TEST_P(LoraParity, GivesItsMemoryBack) {
  const auto backend = make_backend(isa());
  Random random(34);
  const size_t before = backend->bytes_in_use();
  auto packed = pack(*backend, random_adapter(random, kShapes.back(), fractions, 1.0f), storage());
  EXPECT_GE(backend->bytes_in_use(), before + packed->bytes());
  EXPECT_GE(packed->bytes(), size_t(64 * (1030 + 299)) * dtype_size(storage()));
  packed.reset();
  EXPECT_EQ(backend->bytes_in_use(), before);
}

// The two halves of linear_gate_mul().
TEST_P(LoraParity, GateMulAfterLinearHasTheBitsOfTheFusedOp) {
  const auto backend = make_backend(isa());
  Random random(35);
  SCOPED_TRACE(random.trace());
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{2, 1}, {66, 33}, {130, 65}, {94, 301}}) {
    const StoredMatrix stored(random.uniforms(n * k), n, k, storage());
    const auto weight = backend->pack_weight({{stored.part()}, storage(), WeightUse::kGateUp});
    const Matrix bias(*backend, 1, n, random.uniforms(n));
    for (const int64_t rows : kRows) {
      const Matrix x(*backend, rows, k, random.uniforms(rows * k));
      const Matrix fused(*backend, rows, n / 2), split(*backend, rows, n / 2);
      const Matrix gate_up(*backend, rows, n);
      backend->linear(x.view(), *weight, bias.vector(), gate_up.view());
      for (const GateSpec& gate : kGates) {
        backend->linear_gate_mul(x.view(), *weight, bias.vector(), gate, fused.view());
        backend->gate_mul(gate_up.view(), gate, split.view());
        ASSERT_EQ(fused.values(), split.values()) << rows << " x " << k << " -> " << n;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, LoraParity,
                         testing::Combine(testing::ValuesIn(kernel_isas()),
                                          testing::Values(DType::kF32, DType::kBF16, DType::kF16)),
                         param_name);

}  // namespace
}  // namespace headrace::parity
