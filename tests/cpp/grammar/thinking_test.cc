#include "headrace/thinking.h"

#include <gtest/gtest.h>

#include <functional>

#include "fakes/fake_constraint.h"
#include "headrace/status.h"

namespace headrace {
namespace {

using testing::FakeConstraint;
using testing::Following;
using Ids = std::vector<int32_t>;

constexpr int32_t kVocab = 64;
constexpr int32_t kBegin = 10;
constexpr int32_t kEnd = 11;

struct Step {
  Ids allowed;  // "all": every id of the vocabulary
  bool may_end;
};

Ids all() {
  Ids out;
  for (int32_t i = 0; i < kVocab; ++i) out.push_back(i);
  return out;
}

Step next(TokenMatcher& matcher) {
  std::vector<uint32_t> mask(kVocab / 32);
  Step step{{}, matcher.next(mask)};
  for (int32_t i = 0; i < kVocab; ++i) {
    if (mask[size_t(i) / 32] >> (i % 32) & 1) step.allowed.push_back(i);
  }
  return step;
}

void expect(TokenMatcher& matcher, const Ids& allowed, bool may_end) {
  const Step step = next(matcher);
  EXPECT_EQ(step.allowed, allowed);
  EXPECT_EQ(step.may_end, may_end);
}

/// Exactly 20, 21, then the end.
std::shared_ptr<FakeConstraint> answer() {
  return FakeConstraint::make([](std::span<const int32_t> output) {
    const Ids wanted = {20, 21};
    if (output.size() == wanted.size()) return Following{{}, true};
    return Following{{wanted[output.size()]}, false};
  });
}

TEST(Thinking, AfterExactlySoManyTokensTheMarkerIsForced) {
  const auto limited = limit_thinking({{}, {kEnd}, {5, kEnd, 6}, 3}, nullptr);
  const auto matcher = limited->start();
  for (const int32_t token : {1, 2, 3}) {
    expect(*matcher, all(), false);
    matcher->append(token);
  }
  for (const int32_t token : {5, kEnd, 6}) {
    expect(*matcher, {token}, false);
    matcher->append(token);
  }
  for (int i = 0; i < 9; ++i) {  // a later marker is text
    expect(*matcher, all(), true);
    matcher->append(kEnd);
  }
}

TEST(Thinking, AModelThatEndsItEarlierIsLeftAlone) {
  const auto limited = limit_thinking({{}, {kEnd}, {kEnd}, 3}, answer());
  const auto matcher = limited->start();
  for (const int32_t token : {1, 2, kEnd}) {
    expect(*matcher, all(), false);
    matcher->append(token);
  }
  expect(*matcher, {20}, false);
  matcher->append(20);
  expect(*matcher, {21}, false);
  matcher->append(21);
  expect(*matcher, {}, true);
}

TEST(Thinking, NoBudgetMeansTheMarkerAtOnce) {
  const auto matcher = limit_thinking({{}, {kEnd}, {kEnd}, 0}, nullptr)->start();
  expect(*matcher, {kEnd}, false);
}

TEST(Thinking, WithoutALimitItGoesOn) {
  const auto matcher = limit_thinking({{}, {kEnd}, {kEnd}, -1}, answer())->start();
  for (int i = 0; i < 1000; ++i) {
    expect(*matcher, all(), false);
    matcher->append(1);
  }
  matcher->append(kEnd);
  expect(*matcher, {20}, false);
}

TEST(Thinking, TheModelMayOpenItFirstThing) {
  const auto limited = limit_thinking({{kBegin, 12}, {kEnd, 13}, {kEnd, 13}, 2}, answer());
  const auto thinks = limited->start();
  expect(*thinks, {kBegin, 20}, false);
  thinks->append(kBegin);
  expect(*thinks, {12}, false);
  thinks->append(12);
  for (const int32_t token : {1, kEnd}) {
    expect(*thinks, all(), false);
    thinks->append(token);
  }
  expect(*thinks, {kEnd}, false);

  const auto answers = limited->start();
  next(*answers);
  answers->append(20);
  expect(*answers, {21}, false);
}

TEST(Thinking, WithoutAnAnswersConstraintAnythingMayOpenTheOutput) {
  const auto limited = limit_thinking({{kBegin, 12}, {kEnd}, {kEnd}, 0}, nullptr);
  const auto matcher = limited->start();
  expect(*matcher, all(), true);
  matcher->append(kBegin);
  expect(*matcher, all(), true);
  matcher->append(12);
  expect(*matcher, {kEnd}, false);

  const auto other = limited->start();
  other->append(kBegin);
  other->append(1);  // that was no thinking
  expect(*other, all(), true);
}

TEST(Thinking, LimitsThatMakeNoSense) {
  const std::vector<ThinkingLimits> wrong = {
      {{}, {}, {1}, 1},   {{}, {1}, {}, 1},    {{}, {1}, {2}, 1},
      {{}, {1}, {1}, -2}, {{-1}, {1}, {1}, 1},
  };
  for (const ThinkingLimits& limits : wrong) EXPECT_THROW(limit_thinking(limits, nullptr), Error);
}

}  // namespace
}  // namespace headrace
