// Models that see, through the engine: the tokens that transformers gives for the same rows, and
// the same bits from pixels as from the rows that the tower makes of them.

#include <gtest/gtest.h>

#include <algorithm>

#include "cpp/engine/vision_jobs.h"
#include "cpp/model/vision/tower_harness.h"
#include "cpp/model/vision/vision_golden.h"
#include "headrace/engine.h"
#include "model/config/model_config.h"

namespace headrace {
namespace {

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

/// Positions as a run's grid and steps.
void place(const VisionGolden::Prompt& prompt, const PatchGrid& patches, int32_t merge,
           MediaRun& run) {
  const int32_t h = patches.h / merge, w = patches.w / merge;
  const auto first = static_cast<size_t>(run.position);
  run.grid = {run.count / (h * w), h, w};
  for (int32_t t = 0; t < run.grid.t; ++t) {
    run.steps.push_back(prompt.positions[0][first + static_cast<size_t>(t * h * w)] -
                        prompt.positions[1][first]);
  }
}

/// The prompt with its items' golden rows.
RequestOptions with_rows(const VisionGolden& golden, const VisionGolden::Prompt& prompt,
                         const ModelConfig& config) {
  RequestOptions out;
  out.prompt_token_ids = prompt.tokens;
  out.sampling = {.temperature = 0,
                  .max_tokens = static_cast<int32_t>(prompt.greedy.size()),
                  .ignore_eos = true};
  for (const GoldenRun& from : prompt.runs) {
    const VisionGolden::Item& item = golden.items[static_cast<size_t>(from.item)];
    if (from.first_row == 0) {
      EmbeddingInput& rows = out.media.emplace_back().embeddings;
      rows.values = std::make_shared<const std::vector<float>>(item.rows);
      rows.added = static_cast<int32_t>(config.vision->deepstack_blocks.size());
      rows.rows = static_cast<int32_t>(item.rows.size()) / (1 + rows.added) / config.hidden_size;
    }
    MediaRun run{from.position, from.count, from.first_row, {}, {}};
    if (!config.rope.axes.empty()) place(prompt, item.grid, config.vision->merge_size, run);
    out.media.back().runs.push_back(std::move(run));
  }
  return out;
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
      requests.push_back(engine.submit("m", with_rows(golden, prompt, config)));
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      const Output out = read_all(requests[i]);
      EXPECT_EQ(out.error_message, "");
      EXPECT_EQ(out.token_ids, golden.prompts[i].greedy) << "prompt " << i;
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
      RequestOptions rows = with_rows(golden, prompt, config);
      if (rows.media.empty()) continue;
      rows.sampling.max_tokens = 8;
      rows.sampling.logprobs = 2;
      RequestOptions pixels = rows;
      size_t next = 0;
      for (const GoldenRun& run : prompt.runs) {
        if (run.first_row != 0) continue;
        const PatchGrid& grid = golden.items[static_cast<size_t>(run.item)].grid;
        const PixelInput made = testing::pixels_of(grid, *config.vision, 1);
        std::vector<float> patches(patch_values(made.layout));
        normalize_patches(made.data->data(), made.layout, made.table, patches.data());
        rows.media[next].embeddings.values =
            std::make_shared<const std::vector<float>>(tower.encode(patches, grid));
        pixels.media[next].embeddings = {};
        pixels.media[next++].pixels = made;
      }
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

INSTANTIATE_TEST_SUITE_P(Cases, EngineVision, ::testing::ValuesIn(vision_golden_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace headrace
