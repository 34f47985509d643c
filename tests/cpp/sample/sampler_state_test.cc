#include "sample/sampler_state.h"

#include <gtest/gtest.h>

#include <map>

#include "base/check.h"

namespace headrace {
namespace {

using Ids = std::vector<int32_t>;

Ids ids(std::span<const int32_t> span) { return {span.begin(), span.end()}; }

std::map<int32_t, int32_t> counts(const SampleRow& row) {
  std::map<int32_t, int32_t> out;
  for (const SeenToken& seen : row.seen) {
    EXPECT_TRUE(out.emplace(seen.token, seen.output_count).second) << "twice: " << seen.token;
  }
  return out;
}

TEST(SamplerState, GreedyHasThreeNames) {
  SamplingParams params;
  EXPECT_FALSE(is_greedy(params));
  EXPECT_TRUE(is_greedy({.temperature = 0}));
  EXPECT_TRUE(is_greedy({.temperature = 9e-6f}));
  EXPECT_FALSE(is_greedy({.temperature = 1e-4f}));
  EXPECT_TRUE(is_greedy({.top_p = 0}));
  EXPECT_TRUE(is_greedy({.top_k = 1}));
  EXPECT_FALSE(is_greedy({.top_k = -1}));

  SamplerState state({.temperature = 0, .top_p = 0}, 7, Ids{1}, {});
  const SampleRow row = state.next_row(3);
  EXPECT_TRUE(row.greedy);
  EXPECT_EQ(row.logits_row, 3);
  EXPECT_EQ(row.temperature, 1.0f);
  EXPECT_GT(row.top_p, 0.0f);
}

TEST(SamplerState, PositionIsTheIndexOfTheGeneratedToken) {
  SamplerState state({.top_k = -1, .seed = 1}, 99, Ids{1, 2, 3}, {});
  for (uint64_t i = 0; i < 3; ++i) {
    const SampleRow row = state.next_row(0);
    EXPECT_EQ(row.position, i);
    EXPECT_EQ(row.seed, 99u);
    EXPECT_EQ(row.top_k, 0);
    EXPECT_TRUE(row.seen.empty());
    state.append(5);
  }
}

TEST(SamplerState, ARowAheadIsTheRowToComeWhereNoTokenMatters) {
  SamplingParams params{.seed = 1, .min_tokens = 2};
  params.logit_bias = {{3, 1.0f}};
  params.bad_words = {{8}};
  SamplerState state(params, 99, Ids{1, 2}, {0});
  EXPECT_FALSE(state.follows_output());
  for (int i = 0; i < 3; ++i) {
    const SampleRow ahead = state.next_row(0, 1);
    const uint64_t position = ahead.position;
    const Ids masked = ids(ahead.masked), banned = ids(ahead.banned);
    state.append(5);
    const SampleRow row = state.next_row(0);
    EXPECT_EQ(position, row.position);
    EXPECT_EQ(masked, ids(row.masked));
    EXPECT_EQ(banned, ids(row.banned));
  }
  const std::vector<SamplingParams> following = {{.repetition_penalty = 1.2f},
                                                 {.frequency_penalty = 0.5f},
                                                 {.presence_penalty = 0.5f},
                                                 {.no_repeat_ngram_size = 2},
                                                 {.bad_words = {{8, 9}}}};
  for (const SamplingParams& follows : following) {
    SamplerState follower(follows, 0, Ids{1}, {});
    EXPECT_TRUE(follower.follows_output());
    EXPECT_THROW(follower.next_row(0, 1), InternalError);
  }
}

TEST(SamplerState, CountsPromptAndOutputForPenalties) {
  SamplerState state({.repetition_penalty = 1.2f}, 0, Ids{4, 9, 4}, {});
  EXPECT_EQ(counts(state.next_row(0)), (std::map<int32_t, int32_t>{{4, 0}, {9, 0}}));
  for (int32_t token : {9, 2, 9}) state.append(token);
  EXPECT_EQ(counts(state.next_row(0)), (std::map<int32_t, int32_t>{{4, 0}, {9, 2}, {2, 1}}));
}

TEST(SamplerState, OutputPenaltiesIgnoreThePrompt) {
  SamplerState state({.frequency_penalty = 0.5f}, 0, Ids{4, 9}, {});
  EXPECT_TRUE(state.next_row(0).seen.empty());
  state.append(9);
  EXPECT_EQ(counts(state.next_row(0)), (std::map<int32_t, int32_t>{{9, 1}}));
}

TEST(SamplerState, MasksEndTokensUntilMinTokens) {
  SamplerState state({.min_tokens = 2}, 0, Ids{1}, {7, 8});
  EXPECT_EQ(ids(state.next_row(0).masked), (Ids{7, 8}));
  state.append(3);
  EXPECT_EQ(ids(state.next_row(0).masked), (Ids{7, 8}));
  state.append(3);
  EXPECT_TRUE(state.next_row(0).masked.empty());
}

TEST(SamplerState, RepetitionMayLookAtTheOutputAlone) {
  SamplerState state({.repetition_penalty = 1.2f, .penalize_output_only = true}, 0, Ids{4, 9}, {});
  EXPECT_TRUE(state.next_row(0).seen.empty());
  for (int32_t token : {9, 2}) state.append(token);
  EXPECT_EQ(counts(state.next_row(0)), (std::map<int32_t, int32_t>{{9, 1}, {2, 1}}));
}

TEST(SamplerState, MasksWhatWouldRepeatAnNgram) {
  SamplerState state({.no_repeat_ngram_size = 2, .min_tokens = 2}, 0, Ids{1, 2, 1}, {7, 8});
  EXPECT_EQ(ids(state.next_row(0).masked), (Ids{7, 8, 2}));
  state.append(3);
  EXPECT_EQ(ids(state.next_row(0).masked), (Ids{7, 8}));
  state.append(1);
  EXPECT_EQ(ids(state.next_row(0).masked), (Ids{3, 2}));
  EXPECT_EQ(ids(state.next_row(0).masked), (Ids{3, 2})) << "asking changes nothing";
  EXPECT_TRUE(state.prompt_row(0, 2).masked.empty());
}

TEST(SamplerState, PenalizedLogprobsOfThePromptAreRaw) {
  SamplingParams params;
  params.logprobs = params.prompt_logprobs = 1;
  params.logprobs_kind = LogprobsKind::kPenalizedLogprobs;
  SamplerState state(params, 0, Ids{1, 2}, {});
  EXPECT_EQ(state.prompt_row(0, 2).logprobs_mode, LogprobsMode::kRawLogprobs);
  EXPECT_EQ(state.next_row(0).logprobs_mode, LogprobsMode::kPenalizedLogprobs);
}

TEST(SamplerState, BansTheLastTokenOfABadWord) {
  SamplerState state({.bad_words = {{5}, {1, 2}, {1, 1, 3}, {2, 5}}}, 0, Ids{1, 1}, {});
  EXPECT_EQ(ids(state.next_row(0).banned), (Ids{5})) << "the prompt does not begin a word";
  state.append(1);
  EXPECT_EQ(ids(state.next_row(0).banned), (Ids{2, 5}));
  state.append(1);
  EXPECT_EQ(ids(state.next_row(0).banned), (Ids{2, 3, 5}));
  state.append(2);
  EXPECT_EQ(ids(state.next_row(0).banned), (Ids{5})) << "each id once";
}

TEST(SamplerState, PromptRowsAreForcedAndUnprocessed) {
  SamplingParams params{.repetition_penalty = 2.0f, .logit_bias = {{1, 5.0f}}, .bad_words = {{3}}};
  params.prompt_logprobs = 4;
  params.logprobs_kind = LogprobsKind::kProcessedLogits;
  SamplerState state(params, 0, Ids{1, 2}, {});
  const SampleRow row = state.prompt_row(6, 2);
  EXPECT_EQ(row.logits_row, 6);
  EXPECT_EQ(row.forced_token, 2);
  EXPECT_EQ(row.num_logprobs, 4);
  EXPECT_EQ(row.logprobs_mode, LogprobsMode::kRawLogits);
  EXPECT_TRUE(row.seen.empty() && row.bias.empty() && row.banned.empty());

  const SampleRow next = state.next_row(0);
  EXPECT_EQ(next.forced_token, -1);
  EXPECT_EQ(next.num_logprobs, -1) << "logprobs were not asked for";
  EXPECT_EQ(next.logprobs_mode, LogprobsMode::kProcessedLogits);
  ASSERT_EQ(next.bias.size(), 1u);
  EXPECT_EQ(next.bias[0].token, 1);
}

}  // namespace
}  // namespace headrace
