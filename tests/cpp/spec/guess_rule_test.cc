#include "spec/guess_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace headrace {
namespace {

constexpr int32_t kMost = 8;

GuessRule rule_of(const StepCosts& costs, int32_t decodes, int32_t most = kMost) {
  GuessRule rule(costs, most);
  rule.note_step(0, decodes);
  return rule;
}

TEST(StepCosts, OfADenseModelAreReadingAndRows) {
  const StepCosts costs{.read_rows = 10};
  EXPECT_DOUBLE_EQ(costs.step(1), 11);
  EXPECT_DOUBLE_EQ(costs.step(7), 17);
}

TEST(StepCosts, MoreRowsMeetMoreExperts) {
  const StepCosts costs{.read_rows = 10, .expert_share = 0.5, .experts_met = 6.0 / 64};
  EXPECT_DOUBLE_EQ(costs.step(1), 11);
  EXPECT_NEAR(costs.step(2), 10 * (0.5 + 0.5 * 11.4375 / 6) + 2, 1e-9) << "11.4 of 64";
  EXPECT_NEAR(costs.step(1000), 10 * (0.5 + 0.5 * 64 / 6) + 1000, 1e-9);
}

// The decision, by how likely guesses are and how many requests decode.
TEST(GuessRule, GuessesWhatSavesMost) {
  struct Row {
    double chance;
    std::vector<int32_t> decodes, counts;
  };
  struct Table {
    const char* name;
    StepCosts costs;
    std::vector<Row> rows;
  };
  const std::vector<int32_t> batches = {1, 2, 4, 8, 32};
  const std::vector<Table> tables = {
      {"CPU",
       {.read_rows = 4},
       {{0.05, batches, {0, 0, 0, 0, 0}},
        {0.3, batches, {1, 0, 0, 0, 0}},
        {0.6, batches, {3, 2, 1, 0, 0}},
        {0.8, batches, {7, 4, 3, 1, 0}},
        {0.95, batches, {8, 8, 8, 7, 2}},
        {1, batches, {8, 8, 8, 8, 8}}}},
      {"GPU",
       {.read_rows = 32},
       {{0.01, batches, {0, 0, 0, 0, 0}},
        {0.05, batches, {1, 0, 0, 0, 0}},
        {0.3, batches, {2, 2, 1, 1, 0}},
        {0.6, batches, {6, 5, 4, 3, 1}},
        {0.8, batches, {8, 8, 8, 7, 3}}}},
      {"a draft model of a tenth",
       {.read_rows = 32, .drafter = 0.1},
       {{0.1, batches, {0, 0, 0, 0, 0}},
        {0.3, batches, {1, 1, 1, 1, 0}},
        {0.8, batches, {8, 8, 6, 5, 2}}}},
      {"experts: few rows read more of them, many rows all",
       {.read_rows = 4, .expert_share = 0.8, .experts_met = 0.1},
       {{0.6, batches, {0, 0, 0, 0, 1}}, {0.95, batches, {8, 8, 8, 8, 8}}}},
  };
  for (const Table& table : tables) {
    for (const Row& row : table.rows) {
      for (size_t i = 0; i < row.decodes.size(); ++i) {
        const GuessRule rule = rule_of(table.costs, row.decodes[i]);
        EXPECT_EQ(rule.count(row.chance), row.counts[i])
            << table.name << ", chance " << row.chance << ", " << row.decodes[i] << " requests";
      }
    }
  }
}

TEST(GuessLuck, CountsTheLatestGuesses) {
  GuessLuck luck;
  EXPECT_DOUBLE_EQ(luck.chance(), 0.5);
  luck.record(4, 2);  // the third was wrong, and the fourth says nothing
  EXPECT_DOUBLE_EQ(luck.chance(), 3.0 / 5);
  for (int i = 0; i < 100; ++i) luck.record(8, 8);
  EXPECT_GE(luck.chance(), 0.9);
  for (int i = 0; i < 2 * GuessRule::kWindow; ++i) luck.record(1, 0);
  EXPECT_LT(luck.chance(), 0.2);
}

struct Story {
  int64_t steps = 0, tokens = 0, computed = 0;
  double spent = 0;  ///< steps
  /// Time of what was generated, as a share of the time without guesses.
  double time() const { return (static_cast<double>(steps) + spent) / static_cast<double>(tokens); }
};

/// A request alone of `tokens` tokens, each of which a guess meets with probability `chance`, on a
/// device where a row costs `real` times what the rule takes it for.
Story run(GuessLuck& luck, double chance, int64_t tokens, uint32_t seed, double real = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> unit;
  const StepCosts costs;
  GuessRule rule = rule_of(costs, 1);
  Story out;
  while (out.tokens < tokens) {
    const int32_t computed = rule.allow(luck);
    int32_t confirmed = 0;
    while (confirmed < computed && unit(random) < chance) ++confirmed;
    rule.note_result(luck, computed, confirmed);
    out.spent += real * (costs.step(1 + computed) / costs.step(1) - 1);
    out.computed += computed;
    out.tokens += confirmed + 1;
    ++out.steps;
  }
  return out;
}

TEST(GuessRule, WrongGuessesCostLittle) {
  for (const double real : {0.3, 1.0, 2.0}) {
    for (const double chance : {0.0, 0.02, 0.1}) {
      double time = 0;
      for (uint32_t seed = 1; seed <= 20; ++seed) {
        GuessLuck luck;
        time += run(luck, chance, 200, seed, real).time() / 20;
      }
      EXPECT_LE(time, 1 + 0.02 * std::max(real, 1.0)) << real << " " << chance;
    }
  }
}

TEST(GuessRule, FewGuessesWhereNoneIsRight) {
  GuessLuck luck;
  const Story out = run(luck, 0, 64'000, 1);
  EXPECT_LE(out.computed, 64'000 / GuessRule::kProbeSteps + 5);
  EXPECT_GE(out.computed, 64'000 / GuessRule::kProbeSteps) << "and it tries again";
}

TEST(GuessRule, ManyGuessesWhereAllAreRight) {
  GuessLuck luck;
  const Story out = run(luck, 1, 2000, 1);
  EXPECT_LT(out.steps, 2000 / 8);
}

TEST(GuessRule, ComesBackWhenItsLuckChanges) {
  GuessLuck luck;
  run(luck, 0, 1000, 1);
  EXPECT_LT(run(luck, 1, 1000, 2).time(), 0.6);
}

TEST(GuessRule, LongLuckBuysNoLongWaste) {
  GuessLuck luck;
  run(luck, 1, 1000, 1);
  EXPECT_LT(run(luck, 0, 1000, 2).spent, 1000.0 / GuessRule::kProbeSteps + 30);
}

TEST(GuessRule, DecidesTheSameEachTime) {
  GuessLuck one, other;
  EXPECT_EQ(run(one, 0.5, 2000, 7).computed, run(other, 0.5, 2000, 7).computed);
}

TEST(GuessRule, ReadingIsPaidFromABudget) {
  GuessRule rule({.read_rows = 7, .drafter = 0.5}, kMost);
  const int32_t first = 2 * static_cast<int32_t>(GuessRule::kFirstRows);
  EXPECT_TRUE(rule.can_read(first));
  EXPECT_FALSE(rule.can_read(first + 1));
  rule.note_read(first);
  EXPECT_TRUE(rule.can_read(0));
  EXPECT_FALSE(rule.can_read(1));
  rule.note_step(GuessRule::kProbeSteps, 1);
  EXPECT_TRUE(rule.can_read(2)) << "rows that were computed";
  EXPECT_FALSE(rule.can_read(3));
  GuessLuck luck;
  rule.note_result(luck, 1, 1);
  EXPECT_TRUE(rule.can_read(6)) << "a quarter of 8 rows";
  EXPECT_FALSE(rule.can_read(7));
}

TEST(GuessRule, LongLuckBuysNoLongReading) {
  GuessRule rule({.read_rows = 32, .drafter = 0.1}, kMost);
  GuessLuck luck;
  for (int step = 0; step < 100'000; ++step) {
    rule.note_step(9, 1);
    rule.note_result(luck, 8, 8);
  }
  int64_t read = 0;
  for (; rule.can_read(100) && read < 1'000'000; read += 100) rule.note_read(100);
  EXPECT_NEAR(static_cast<double>(read), GuessRule::kMostRows / 0.1, 200);
  for (int step = 0; step < 1000; ++step) rule.note_step(GuessRule::kProbeSteps, 1);
  EXPECT_TRUE(rule.can_read(1000)) << "what is spent is earned again";
}

}  // namespace
}  // namespace headrace
