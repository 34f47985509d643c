// The engine on the CUDA backend: a request's tokens and log-probabilities are the same bits
// whatever runs beside it, whatever is cached, cut up or recorded.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cpp/model/checkpoint_files.h"
#include "cpp/model/quantized_checkpoint.h"
#include "cuda/host/support/emulated_engine.h"
#include "cuda/host/support/engine_requests.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using testing::read_all;

constexpr int32_t kRequests = 4;

RequestOptions numbered(int32_t number) {
  RequestOptions out = small_request(15 + 32 * number, number, 7);
  out.sampling.logprobs = 2;
  if (number % 2 == 1) {
    out.sampling.temperature = 0.8f;
    out.sampling.seed = 11 + number;
  }
  return out;
}

/// Tokens, and the bits of their log-probabilities.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  bool operator==(const Answer&) const = default;
};

Answer read_answer(Request& request) {
  const Output out = read_all(request.results());
  EXPECT_EQ(out.error_message, "");
  Answer answer{out.token_ids, {}};
  for (const auto& one : out.logprobs) answer.logprobs.push_back(one.logprob);
  EXPECT_EQ(answer.logprobs.size(), answer.tokens.size());
  return answer;
}

struct Weights {
  std::string dtype, quantization;
  bool reordered = false;  ///< codes with an order of their own, from the checkpoint
  std::string kv = "auto", model = "llama";
};

class CudaSameBits : public ::testing::TestWithParam<Weights> {
 protected:
  void SetUp() override {
    if (!GetParam().reordered) return;
    write_quantized(load_golden_case(GetParam().model).folder, Tool::kGptqActOrder,
                    quantized_.path(), plain_.path());
  }

  struct Setting {
    ModelOptions options = small_options();
    bool together = true;
    bool again = false;  ///< everything is asked twice; the second answers count
    bool record_steps = true;
  };

  std::vector<Answer> answers(Setting setting, ModelStats* stats = nullptr) {
    cuda::EmulatedGpu gpu{.record_steps = setting.record_steps};
    setting.options.path = load_golden_case(GetParam().model).folder;
    setting.options.dtype = GetParam().dtype;
    setting.options.quantization = GetParam().quantization;
    setting.options.kv_cache_dtype = GetParam().kv;
    if (GetParam().reordered) setting.options.path = quantized_.path();
    const auto engine = emulated_engine(gpu);
    engine->install_model("m", setting.options);
    engine->start_model("m");
    std::vector<Answer> out;
    for (int round = 0; round < (setting.again ? 2 : 1); ++round) out = ask(*engine, setting);
    if (stats != nullptr) *stats = engine->model_stats("m");
    EXPECT_EQ(gpu.api.calls("launch") > 0, setting.record_steps);
    return out;
  }

 private:
  static std::vector<Answer> ask(Engine& engine, const Setting& setting) {
    std::vector<Answer> out;
    std::vector<Request> running;
    for (int32_t i = 0; i < kRequests; ++i) {
      running.push_back(engine.submit("m", numbered(i)));
      if (!setting.together) out.push_back(read_answer(running.back()));
    }
    for (size_t i = out.size(); i < running.size(); ++i) out.push_back(read_answer(running[i]));
    return out;
  }

  TempFolder quantized_, plain_;
};

TEST_P(CudaSameBits, WhateverElseGoesOn) {
  const std::vector<Answer> want = answers({.together = false});
  EXPECT_EQ(answers({}), want) << "batch mates";
  EXPECT_EQ(answers({.record_steps = false}), want) << "no graphs";

  Setting chunks;
  chunks.options.max_prefill_chunk = 7;
  chunks.options.enable_prefix_caching = false;
  EXPECT_EQ(answers(chunks), want) << "small chunks";

  Setting blocks;
  blocks.options.block_size = 32;
  EXPECT_EQ(answers(blocks), want) << "larger blocks";

  ModelStats stats;
  EXPECT_EQ(answers({.again = true}, &stats), want) << "cached prefixes";
  EXPECT_GT(stats.prefix_hit_tokens, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Dtypes, CudaSameBits,
    ::testing::Values(Weights{"float32", ""}, Weights{"bfloat16", ""}, Weights{"float16", ""},
                      Weights{"float16", "wint4"}, Weights{"bfloat16", "", true},
                      Weights{"bfloat16", "", true, "auto", "qwen3_moe"},
                      Weights{"bfloat16", "", false, "auto", "qwen3_moe"},
                      Weights{"bfloat16", "", false, "auto", "deepseek_v2"},
                      Weights{"bfloat16", "wint4", false, "auto", "ernie4_5_moe"},
                      Weights{"bfloat16", "", false, "int8", "ernie4_5"},
                      Weights{"float16", "", false, "fp8", "llama3_rope"},
                      Weights{"bfloat16", "", false, "uint4", "llama_yarn"}),
    [](const auto& test) {
      const Weights& own = test.param;
      return own.dtype + own.quantization + (own.reordered ? "reordered" : "") +
             (own.kv == "auto" ? "" : own.kv) + "_" + own.model;
    });

}  // namespace
}  // namespace headrace
