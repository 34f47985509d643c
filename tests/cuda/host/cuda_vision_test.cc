// Models that see, through the engine on the CUDA backend: the tokens that transformers gives for
// the same rows, the same bits from pixels as from the rows that the tower makes of them, and in
// every company.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cpp/engine/media/vision_jobs.h"
#include "cpp/model/vision/tower_harness.h"
#include "cpp/model/vision/vision_golden.h"
#include "cuda/host/support/emulated_engine.h"
#include "cuda/host/support/engine_requests.h"
#include "fakes/fake_engine.h"
#include "model/config/model_config.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

using testing::read_all;

constexpr int32_t kTokens = 10;

ModelOptions options_of(const VisionGolden& golden, const std::string& dtype) {
  ModelOptions options;
  options.path = golden.folder.string();
  options.device = "cuda";
  options.dtype = dtype;
  options.max_model_len = 192;
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = 64;
  options.block_size = 16;
  options.num_kv_blocks = 64;
  options.encoder_cache_bytes = 1 << 20;
  return options;
}

RequestOptions request_of(const VisionGolden& golden, const VisionGolden::Prompt& prompt) {
  RequestOptions out = testing::golden_request(golden, prompt, load_model_config(golden.folder));
  out.sampling.max_tokens = kTokens;
  return out;
}

class CudaVision : public ::testing::TestWithParam<std::string> {
 protected:
  VisionGolden golden() const { return load_vision_golden(GetParam()); }
};

// All prompts at once: prefills with rows that are given run beside decodes, which are recorded.
TEST_P(CudaVision, GoldenRowsGiveGoldenTokens) {
  const VisionGolden golden = this->golden();
  cuda::EmulatedGpu gpu;
  const auto engine = emulated_engine(gpu);
  engine->install_model("m", options_of(golden, "float32"));
  engine->start_model("m");
  EXPECT_TRUE(engine->model_info("m").vision);
  std::vector<Request> requests;
  for (const VisionGolden::Prompt& prompt : golden.prompts) {
    requests.push_back(engine->submit("m", request_of(golden, prompt)));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const Output out = read_all(requests[i].results());
    EXPECT_EQ(out.error_message, "");
    const std::vector<int32_t>& greedy = golden.prompts[i].greedy;
    EXPECT_EQ(out.token_ids, std::vector<int32_t>(greedy.begin(), greedy.begin() + kTokens)) << i;
  }
  EXPECT_GT(gpu.api.calls("launch"), 0) << "decodes are text, whatever is before them";
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  bool operator==(const Answer&) const = default;
};

Answer answer_of(Request request) {
  const Output out = read_all(request.results());
  EXPECT_EQ(out.error_message, "");
  Answer answer{out.token_ids, {}};
  for (const auto& one : out.logprobs) answer.logprobs.push_back(one.logprob);
  EXPECT_EQ(answer.logprobs.size(), static_cast<size_t>(kTokens));
  return answer;
}

// Rows that the tower makes outside of the engine, alone; then pixels, together, in other chunks,
// with records and without.
TEST_P(CudaVision, PixelsGiveTheBitsOfTheirRowsInEveryCompany) {
  const VisionGolden golden = this->golden();
  const ModelConfig config = load_model_config(golden.folder);
  std::vector<RequestOptions> rows, pixels;
  {
    cuda::EmulatedGpu gpu;
    TowerHarness tower(gpu.backend(DType::kBF16), golden.folder, DType::kBF16);
    for (const VisionGolden::Prompt& prompt : golden.prompts) {
      if (rows.size() == 2) break;
      rows.push_back(request_of(golden, prompt));
      rows.back().sampling.logprobs = 0;
      pixels.push_back(testing::with_pixels(
          golden, prompt, config, rows.back(),
          [&](const auto& patches, const auto& grid) { return tower.encode(patches, grid); }));
    }
  }
  const auto answers = [&](const std::vector<RequestOptions>& asked, bool together, int32_t chunk) {
    cuda::EmulatedGpu gpu{.record_steps = together};
    const auto engine = emulated_engine(gpu);
    ModelOptions options = options_of(golden, "bfloat16");
    options.max_prefill_chunk = chunk;
    engine->install_model("m", options);
    engine->start_model("m");
    std::vector<Answer> out;
    std::vector<Request> running;
    for (const RequestOptions& one : asked) {
      running.push_back(engine->submit("m", one));
      if (!together) out.push_back(answer_of(running.back()));
    }
    for (size_t i = out.size(); i < running.size(); ++i) out.push_back(answer_of(running[i]));
    return out;
  };
  const std::vector<Answer> want = answers(rows, false, 0);
  EXPECT_EQ(answers(pixels, true, 7), want);
}

