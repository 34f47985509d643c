// What is around the products of experts: sorting, routing, adding rows; in the emulation, against
// plain loops.

#include <cmath>
#include <map>
#include <optional>

#include "cuda/kernels/experts/add_gated.h"
#include "cuda/kernels/experts/sort_pairs.h"
#include "cuda/kernels/route/route.h"
#include "random_ids.h"

namespace headrace::cuda {
namespace {

class ExpertRows : public KernelTest {
 protected:
  Random random_{61};
};

struct Sorted {
  std::vector<int32_t> pair_rows, places;
  std::vector<ExpertTile> tiles;
};

struct SortShape {
  int64_t top_k;
  int32_t experts, tile_rows;
};

Sorted run_sort(const std::vector<int32_t>& ids, const SortShape& s,
                std::optional<int32_t> used = {}) {
  const auto pairs = static_cast<int64_t>(ids.size()), rows = pairs / s.top_k;
  const DeviceArray<int32_t> in(ids), pair_rows(ids.size()), places(ids.size());
  const DeviceArray<int32_t> used_rows = {used.value_or(0)};
  const DeviceArray<ExpertTile> tiles(
      static_cast<size_t>(most_expert_tiles(rows, s.top_k, s.experts, s.tile_rows)));
  sort_pairs({.ids = in.data(),
              .ids_stride = s.top_k,
              .rows = rows,
              .top_k = s.top_k,
              .experts = s.experts,
              .used_rows = used ? used_rows.data() : nullptr,
              .tile_rows = s.tile_rows,
              .pair_rows = pair_rows.data(),
              .places = places.data(),
              .tiles = tiles.data()},
             nullptr);
  return {pair_rows.values(), places.values(), tiles.values()};
}

/// Expects what a stable sort by expert gives; -1 is no expert.
void expect_sorted(const std::vector<int32_t>& ids, const SortShape& s, const Sorted& got) {
  std::map<int32_t, std::vector<int32_t>> rows;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0)
      rows[ids[i]].push_back(static_cast<int32_t>(static_cast<int64_t>(i) / s.top_k));
  }
  int32_t pair = 0;
  size_t tile = 0;
  for (const auto& [expert, its_rows] : rows) {
    const auto count = static_cast<int32_t>(its_rows.size());
    for (int32_t first = 0; first < count; first += s.tile_rows, ++tile) {
      ASSERT_LT(tile, got.tiles.size());
      EXPECT_EQ(got.tiles[tile].expert, expert);
      EXPECT_EQ(got.tiles[tile].first, pair + first);
      EXPECT_EQ(got.tiles[tile].rows, std::min(count - first, s.tile_rows));
    }
    for (const int32_t row : its_rows) EXPECT_EQ(got.pair_rows[size_t(pair++)], row);
  }
  for (; tile < got.tiles.size(); ++tile) EXPECT_EQ(got.tiles[tile].rows, 0);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0) {
      EXPECT_EQ(got.places[i], -1);
      continue;
    }
    ASSERT_TRUE(got.places[i] >= 0 && got.places[i] < pair);
    EXPECT_EQ(got.pair_rows[size_t(got.places[i])], static_cast<int64_t>(i) / s.top_k);
  }
}

TEST_P(ExpertRows, SortsPairsByExpertThenRow) {
  SCOPED_TRACE(random_.trace());
  const SortShape shapes[] = {{1, 1, 8},    {1, 7, 8},     {4, 20, 16},   {8, 128, 8},
                              {64, 64, 32}, {64, 200, 64}, {3, 1024, 16}, {33, 1000, 128}};
  for (const SortShape& s : shapes) {
    for (const int64_t rows : {1, 2, 17, 150}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << s.top_k << " of " << s.experts);
      const auto ids = random_ids(random_, rows, s.top_k, s.experts);
      expect_sorted(ids, s, run_sort(ids, s));
    }
  }
}

TEST_P(ExpertRows, AllRowsMayChooseOneExpert) {
  for (const SortShape& s : {SortShape{1, 5, 8}, SortShape{1, 1024, 16}}) {
    const std::vector<int32_t> ids(100, s.experts - 1);
    expect_sorted(ids, s, run_sort(ids, s));
  }
}

TEST_P(ExpertRows, PaddingAndWhatIsNoExpertMakeNoPairs) {
  const SortShape s{2, 9, 8};
  auto ids = random_ids(random_, 40, 2, 9);
  for (const int32_t used : {0, 1, 33, 40}) {
    auto expected = ids;
    std::fill(expected.begin() + 2 * used, expected.end(), -1);
    // Whatever padding has chosen.
    auto chosen = ids;
    std::fill(chosen.begin() + 2 * used, chosen.end(), 1 << 30);
    expect_sorted(expected, s, run_sort(chosen, s, used));
  }
  ids[3] = -1;
  ids[50] = -1;
  auto wrong = ids;
  wrong[3] = -7;
  wrong[50] = 9;
  expect_sorted(ids, s, run_sort(wrong, s));
}

