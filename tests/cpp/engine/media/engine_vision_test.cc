// Models that see, through the engine: the tokens that transformers gives for the same rows, and
// the same bits from pixels as from the rows that the tower makes of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "cpp/engine/expect_error.h"
#include "cpp/engine/media/vision_jobs.h"
#include "cpp/model/vision/tower_harness.h"
#include "cpp/model/vision/vision_golden.h"
#include "headrace/engine.h"
#include "model/config/model_config.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

using testing::expect_error;

ModelOptions options_of(const VisionGolden& golden, int32_t chunk) {
  ModelOptions options;
  options.path = golden.folder.string();
  options.device = "cpu";
  options.dtype = "float32";
  options.num_threads = 1;
  options.max_model_len = 320;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 64;
  options.block_size = 16;
  options.max_prefill_chunk = chunk;
  options.encoder_cache_bytes = 1 << 20;
  return options;
}

Output read_all(const Request& request) {
  request.wait();
  return *request.results().get_nowait();
}

class EngineVision : public ::testing::TestWithParam<std::string> {};

TEST_P(EngineVision, GoldenRowsGiveGoldenTokens) {
  const VisionGolden golden = load_vision_golden(GetParam());
  const ModelConfig config = load_model_config(golden.folder);
  for (const int32_t chunk : {0, 5}) {
    SCOPED_TRACE(chunk);
    Engine engine;
    engine.install_model("m", options_of(golden, chunk));
    engine.start_model("m");
    EXPECT_TRUE(engine.model_info("m").vision);
    EXPECT_GT(engine.model_info("m").vision_weight_bytes, 0u);
    std::vector<Request> requests;
    for (const VisionGolden::Prompt& prompt : golden.prompts) {
      requests.push_back(engine.submit("m", testing::golden_request(golden, prompt, config)));
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      const Output out = read_all(requests[i]);
      EXPECT_EQ(out.error_message, "");
      EXPECT_EQ(out.token_ids, golden.prompts[i].greedy) << "prompt " << i;
    }
  }
}

// The tower is on the first rank alone; the others read its rows.
TEST_P(EngineVision, SeveralDevicesGiveGoldenTokensAndTheBitsOfRows) {
  const VisionGolden golden = load_vision_golden(GetParam());
  const ModelConfig config = load_model_config(golden.folder);
  TowerHarness tower("", golden.folder, DType::kF32, 1, {});
  Engine engine;
  ModelOptions options = options_of(golden, 7);
  options.tensor_parallel_size = options.num_threads = 2;
  engine.install_model("m", options);
  engine.start_model("m");
  EXPECT_EQ(engine.model_info("m").vision_weight_bytes, tower.tower().weight_bytes());
  for (const VisionGolden::Prompt& prompt : golden.prompts) {
    RequestOptions rows = testing::golden_request(golden, prompt, config);
    EXPECT_EQ(read_all(engine.submit("m", rows)).token_ids, prompt.greedy);
    if (rows.media.empty()) continue;
    rows.sampling.max_tokens = 4;
    rows.sampling.logprobs = 2;
    const RequestOptions pixels = testing::with_pixels(
        golden, prompt, config, rows, [&](const auto&... item) { return tower.encode(item...); });
    const Output of_rows = read_all(engine.submit("m", rows));
    const Output of_pixels = read_all(engine.submit("m", pixels));
    EXPECT_EQ(of_pixels.error_message, "");
    EXPECT_EQ(of_pixels.token_ids, of_rows.token_ids);
    for (size_t i = 0; i < of_rows.logprobs.size(); ++i) {
      EXPECT_EQ(of_pixels.logprobs[i].top, of_rows.logprobs[i].top);
    }
  }
}

