// Log-probabilities of several GPUs of the fake runtime are within the bound of one's
// (cpp/engine/ranks/rank_bound.h).

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "cpp/engine/ranks/rank_bound.h"
#include "cpp/model/golden_case.h"
#include "cuda/host/support/rank_devices.h"

namespace headrace {
namespace {

struct Bounded {
  const char* name;
  DType dtype;
  int32_t most_ranks;
  bool experts = false;
};

class CudaRanksBound : public ::testing::TestWithParam<Bounded> {};

std::map<int32_t, float> tokens_on(const Bounded& bounded, int32_t ranks,
                                   bool whole_experts = false) {
  ModelOptions options = options_for(load_golden_case(bounded.name));
  options.dtype = dtype_name(bounded.dtype);
  options.enable_expert_parallel = whole_experts;
  RankDevices devices(ranks);
  devices.start(options, ranks);
  return likeliest_tokens(devices.engine());
}

TEST_P(CudaRanksBound, HoldsWhatRoundingsAllow) {
  const Bounded& bounded = GetParam();
  const std::vector<double> bounds =
      rank_bounds(load_golden_case(bounded.name).folder, bounded.dtype, bounded.dtype);
  RecordProperty("most", std::to_string(std::ranges::max(bounds)));
  EXPECT_LT(std::ranges::max(bounds), bounded.dtype == DType::kF32 ? 0.05 : 1.25)
      << "so large that it says nothing";
  const auto one = tokens_on(bounded, 1);
  for (int32_t ranks = 2; ranks <= bounded.most_ranks; ranks *= 2) {
    SCOPED_TRACE(ranks);
    expect_within(bounds, one, tokens_on(bounded, ranks));
  }
  if (bounded.experts) expect_within(bounds, one, tokens_on(bounded, 2, true));
}

INSTANTIATE_TEST_SUITE_P(Models, CudaRanksBound,
                         ::testing::Values(Bounded{"llama", DType::kF32, 4},
                                           Bounded{"llama", DType::kBF16, 4},
                                           Bounded{"llama_bf16", DType::kBF16, 2},
                                           Bounded{"qwen3_moe", DType::kF32, 4, true}),
                         [](const auto& test) {
                           return std::string(test.param.name) + "_" + dtype_name(test.param.dtype);
                         });

}  // namespace
}  // namespace headrace