// Ids that break the contract cost nobody's memory: both of a pair have a place of their own.
TEST_P(ExpertRows, AnExpertThatARowNamesTwiceHasTwoPairs) {
  const SortShape s{2, 4, 8};
  const std::vector<int32_t> ids(20, 3);
  const Sorted got = run_sort(ids, s);
  std::vector<int32_t> places = got.places;
  std::sort(places.begin(), places.end());
  for (int32_t i = 0; i < 20; ++i) EXPECT_EQ(places[size_t(i)], i);
}

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Routed run_route(DType dtype, const std::vector<float>& x, const DeviceMatrix& gate, int64_t hidden,
                 const RouterSpec& spec, int64_t gap = 0) {
  const auto rows = static_cast<int64_t>(x.size()) / hidden;
  const DeviceMatrix in(dtype, rows, hidden, x, gap);
  const auto pairs = static_cast<size_t>(rows * spec.top_k);
  const DeviceArray<float> logits(static_cast<size_t>(rows * spec.num_experts)), weights(pairs);
  const DeviceArray<int32_t> ids(pairs);
  route({.dtype = dtype,
         .x = in.matrix(),
         .gate = static_cast<const float*>(gate.data()),
         .gate_stride = gate.cols(),
         .spec = spec,
         .logits = logits.data(),
         .ids = ids.data(),
         .ids_stride = spec.top_k,
         .weights = weights.data(),
         .weights_stride = spec.top_k},
        nullptr);
  return {ids.values(), weights.values()};
}

// The same chains for few rows and many, aligned or not, and whatever dtype holds the numbers.
TEST_P(ExpertRows, ARowsRouteDependsOnItAlone) {
  SCOPED_TRACE(random_.trace());
  const int64_t hidden = 201, rows = 21;
  const RouterSpec spec{.num_experts = 37, .top_k = 5};
  DeviceMatrix gate(DType::kF32, 37, 256, std::vector<float>(37 * 256));
  for (int64_t i = 0; i < 37; ++i) {
    for (int64_t j = 0; j < hidden; ++j) gate.set(i, j, random_.uniform(-1.0f, 1.0f));
  }
  const auto x = random_.uniforms(DType::kBF16, rows * hidden);
  const Routed want = run_route(DType::kF32, x, gate, hidden, spec);
  for (const int64_t gap : {0, 7}) {
    const Routed got = run_route(DType::kBF16, x, gate, hidden, spec, gap);
    EXPECT_EQ(got.ids, want.ids);
    EXPECT_EQ(got.weights, want.weights);
  }
  for (int64_t row = 0; row < rows; ++row) {
    const Routed one = run_route(
        DType::kBF16, std::vector<float>(x.begin() + row * hidden, x.begin() + (row + 1) * hidden),
        gate, hidden, spec);
    EXPECT_TRUE(std::equal(one.ids.begin(), one.ids.end(), want.ids.begin() + row * 5));
    EXPECT_TRUE(std::equal(one.weights.begin(), one.weights.end(), want.weights.begin() + row * 5));
  }
}

// A chain of H / 128 products and a tree of 7 sums are off by one roundoff each of the sum of
// magnitudes; a sigmoid changes by a quarter of that at most and adds some roundoffs; then one
// product and sum, rounded to the dtype.
TEST_P(ExpertRows, AddsSharesOfRows) {
  SCOPED_TRACE(random_.trace());
  const int64_t rows = 3;
  for (const DType dtype : kDTypes) {
    for (const int64_t hidden : {1, 70, 300}) {
      const int64_t width = 130;
      const auto x = random_.uniforms(dtype, rows * hidden), gate = random_.uniforms(dtype, hidden);
      const auto delta = random_.uniforms(dtype, rows * width);
      const auto start = random_.uniforms(dtype, rows * width);
      const DeviceMatrix in(dtype, rows, hidden, x, 1), gates(dtype, 1, hidden, gate);
      const DeviceMatrix add(dtype, rows, width, delta, 3);
      const DeviceMatrix gated(dtype, rows, width, start);
      add_gated({.dtype = dtype,
                 .delta = add.matrix(),
                 .gate = gates.data(),
                 .x = in.matrix(),
                 .out = gated.matrix()},
                nullptr);
      for (int64_t i = 0; i < rows; ++i) {
        double dot = 0.0, size = 0.0;
        for (int64_t j = 0; j < hidden; ++j) {
          const double term = double(x[size_t(i * hidden + j)]) * double(gate[size_t(j)]);
          dot += term;
          size += std::abs(term);
        }
        const double share = 1.0 / (1.0 + std::exp(-dot));
        const double off = (0.25 * (double(hidden) / 128 + 9) * size + 8.0) * 0x1p-24;
        for (int64_t j = 0; j < width; ++j) {
          const float d = delta[size_t(i * width + j)], s = start[size_t(i * width + j)];
          const double want = double(s) + share * double(d), most = off * std::abs(double(d));
          ASSERT_NEAR(gated.at(i, j), want,
                      1.01 * (most + (std::abs(want) + most) * (roundoff(dtype) + 0x1p-24)));
        }
      }
    }
  }
}

HEADRACE_KERNEL_TESTS(ExpertRows);

}  // namespace
}  // namespace headrace::cuda
