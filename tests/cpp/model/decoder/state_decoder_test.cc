// Models whose layers keep states: a sequence's bits depend on its tokens alone.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cpp/model/decoder_harness.h"
#include "cpp/model/golden_case.h"

namespace headrace {
namespace {

using Rows = std::vector<std::vector<float>>;

struct StatefulModel {
  const char *name, *golden;
  DType storage = DType::kF32;
  Quantization quantization = {};
};
constexpr StatefulModel kStatefulModels[] = {
    {"convolutions", "lfm2"},
    {"delta_rule_int4", "qwen3_5", DType::kBF16, {4, 32}},
    {"delta_rule_at_last", "qwen3_5_last"},
    {"scan_int8", "granite_hybrid_groups", DType::kBF16, {8, 64}},
    {"layers_of_one_block", "nemotron_h"},
    {"experts_at_last_int4", "nemotron_h_moe", DType::kBF16, {4, 32}},
    {"attention_beside_a_scan_int8", "falcon_h1", DType::kBF16, {8, 32}},
};

class StateDecoder : public testing::TestWithParam<StatefulModel> {
 protected:
  StateDecoder()
      : prompt_(load_golden_case(GetParam().golden).prompts[2].prompt),
        harness_("", load_golden_case(GetParam().golden).folder,
                 {.storage = GetParam().storage, .quantization = GetParam().quantization}) {
    for (int32_t i = 0; i < 3; ++i) harness_.start(i, static_cast<int32_t>(prompt_.size()));
  }

  std::vector<int32_t> tokens(size_t first, size_t count) const {
    const auto begin = prompt_.begin() + static_cast<std::ptrdiff_t>(first);
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }

  std::vector<int32_t> prompt_;
  DecoderHarness harness_;
};

TEST_P(StateDecoder, ChunksAndNeighboursDontMatter) {
  const Rows whole = harness_.step({{.sequence = 0, .tokens = prompt_}});
  Rows cut, single;
  size_t at = 0;
  for (const size_t count : {1, 30, 2, 37}) {
    const Rows rows = harness_.step(
        {{.sequence = 2, .tokens = tokens(0, 1)}, {.sequence = 1, .tokens = tokens(at, count)}});
    cut.insert(cut.end(), rows.begin() + 1, rows.end());
    at += count;
  }
  ASSERT_EQ(at, prompt_.size());
  EXPECT_EQ(cut, whole);
  harness_.start(2, static_cast<int32_t>(prompt_.size()));
  for (const int32_t token : prompt_) {
    single.push_back(harness_.step({{.sequence = 2, .tokens = {token}}}).front());
  }
  EXPECT_EQ(single, whole);
}

// The last layer's state must have seen the rows whose logits nobody wants.
TEST_P(StateDecoder, RowsWithoutLogitsCount) {
  const Rows whole = harness_.step({{.sequence = 0, .tokens = prompt_}});
  EXPECT_EQ(harness_.step({.sequence = 1, .tokens = tokens(0, 40)}, {7, 39}),
            (Rows{whole[7], whole[39]}));
  EXPECT_EQ(harness_.more({0}), Rows{whole[0]});
  EXPECT_TRUE(harness_.step({.sequence = 1, .tokens = tokens(40, 20)}, {}).empty());
  EXPECT_EQ(harness_.step({.sequence = 1, .tokens = tokens(60, 10)}, {9}), Rows{whole[69]});
}

INSTANTIATE_TEST_SUITE_P(Kinds, StateDecoder, testing::ValuesIn(kStatefulModels),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace headrace
