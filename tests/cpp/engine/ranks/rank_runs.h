#pragma once

// What tests of models on several CPU ranks share.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/log.h"
#include "cpp/model/golden_case.h"
#include "engine/load/load_model.h"
#include "fakes/fake_engine.h"
#include "headrace/engine.h"

namespace headrace {

inline ModelOptions options_for(const std::string& path, int32_t ranks) {
  ModelOptions out;
  out.path = path;
  out.device = "cpu";
  out.dtype = "float32";
  out.tensor_parallel_size = ranks;
  out.num_threads = ranks;
  out.max_num_seqs = 8;
  out.num_kv_blocks = 64;
  out.block_size = 16;
  return out;
}

inline std::unique_ptr<Engine> start(const ModelOptions& options) {
  auto engine = std::make_unique<Engine>();
  engine->install_model("m", options);
  engine->start_model("m");
  return engine;
}

inline Request submit(Engine& engine, const std::vector<int32_t>& prompt, int32_t max_tokens,
                      const std::string& lora = "") {
  RequestOptions request;
  request.prompt_token_ids = prompt;
  request.lora_name = lora;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 3;
  request.sampling.prompt_logprobs = 0;
  return engine.submit("m", request);
}

inline std::vector<Output> run(Engine& engine, const std::vector<std::vector<int32_t>>& prompts,
                               int32_t max_tokens, bool together = false,
                               const std::string& lora = "") {
  std::vector<Request> requests;
  for (const auto& prompt : prompts) {
    requests.push_back(submit(engine, prompt, max_tokens, lora));
    if (!together) requests.back().wait();
  }
  std::vector<Output> out;
  for (const Request& request : requests) out.push_back(testing::read_all(request.results()));
  return out;
}

inline std::vector<std::vector<int32_t>> prompts_of(const GoldenCase& golden) {
  std::vector<std::vector<int32_t>> out;
  for (const GoldenPrompt& entry : golden.prompts) out.push_back(entry.prompt);
  return out;
}

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
    EXPECT_TRUE(std::ranges::equal(a[i].prompt_logprobs, b[i].prompt_logprobs, same));
  }
}

/// The largest distance between log-probabilities of the same tokens.
inline double distance(const std::vector<Output>& a, const std::vector<Output>& b) {
  EXPECT_EQ(a.size(), b.size());
  double out = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].error_message, "");
    EXPECT_EQ(a[i].token_ids, b[i].token_ids) << i;
    for (size_t t = 0; t < std::min(a[i].logprobs.size(), b[i].logprobs.size()); ++t) {
      out = std::max(out, std::abs(double{a[i].logprobs[t].logprob} - b[i].logprobs[t].logprob));
    }
  }
  return out;
}

/// A model whose backends the test sees.
struct Watched {
  std::vector<std::shared_ptr<Backend>> backends;
  std::optional<internal::LoadedModel> model;

  /// `limits`: of each rank's memory; 0: none.
  void load(const ModelOptions& options, const std::vector<size_t>& limits) {
    Logger logger;
    const auto open = [&](const ModelOptions& own, bool, const BackendNeeds& needs, Logger&) {
      const RankPlace rank = {static_cast<int32_t>(backends.size()), own.tensor_parallel_size};
      backends.push_back(make_cpu_backend(
          {.num_threads = own.num_threads, .rank = rank, .memory_limit = limits[backends.size()]}));
      backends.back()->require(needs);
      return backends.back();
    };
    model.emplace(internal::load_model_on(open, "m", options, {}, logger));
  }
};

}  // namespace headrace
