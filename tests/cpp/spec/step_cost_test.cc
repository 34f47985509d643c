#include "spec/step_cost.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(StepCost, IsCautiousBeforeItHasSeenAnything) {
  StepCost cost;
  EXPECT_EQ(cost.seconds(3), 0);
  EXPECT_DOUBLE_EQ(cost.extra(1, 3), 3 * StepCost::kUnknown);
  cost.observe(1, 0.01);
  EXPECT_DOUBLE_EQ(cost.extra(1, 3), 3 * StepCost::kUnknown);
}

TEST(StepCost, TellsWhatRowsAdd) {
  StepCost cost;
  cost.observe(1, 0.010);
  cost.observe(5, 0.014);
  EXPECT_NEAR(cost.extra(1, 4), 0.4, 1e-9);
  EXPECT_NEAR(cost.extra(1, 2), 0.2, 1e-9);
  EXPECT_GT(cost.extra(1, 6), 0.4 + 2 * StepCost::kUnknown / 2 - 1e-9) << "unseen: not for less";
}

TEST(StepCost, WhatWasSeenLongAgoCountsLess) {
  StepCost cost;
  cost.observe(5, 0.020);
  for (int i = 0; i < 64; ++i) cost.observe(1, 0.010);
  EXPECT_NEAR(cost.extra(1, 4), 0.5, 0.01);
  cost.observe(5, 0.020);
  EXPECT_NEAR(cost.extra(1, 4), 1.0, 0.02);
}

TEST(StepCost, RowsAreNeverFree) {
  StepCost cost;
  cost.observe(1, 0.010);
  cost.observe(3, 0.009);
  EXPECT_DOUBLE_EQ(cost.extra(1, 2), 2 * StepCost::kLeast);
}

TEST(StepCost, FollowsChangesButNotOutliers) {
  StepCost cost;
  for (int i = 0; i < 20; ++i) cost.observe(1, 0.010);
  cost.observe(1, 1.0);
  EXPECT_LT(cost.seconds(1), 0.011);
  for (int i = 0; i < 100; ++i) cost.observe(1, 0.020);
  EXPECT_NEAR(cost.seconds(1), 0.020, 0.001);
}

TEST(StepCost, IgnoresStepsOutOfRange) {
  StepCost cost;
  cost.observe(0, 1);
  cost.observe(StepCost::kMaxRows + 1, 1);
  EXPECT_EQ(cost.seconds(1), 0);
}

}  // namespace
}  // namespace headrace
