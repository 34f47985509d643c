// plan_linear(): which tiles and clusters, and what its model says of them.

#include "cuda/kernels/linear/linear_plan.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace::cuda {
namespace {

struct Chosen {
  int64_t features, k, rows;
  LinearPlan plan;
};

std::string text(const LinearPlan& plan) {
  return (plan.streams ? "stream " : "wgmma ") + std::to_string(plan.tokens) + " x " +
         std::to_string(plan.features) + " in " + std::to_string(plan.cluster.tokens) + " x " +
         std::to_string(plan.cluster.features);
}

// The layers of an 8B shape on an H100: each the fastest one that the card measured, or within 5 %
// of it (docs/lab/cuda_linear.md).
TEST(LinearPlan, OfAnEightBillionShape) {
  const Chosen chosen[] = {
      {4096, 4096, 128, {true, 64, 64, {2, 1}}},     {4096, 4096, 256, {true, 128, 64, {1, 2}}},
      {4096, 4096, 384, {false, 128, 128, {1, 4}}},  {4096, 4096, 512, {false, 128, 128, {2, 1}}},
      {4096, 4096, 768, {false, 128, 192, {2, 1}}},  {4096, 4096, 1024, {false, 128, 256, {2, 1}}},
      {4096, 14336, 128, {true, 64, 64, {2, 1}}},    {4096, 14336, 256, {true, 128, 64, {1, 2}}},
      {4096, 14336, 384, {false, 128, 128, {1, 4}}}, {4096, 14336, 512, {false, 128, 128, {2, 1}}},
      {6144, 4096, 128, {true, 128, 64, {1, 1}}},    {6144, 4096, 256, {false, 128, 128, {2, 2}}},
      {6144, 4096, 384, {false, 128, 192, {1, 1}}},  {6144, 4096, 512, {false, 128, 192, {2, 1}}},
      {28672, 4096, 128, {false, 128, 224, {1, 1}}}, {28672, 4096, 256, {false, 128, 224, {2, 1}}},
      {28672, 4096, 384, {false, 128, 224, {1, 2}}}, {28672, 4096, 4096, {false, 128, 256, {2, 1}}},
  };
  for (const Chosen& one : chosen) {
    EXPECT_EQ(text(plan_linear({one.rows, one.features, one.k}, {})), text(one.plan))
        << one.rows << " x " << one.features << " x " << one.k;
  }
}

// 257 to 384 rows are three tiles of 128, not four.
TEST(LinearPlan, TilesOfTokensAreNotPaddedToPairs) {
  for (const int64_t features : {4096, 6144, 28672}) {
    EXPECT_EQ(plan_linear({300, features, 4096}, {}).cluster.tokens, 1) << features;
  }
}

TEST(LinearPlan, NeedsRoomForItsClusters) {
  for (const int64_t rows : {65, 128, 256, 1000}) {
    for (const int64_t features : {64, 4096, 28672}) {
      EXPECT_LE(plan_linear({rows, features, 4096}, {.quads = 0}).cluster.size(), 2);
      EXPECT_EQ(plan_linear({rows, features, 4096}, {1, 0}).cluster.size(), 1);
    }
  }
}

// An H100 has room for 30 clusters of four: 32 take a second round.
TEST(LinearPlan, KnowsThatARoundIsAsLongAsAnother) {
  const LinearPlan plan{true, 128, 64, {2, 2}};
  const LinearSize size{256, 4096, 4096};
  EXPECT_GT(linear_cycles(plan, size, {}), 1.5 * linear_cycles(plan, size, {.quads = 32}));
  EXPECT_EQ(text(plan_linear(size, {.quads = 32})), text(plan));
}

TEST(LinearPlan, IsTheFastest) {
  for (int64_t rows = 65; rows < 5000; rows += 61) {
    for (const int64_t features : {192, 1024, 5120, 28672}) {
      const LinearSize size{rows, features, 2048};
      const double cycles = linear_cycles(plan_linear(size, {}), size, {});
      for (const LinearPlan& plan : linear_plans()) {
        ASSERT_LE(cycles, linear_cycles(plan, size, {})) << text(plan);
      }
    }
  }
}

}  // namespace
}  // namespace headrace::cuda
