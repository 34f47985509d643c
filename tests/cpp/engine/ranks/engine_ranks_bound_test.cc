// Log-probabilities of several CPU devices are within the bound of one's (rank_bound.h).

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "cpp/engine/ranks/rank_bound.h"
#include "cpp/model/golden_case.h"
#include "headrace/engine.h"

namespace headrace {
namespace {

struct Bounded {
  const char* name;
  const char* dtype;
  int32_t most_ranks;
};

class EngineRanksBound : public ::testing::TestWithParam<Bounded> {};

std::map<int32_t, float> tokens_on(const std::string& folder, const char* dtype, int32_t ranks) {
  ModelOptions options;
  options.path = folder;
  options.device = "cpu";
  options.cpu_isa = kBoundIsa;
  options.dtype = dtype;
  options.kv_cache_dtype = "float32";
  options.tensor_parallel_size = options.num_threads = ranks;
  options.num_kv_blocks = 16;
  Engine engine;
  engine.install_model("m", options);
  engine.start_model("m");
  return likeliest_tokens(engine);
}

TEST_P(EngineRanksBound, HoldsWhatRoundingsAllow) {
  const auto& [name, dtype, most_ranks] = GetParam();
  const std::string folder = load_golden_case(name).folder;
  const DType storage = std::string(dtype) == "float32" ? DType::kF32 : DType::kBF16;
  const std::vector<double> bounds = rank_bounds(folder, storage, DType::kF32);
  EXPECT_LT(std::ranges::max(bounds), 0.05) << "so large that it says nothing";
  const auto one = tokens_on(folder, dtype, 1);
  for (int32_t ranks = 2; ranks <= most_ranks; ranks *= 2) {
    SCOPED_TRACE(ranks);
    expect_within(bounds, one, tokens_on(folder, dtype, ranks));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, EngineRanksBound,
    ::testing::Values(Bounded{"llama", "float32", 4}, Bounded{"llama", "bfloat16", 4},
                      Bounded{"llama_bf16", "bfloat16", 2}, Bounded{"qwen3_moe", "float32", 4}),
    [](const auto& test) { return std::string(test.param.name) + "_" + test.param.dtype; });

}  // namespace
}  // namespace headrace
