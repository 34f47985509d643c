#pragma once

// Engines whose models run on several GPUs of the fake runtime.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cpp/model/golden_case.h"
#include "cuda/host/support/emulated_engine.h"
#include "fakes/fake_engine.h"

namespace headrace {

/// GPUs, and an engine whose model they share.
class RankDevices {
 public:
  explicit RankDevices(int32_t count) {
    gpu_.api.devices.front().multiprocessors = 132;  // exchanges of many blocks
    gpu_.api.add_devices(count - 1);
    engine_ = emulated_engine(gpu_);
  }

  void start(ModelOptions options, int32_t count) {
    options.device = "cuda";
    options.tensor_parallel_size = count;
    engine_->install_model("m", options);
    engine_->start_model("m");
  }

  cuda::EmulatedGpu& gpu() { return gpu_; }
  cuda::FakeCudaApi& api() { return gpu_.api; }
  Engine& engine() { return *engine_; }

  Request submit(const std::vector<int32_t>& prompt, int32_t max_tokens,
                 const std::string& lora = "") {
    RequestOptions request;
    request.prompt_token_ids = prompt;
    request.lora_name = lora;
    request.sampling.temperature = 0;
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 3;
    return engine_->submit("m", std::move(request));
  }

  std::vector<Output> run(const std::vector<std::vector<int32_t>>& prompts, int32_t max_tokens,
                          bool together, const std::string& lora = "") {
    std::vector<Request> requests;
    for (const auto& prompt : prompts) {
      requests.push_back(submit(prompt, max_tokens, lora));
      if (!together) requests.back().wait();
    }
    std::vector<Output> out;
    for (const Request& request : requests) out.push_back(testing::read_all(request.results()));
    return out;
  }

 private:
  cuda::EmulatedGpu gpu_;
  std::unique_ptr<Engine> engine_;
};

inline std::vector<std::vector<int32_t>> prompts_of(const GoldenCase& golden) {
  std::vector<std::vector<int32_t>> out;
  for (const GoldenPrompt& entry : golden.prompts) out.push_back(entry.prompt);
  return out;
}

inline ModelOptions options_for(const GoldenCase& golden) {
  ModelOptions out;
  out.path = golden.folder;
  out.dtype = "float32";
  out.max_model_len = 256;
  out.max_num_seqs = 8;
  out.num_kv_blocks = 64;
  out.block_size = 16;
  return out;
}

/// The same tokens and the same bits, and no error.
inline void expect_same(const std::vector<Output>& a, const std::vector<Output>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(a[i].error_message, "");
    EXPECT_EQ(a[i].token_ids, b[i].token_ids);
    const auto same = [](const PositionLogprobs& x, const PositionLogprobs& y) {
      return x.token == y.token && x.logprob == y.logprob && x.top == y.top;
    };
    EXPECT_TRUE(std::ranges::equal(a[i].logprobs, b[i].logprobs, same));
  }
}

/// The largest distance between log-probabilities of the same tokens.
inline double distance(const std::vector<Output>& a, const std::vector<Output>& b) {
  EXPECT_EQ(a.size(), b.size());
  double out = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    EXPECT_EQ(a[i].error_message, "");
    EXPECT_EQ(a[i].token_ids, b[i].token_ids) << i;
    EXPECT_FALSE(a[i].logprobs.empty());
    for (size_t t = 0; t < std::min(a[i].logprobs.size(), b[i].logprobs.size()); ++t) {
      out = std::max(out, std::abs(double{a[i].logprobs[t].logprob} - b[i].logprobs[t].logprob));
    }
  }
  return out;
}

}  // namespace headrace