TEST_P(EngineVision, PixelsGiveTheBitsOfTheirRows) {
  const VisionGolden golden = load_vision_golden(GetParam());
  const ModelConfig config = load_model_config(golden.folder);
  for (const auto& [threads, quantization] :
       {std::pair{1, ""}, {2, ""}, {1, "wint8"}, {2, "wint8"}, {2, "wint4"}}) {
    SCOPED_TRACE(str_cat(threads, " ", quantization));
    TowerHarness tower("", golden.folder, DType::kF32, 2, parse_quantization(quantization, 0));
    Engine engine;
    ModelOptions options = options_of(golden, threads == 1 ? 0 : 7);
    options.num_threads = threads;
    options.quantization = quantization;
    engine.install_model("m", options);
    engine.start_model("m");
    EXPECT_EQ(engine.model_info("m").vision_weight_bytes, tower.tower().weight_bytes());
    for (const VisionGolden::Prompt& prompt : golden.prompts) {
      RequestOptions rows = testing::golden_request(golden, prompt, config);
      if (rows.media.empty()) continue;
      rows.sampling.max_tokens = 8;
      rows.sampling.logprobs = 2;
      const RequestOptions pixels = testing::with_pixels(
          golden, prompt, config, rows, [&](const auto&... item) { return tower.encode(item...); });
      const Output want = read_all(engine.submit("m", rows));
      const Output got = read_all(engine.submit("m", pixels));
      EXPECT_EQ(got.error_message, "");
      EXPECT_EQ(got.token_ids, want.token_ids);
      ASSERT_EQ(got.logprobs.size(), 8u);
      for (size_t i = 0; i < 8; ++i) {
        EXPECT_EQ(got.logprobs[i].logprob, want.logprobs[i].logprob);
        EXPECT_EQ(got.logprobs[i].top, want.logprobs[i].top);
      }
    }
  }
}

// A picture of 16 rows, which come in one step beside 7 decodes.
TEST(EngineWholePictures, NeedRoomInAStepAndInTheCache) {
  const VisionGolden golden = load_vision_golden("gemma3");
  const ModelConfig config = load_model_config(golden.folder);
  ModelOptions options = options_of(golden, 0);
  Engine engine;
  options.max_num_batched_tokens = 22;
  expect_error(ErrorCode::kInvalidArgument, {"max_num_batched_tokens is 22", "raise it to 23"},
               [&] { engine.install_model("few", options); });
  options.max_num_batched_tokens = 0;
  engine.install_model("usual", options);
  engine.start_model("usual");
  EXPECT_GE(engine.model_info("usual").max_num_batched_tokens, 23);
  options.max_num_batched_tokens = 23;
  options.encoder_cache_bytes = 32 * 64 * sizeof(float);
  engine.install_model("m", options);
  engine.start_model("m");
  const VisionGolden::Prompt& prompt = golden.prompts.front();
  RequestOptions request = testing::golden_request(golden, prompt, config);
  EXPECT_EQ(read_all(engine.submit("m", request)).token_ids, prompt.greedy);
  const auto of_rows = [&](int32_t rows) {
    RequestOptions out = request;
    EmbeddingInput& embeddings = out.media.front().embeddings;
    embeddings.rows = out.media.front().runs.front().count = rows;
    embeddings.values = std::make_shared<const std::vector<float>>(
        static_cast<size_t>(rows * config.hidden_size), 0.25f);
    out.prompt_token_ids.assign(60, 9);
    return out;
  };
  expect_error(ErrorCode::kLimitExceeded, {"media[0]", "17 rows", "room for 16"},
               [&] { engine.submit("m", of_rows(17)); });
  expect_error(ErrorCode::kLimitExceeded, {"media[0]", "encoder_cache_bytes 8192", "at once"}, [&] {
    RequestOptions long_one = of_rows(48);
    std::vector<MediaRun>& runs = long_one.media.front().runs;
    for (const int32_t first : {0, 16, 32}) {
      runs.push_back({4 + first, 16, first, {}, {}});
    }
    runs.erase(runs.begin());
    engine.submit("m", long_one);
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, EngineVision, ::testing::ValuesIn(vision_golden_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace headrace
