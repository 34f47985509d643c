// The engine on a GPU: what it says is what the CPU says, whoever runs beside a request; its memory
// comes back.

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "headrace/engine.h"

namespace headrace {
namespace {

ModelOptions options(const std::string& device, const std::string& dtype) {
  return {.path = HEADRACE_TINY_MODEL, .device = device, .dtype = dtype, .num_kv_blocks = 256};
}

Output finish(Request request) {
  ResultQueue queue = request.results();
  Output all;
  do {
    Output next = queue.get();
    all.token_ids.insert(all.token_ids.end(), next.token_ids.begin(), next.token_ids.end());
    all.logprobs.insert(all.logprobs.end(), next.logprobs.begin(), next.logprobs.end());
    all.finished = next.finished;
    all.error_message = next.error_message;
  } while (!all.finished);
  EXPECT_EQ(all.error_message, "");
  return all;
}

RequestOptions request(int32_t number) {
  RequestOptions out;
  for (int32_t i = 0; i < 3 + 29 * number; ++i) {
    out.prompt_token_ids.push_back(5 + (i * 37 + number * 11) % 400);
  }
  out.sampling.temperature = 0;
  out.sampling.max_tokens = 40;
  out.sampling.ignore_eos = true;
  out.sampling.logprobs = 3;
  return out;
}

constexpr int32_t kRequests = 12;

std::vector<Output> answers(const std::string& device, const std::string& dtype, bool together,
                            int32_t gpus = 1) {
  Engine engine;
  ModelOptions wanted = options(device, dtype);
  wanted.tensor_parallel_size = gpus;
  engine.install_model("m", wanted);
  engine.start_model("m");
  EXPECT_EQ(engine.model_info("m").device.substr(0, device.size()), device);
  EXPECT_EQ(engine.model_info("m").tensor_parallel_size, gpus);
  std::vector<Output> out;
  std::vector<Request> running;
  for (int32_t i = 0; i < kRequests; ++i) {
    running.push_back(engine.submit("m", request(i)));
    if (!together) out.push_back(finish(running.back()));
  }
  for (size_t i = out.size(); i < running.size(); ++i) out.push_back(finish(running[i]));
  return out;
}

TEST(GpuEngine, SaysWhatTheCpuSays) {
  const std::vector<Output> cpu = answers("cpu", "float32", true);
  const std::vector<Output> gpu = answers("cuda", "float32", true);
  for (size_t i = 0; i < cpu.size(); ++i) EXPECT_EQ(gpu[i].token_ids, cpu[i].token_ids) << i;
}

/// A variable of the environment, which is as before when this goes.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    ::setenv(name, value, 1);
  }
  ~Variable() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

/// What a machine lacks that a model can't be installed there; "" if it can.
std::string why_not(const std::string& device, int32_t gpus) {
  Engine engine;
  ModelOptions wanted = options(device, "float32");
  wanted.tensor_parallel_size = gpus;
  try {
    engine.install_model("m", wanted);
    return "";
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    return error.what();
  }
}

// By each other's memory, where they reach it, and by NCCL.
TEST(GpuEngine, TwoGpusSayWhatTheCpuSays) {
  const std::string no_second = why_not("cuda:1", 1);
  if (!no_second.empty()) GTEST_SKIP() << no_second;
  const std::vector<Output> cpu = answers("cpu", "float32", true);
  for (const char* peers : {"on", "off"}) {
    SCOPED_TRACE(peers);
    const Variable variable("HEADRACE_CUDA_PEERS", peers);
    const std::string no_nccl = why_not("cuda", 2);
    if (!no_nccl.empty()) GTEST_SKIP() << no_nccl;
    for (const bool together : {true, false}) {
      const std::vector<Output> two = answers("cuda", "float32", together, 2);
      for (size_t i = 0; i < cpu.size(); ++i) EXPECT_EQ(two[i].token_ids, cpu[i].token_ids) << i;
    }
  }
}

TEST(GpuEngine, ARequestsBitsDependOnNothingElse) {
  for (const char* dtype : {"float32", "bfloat16", "float16"}) {
    SCOPED_TRACE(dtype);
    const std::vector<Output> alone = answers("cuda", dtype, false);
    const std::vector<Output> together = answers("cuda", dtype, true);
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(together[i].token_ids, alone[i].token_ids) << i;
      ASSERT_EQ(together[i].logprobs.size(), alone[i].logprobs.size()) << i;
      for (size_t t = 0; t < alone[i].logprobs.size(); ++t) {
        EXPECT_EQ(together[i].logprobs[t].logprob, alone[i].logprobs[t].logprob) << i << " " << t;
      }
    }
  }
}

size_t free_bytes() {
  Engine engine;
  engine.install_model("m", options("cuda", "bfloat16"));
  return engine.model_info("m").device_free_bytes;
}

TEST(GpuEngine, TwoShareAGpuAndGiveItBack) {
  const size_t before = free_bytes();
  {
    Engine one, other;
    for (Engine* engine : {&one, &other}) {
      engine->install_model("m", options("cuda", "bfloat16"));
      engine->start_model("m");
    }
    Request a = one.submit("m", request(1)), b = other.submit("m", request(1));
    EXPECT_EQ(finish(a).token_ids, finish(b).token_ids);
  }
  // The driver keeps what kernels and graphs have once needed.
  EXPECT_GE(free_bytes() + (size_t{64} << 20), before);
}

// Prompts by turns that don't fit the cache together.
TEST(GpuEngine, WhatComesBackFromHostMemoryIsWhatWentThere) {
  Engine engine;
  std::vector<std::vector<int32_t>> without, with;
  for (auto* answers : {&without, &with}) {
    const bool swaps = answers == &with;
    const std::string name = swaps ? "with" : "without";
    ModelOptions small = options("cuda", "bfloat16");
    small.num_kv_blocks = 8;
    small.max_model_len = 400;
    small.swap_space = swaps ? 0.25 : 0.0;
    engine.install_model(name, small);
    engine.start_model(name);
    for (int32_t turn = 0; turn < 6; ++turn) {
      Request one = engine.submit(name, request(10 + turn % 2));
      answers->push_back(finish(one).token_ids);
      EXPECT_EQ(one.results().stats().host_cached_tokens > 0, swaps && turn >= 2) << turn;
    }
  }
  EXPECT_EQ(with, without);
}

TEST(GpuEngine, OutOfMemoryIsAnErrorThatNamesARemedy) {
  Engine engine;
  ModelOptions too_much = options("cuda", "bfloat16");
  too_much.num_kv_blocks = 1 << 30;
  try {
    engine.install_model("m", too_much);
    FAIL() << "was installed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find("num_kv_blocks"), std::string::npos) << error.what();
  }
  engine.install_model("m", options("cuda", "bfloat16"));
}

}  // namespace
}  // namespace headrace
