// Models that see on several GPUs of the fake runtime. The tower is on the first one alone; the
// others read its rows, those added behind layers too, and the same positions on three axes.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cpp/engine/media/vision_jobs.h"
#include "cpp/model/vision/tower_harness.h"
#include "cpp/model/vision/vision_golden.h"
#include "cuda/host/support/rank_devices.h"
#include "model/config/model_config.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

using testing::read_all;

constexpr int32_t kTokens = 6;

struct Run {
  std::string name;
  int32_t ranks;
};

class CudaRanksVision : public ::testing::TestWithParam<Run> {};

// Transformers' tokens from its rows; from pixels the bits of the rows that the tower makes of
// them, which is on another GPU. All at once: prefills beside decodes, which are recorded.
TEST_P(CudaRanksVision, GoldenTokensAndPixelsWithTheBitsOfTheirRows) {
  const VisionGolden golden = load_vision_golden(GetParam().name);
  const ModelConfig config = load_model_config(golden.folder);
  cuda::EmulatedGpu alone;
  TowerHarness tower(alone.backend(DType::kF32), golden.folder, DType::kF32);
  RankDevices devices(GetParam().ranks);
  devices.start({.path = golden.folder.string(),
                 .dtype = "float32",
                 .max_model_len = 192,
                 .max_num_seqs = 4,
                 .max_num_batched_tokens = 32,
                 .block_size = 16,
                 .num_kv_blocks = 64,
                 .encoder_cache_bytes = 1 << 20},
                GetParam().ranks);
  Engine& engine = devices.engine();
  EXPECT_EQ(engine.model_info("m").vision_weight_bytes, tower.tower().weight_bytes());
  std::vector<Request> goldens, of_rows, of_pixels;
  for (const VisionGolden::Prompt& prompt : golden.prompts) {
    RequestOptions rows = testing::golden_request(golden, prompt, config);
    rows.sampling.max_tokens = kTokens;
    goldens.push_back(engine.submit("m", rows));
    if (rows.media.empty() || !of_rows.empty()) continue;
    rows.sampling.logprobs = 2;
    const RequestOptions pixels = testing::with_pixels(
        golden, prompt, config, rows, [&](const auto&... item) { return tower.encode(item...); });
    of_rows.push_back(engine.submit("m", rows));
    of_pixels.push_back(engine.submit("m", pixels));
  }
  for (size_t i = 0; i < goldens.size(); ++i) {
    const Output out = read_all(goldens[i].results());
    EXPECT_EQ(out.error_message, "");
    const std::vector<int32_t>& greedy = golden.prompts[i].greedy;
    EXPECT_EQ(out.token_ids, std::vector<int32_t>(greedy.begin(), greedy.begin() + kTokens)) << i;
  }
  ASSERT_EQ(of_rows.size(), 1u);
  expect_same({read_all(of_pixels[0].results())}, {read_all(of_rows[0].results())});
}

/// All have four heads.
std::vector<Run> golden_runs() {
  std::vector<Run> out;
  for (const std::string& name : vision_golden_names()) {
    for (const int32_t ranks : {2, 4}) out.push_back({name, ranks});
  }
  return out;
}

std::string name_of(const ::testing::TestParamInfo<Run>& test) {
  return test.param.name + "_" + std::to_string(test.param.ranks);
}

INSTANTIATE_TEST_SUITE_P(Families, CudaRanksVision,
                         ::testing::Values(Run{"qwen2_5_vl", 2}, Run{"qwen3_vl", 2},
                                           Run{"qwen3_5", 2}, Run{"ernie4_5_vl_moe", 2},
                                           Run{"gemma3", 2}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(DISABLED_All, CudaRanksVision,  // a minute in the emulation
                         ::testing::ValuesIn(golden_runs()), name_of);

}  // namespace
}  // namespace headrace
