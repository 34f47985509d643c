#include "sample/validate.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "headrace/status.h"

namespace headrace {
namespace {

constexpr int32_t kVocab = 100;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct BadCase {
  const char* name;
  std::function<void(SamplingParams&)> spoil;
  std::vector<std::string> mentions;
};

class BadParams : public testing::TestWithParam<BadCase> {};

TEST_P(BadParams, AreRefusedByName) {
  SamplingParams params;
  GetParam().spoil(params);
  try {
    validate_sampling_params(params, kVocab);
    FAIL() << "was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    for (const auto& word : GetParam().mentions) {
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
    }
  }
}

using P = SamplingParams;

INSTANTIATE_TEST_SUITE_P(
    Fields, BadParams,
    testing::Values(
        BadCase{"cold", [](P& p) { p.temperature = -1; }, {"temperature", "-1", "non-negative"}},
        BadCase{"temperature_nan", [](P& p) { p.temperature = kNan; }, {"temperature", "nan"}},
        BadCase{"temperature_inf", [](P& p) { p.temperature = kInf; }, {"temperature", "inf"}},
        BadCase{"top_p_high", [](P& p) { p.top_p = 1.5f; }, {"top_p", "[0, 1]", "1.5"}},
        BadCase{"top_p_nan", [](P& p) { p.top_p = kNan; }, {"top_p", "nan"}},
        BadCase{"top_k", [](P& p) { p.top_k = -2; }, {"top_k", "-2"}},
        BadCase{"min_p", [](P& p) { p.min_p = -0.5f; }, {"min_p", "[0, 1]", "-0.5"}},
        BadCase{
            "repetition_0", [](P& p) { p.repetition_penalty = 0; }, {"repetition_penalty", "0"}},
        BadCase{"repetition_inf", [](P& p) { p.repetition_penalty = kInf; }, {"inf"}},
        BadCase{"frequency", [](P& p) { p.frequency_penalty = 3; }, {"frequency_penalty", "3"}},
        BadCase{"presence", [](P& p) { p.presence_penalty = kNan; }, {"presence_penalty", "nan"}},
        BadCase{"ngram",
                [](P& p) { p.no_repeat_ngram_size = -1; },
                {"no_repeat_ngram_size", "-1", "[0, 64]"}},
        BadCase{"ngram_long", [](P& p) { p.no_repeat_ngram_size = 65; }, {"64", "65"}},
        BadCase{"bias_id", [](P& p) { p.logit_bias = {{kVocab, 1.0f}}; }, {"logit_bias", "100"}},
        BadCase{"bias_inf", [](P& p) { p.logit_bias = {{1, -kInf}}; }, {"logit_bias", "-inf"}},
        BadCase{
            "bias_twice", [](P& p) { p.logit_bias = {{7, 1}, {3, 1}, {7, 2}}; }, {"7", "twice"}},
        BadCase{"biases", [](P& p) { p.logit_bias.resize(1025); }, {"logit_bias", "1024", "1025"}},
        BadCase{"bad_word_empty", [](P& p) { p.bad_words = {{}}; }, {"bad_words", "1 to 64"}},
        BadCase{"bad_word_id", [](P& p) { p.bad_words = {{1, -5}}; }, {"bad_words", "-5", "100"}},
        BadCase{"bad_words", [](P& p) { p.bad_words.assign(1025, {1}); }, {"bad_words", "1025"}},
        BadCase{"max_tokens", [](P& p) { p.max_tokens = -1; }, {"max_tokens", "-1"}},
        BadCase{"min_tokens", [](P& p) { p.min_tokens = -3; }, {"min_tokens", "-3"}},
        BadCase{"min_above_max", [](P& p) { p.max_tokens = 4, p.min_tokens = 5; }, {"4", "5"}},
        BadCase{"stop_id", [](P& p) { p.stop_token_ids = {-1}; }, {"stop_token_ids", "-1"}},
        BadCase{"stop_ids", [](P& p) { p.stop_token_ids.assign(1025, 1); }, {"stop_token_ids"}},
        BadCase{"stop_long",
                [](P& p) { p.stop_sequences = {std::vector<int32_t>(65, 1)}; },
                {"stop_sequences", "65"}},
        BadCase{"stop_many", [](P& p) { p.stop_sequences.assign(65, {1}); }, {"64", "65"}},
        BadCase{"logprobs", [](P& p) { p.logprobs = -1; }, {"logprobs", "-1", "[0, 100]"}},
        BadCase{
            "prompt_logprobs", [](P& p) { p.prompt_logprobs = 101; }, {"prompt_logprobs", "101"}},
        BadCase{"kind", [](P& p) { p.logprobs_kind = static_cast<LogprobsKind>(5); }, {"5"}}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(Validate, AcceptsTheEdges) {
  SamplingParams params;
  validate_sampling_params(params, kVocab);
  params.temperature = 0;
  params.top_p = 0;
  params.top_k = -1;
  params.min_p = 1;
  params.frequency_penalty = -2;
  params.presence_penalty = 2;
  params.no_repeat_ngram_size = 64;
  params.logit_bias = {{0, -100.0f}, {kVocab - 1, 100.0f}};
  params.bad_words = {std::vector<int32_t>(64, 3)};
  params.max_tokens = params.min_tokens = 1;
  params.stop_token_ids = {5, 5};
  params.logprobs = 0;
  params.prompt_logprobs = kVocab;
  params.logprobs_kind = LogprobsKind::kPenalizedLogprobs;
  validate_sampling_params(params, kVocab);
}

}  // namespace
}  // namespace headrace
