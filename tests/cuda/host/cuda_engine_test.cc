// The engine on the CUDA backend.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cpp/engine/expect_error.h"
#include "cuda/host/emulated_engine.h"
#include "cuda/host/generate.h"
#include "fakes/fake_model.h"

namespace headrace {
namespace {

using testing::expect_error;
using testing::read_all;

class CudaEngine : public ::testing::Test {
 protected:
  static ModelOptions options() {
    return {.path = llama_folder(),
            .device = "cuda",
            .max_model_len = 256,
            .max_num_seqs = 4,
            .max_num_batched_tokens = 48,
            .block_size = 16,
            .num_kv_blocks = 64};
  }
  static RequestOptions request(int32_t length, int32_t first, int32_t max_tokens) {
    RequestOptions out;
    out.prompt_token_ids = prompt(length, first);
    out.sampling = {.temperature = 0, .max_tokens = max_tokens, .ignore_eos = true};
    return out;
  }

  cuda::EmulatedGpu gpu_;
};

// What is asked for in steps: chunks, decodes up to the longest context, lists of all kinds.
TEST_F(CudaEngine, NoStepTakesMemory) {
  const auto engine = emulated_engine(gpu_);
  engine->install_model("m", options());
  engine->start_model("m");
  gpu_.api.reset_calls();
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i) {
    RequestOptions one = request(i == 0 ? 240 : 10 + 20 * i, i, i == 0 ? 16 : 6);
    if (i % 2 == 1) {
      one.sampling.temperature = 1.0f;
      one.sampling.repetition_penalty = 1.1f;
      one.sampling.logit_bias = {{5, 1.0f}, {9, -100.0f}};
      one.sampling.logprobs = 20;
    }
    requests.push_back(engine->submit("m", std::move(one)));
  }
  for (Request& one : requests) EXPECT_EQ(read_all(one.results()).error_message, "");
  EXPECT_GT(gpu_.api.calls("launch"), 0);
  EXPECT_EQ(gpu_.api.calls("malloc_device"), 0);
  EXPECT_EQ(gpu_.api.calls("malloc_pinned"), 0);
}

TEST_F(CudaEngine, WhatItCannotRunIsRefusedByName) {
  const auto engine = emulated_engine(gpu_);
  ModelOptions keys = options();
  keys.kv_cache_dtype = "int8";
  expect_error(ErrorCode::kUnsupported, {"not as int8: set kv_cache_dtype"},
               [&] { engine->install_model("m", keys); });
  ModelOptions quantized = options();
  quantized.quantization = "wint4";
  expect_error(ErrorCode::kUnsupported, {"these are wint4: leave quantization out"},
               [&] { engine->install_model("m", quantized); });
}

}  // namespace
}  // namespace headrace