// A tower and a decoder in int8: pixels give the tokens that the tower's own rows give.
TEST(CudaVisionQuantized, PixelsGiveTheTokensOfTheirRows) {
  const VisionGolden golden = load_vision_golden("qwen2_5_vl");
  const ModelConfig config = load_model_config(golden.folder);
  Quantization quantization = parse_quantization("wint8", 0);
  quantization.activations = Activations::kWhole;
  cuda::EmulatedGpu alone, gpu;
  TowerHarness tower(alone.backend(DType::kBF16), golden.folder, DType::kBF16, quantization);
  const VisionGolden::Prompt& prompt = golden.prompts.front();
  RequestOptions rows = request_of(golden, prompt);
  const RequestOptions pixels = testing::with_pixels(
      golden, prompt, config, rows,
      [&](const auto& patches, const auto& grid) { return tower.encode(patches, grid); });
  const auto engine = emulated_engine(gpu);
  ModelOptions options = options_of(golden, "bfloat16");
  options.quantization = "wint8";
  engine->install_model("m", options);
  engine->start_model("m");
  const Output want = read_all(engine->submit("m", rows).results());
  const Output got = read_all(engine->submit("m", pixels).results());
  EXPECT_EQ(want.error_message, "");
  EXPECT_EQ(got.error_message, "");
  EXPECT_EQ(got.token_ids, want.token_ids);
  EXPECT_EQ(got.token_ids.size(), static_cast<size_t>(kTokens));
}

// Nothing but reading its rows back waits, and memory is there from the item before.
TEST_P(CudaVision, AnItemIsQueuedWithoutWaiting) {
  const VisionGolden golden = this->golden();
  cuda::EmulatedGpu gpu;
  TowerHarness tower(gpu.backend(DType::kBF16), golden.folder, DType::kBF16);
  const VisionGolden::Item& item = golden.items.front();
  const std::vector<float> first = tower.encode(item.patches, item.grid);
  gpu.api.reset_calls();
  EXPECT_EQ(tower.encode(item.patches, item.grid), first);
  EXPECT_LE(gpu.api.calls("synchronize"), 2);  // read_back's own
  EXPECT_EQ(gpu.api.calls("synchronize_event"), 0);
  EXPECT_EQ(gpu.api.calls("malloc_device") + gpu.api.calls("malloc_pinned"), 0);
}

// The same tokens as on the CPU, from rows that nobody's tower has made.
TEST(CudaGivenRows, AModelWithoutATowerTakesEmbeddings) {
  RequestOptions asked = small_request(12, 5, 6);
  constexpr int32_t kRows = 4;
  const int32_t hidden = load_model_config(llama_folder()).hidden_size;
  std::vector<float> values;
  for (int32_t i = 0; i < kRows * hidden; ++i) {
    values.push_back(0.05f * static_cast<float>((i * 37) % 41 - 20));
  }
  EmbeddingInput& rows = asked.media.emplace_back().embeddings;
  rows.values = std::make_shared<const std::vector<float>>(std::move(values));
  rows.rows = kRows;
  asked.media.back().runs.push_back({3, kRows, 0, {}, {}});
  const auto tokens = [&](Engine& engine, const std::string& device) {
    ModelOptions options = small_options();
    options.device = device;
    options.dtype = "float32";
    engine.install_model("m", options);
    engine.start_model("m");
    const Output out = read_all(engine.submit("m", asked).results());
    EXPECT_EQ(out.error_message, "");
    return out.token_ids;
  };
  cuda::EmulatedGpu gpu;
  const auto emulated = emulated_engine(gpu);
  Engine engine;
  const std::vector<int32_t> want = tokens(engine, "cpu");
  EXPECT_EQ(want.size(), 6u);
  EXPECT_EQ(tokens(*emulated, "cuda"), want);
}

std::string name_of(const ::testing::TestParamInfo<std::string>& test) { return test.param; }

// One of each family: windows, rows added behind layers, a tower of one size, experts, pictures
// that see themselves.
INSTANTIATE_TEST_SUITE_P(Families, CudaVision,
                         ::testing::Values("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "smolvlm",
                                           "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "ernie4_5_vl",
                                           "ernie4_5_vl_moe", "gemma3"),
                         name_of);
INSTANTIATE_TEST_SUITE_P(DISABLED_All, CudaVision,  // a minute in the emulation
                         ::testing::ValuesIn(vision_golden_names()), name_of);

}  // namespace
}  // namespace headrace
