#include "spec/draft_gate.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace headrace {
namespace {

std::vector<double> linear(double each, int32_t most) {
  std::vector<double> out;
  for (int32_t i = 1; i <= most; ++i) out.push_back(each * i);
  return out;
}

struct Story {
  int64_t steps = 0, tokens = 0, computed = 0, confirmed = 0;
  double spent = 0;
  /// Time of what was generated, as a share of the time without guesses.
  double time() const { return (static_cast<double>(steps) + spent) / static_cast<double>(tokens); }
};

/// `tokens` tokens, each of which a guess meets with probability `chance`.
Story run(DraftGate& gate, double chance, int64_t tokens, double each, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> unit;
  const std::vector<double> costs = linear(each, 8);
  Story out;
  while (out.tokens < tokens) {
    const int32_t computed = gate.allow(costs);
    int32_t confirmed = 0;
    while (confirmed < computed && unit(random) < chance) ++confirmed;
    const double cost = computed > 0 ? costs[static_cast<size_t>(computed) - 1] : 0;
    gate.record(computed, confirmed, cost);
    out.spent += cost;
    out.computed += computed;
    out.confirmed += confirmed;
    out.tokens += confirmed + 1;
    ++out.steps;
  }
  return out;
}

TEST(DraftGate, NeverSlowsByMoreThanItsShare) {
  for (const double each : {0.02, 0.1, 0.4, 1.0}) {
    for (const double chance : {0.0, 0.02, 0.1, 0.3, 0.5, 0.8}) {
      for (const int64_t tokens : {10, 50, 1000}) {
        for (uint32_t seed = 1; seed <= 20; ++seed) {
          DraftGate gate;
          const Story out = run(gate, chance, tokens, each, seed);
          EXPECT_LE(out.time(), 1 + DraftGate::kShare) << each << " " << chance << " " << seed;
        }
      }
    }
  }
}

TEST(DraftGate, FewGuessesWhereNoneIsRight) {
  DraftGate gate;
  const Story out = run(gate, 0, 2000, 0.02, 1);
  EXPECT_LE(out.computed, 2000 / DraftGate::kMaxPause + 20) << "it backs off";
  EXPECT_GE(out.computed, 2000 / DraftGate::kMaxPause / 2) << "and tries again";
}

TEST(DraftGate, ManyGuessesWhereAllAreRight) {
  DraftGate gate;
  const Story out = run(gate, 1, 2000, 0.05, 1);
  EXPECT_LT(static_cast<double>(out.steps), 2000.0 / 8);
  EXPECT_LT(out.time(), 0.2);
}

TEST(DraftGate, ComesBackWhenItsLuckChanges) {
  DraftGate gate;
  run(gate, 0, 1000, 0.05, 1);
  const Story out = run(gate, 1, 1000, 0.05, 2);
  EXPECT_LT(out.time(), 0.5);
}

TEST(DraftGate, LongLuckBuysNoLongWaste) {
  DraftGate gate;
  run(gate, 1, 1000, 0.05, 1);
  const Story out = run(gate, 0, 1000, 0.05, 2);
  const double most = DraftGate::kMost + DraftGate::kShare * 1000;
  EXPECT_LE(out.spent, most);
}

TEST(DraftGate, ComputesOnlyWhatPays) {
  DraftGate gate;
  run(gate, 0.5, 5000, 0.3, 1);
  EXPECT_LE(gate.allow(linear(0.3, 8)), 3);
  EXPECT_EQ(gate.allow({}), 0);
}

}  // namespace
}  // namespace headrace
