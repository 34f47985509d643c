// Steps on the CUDA backend that begin before the results of the ones before are waited for.

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cpp/model/lora_files.h"
#include "cuda/host/support/emulated_engine.h"
#include "cuda/host/support/engine_requests.h"
#include "fakes/fake_constraint.h"
#include "fakes/fake_engine.h"
#include "model/load/load_config.h"

namespace headrace {
namespace {

using testing::read_all;

class CudaAhead : public ::testing::Test {
 protected:
  cuda::EmulatedGpu gpu_;
};

/// Every third token, by turns.
std::shared_ptr<TokenConstraint> every_third() {
  return testing::FakeConstraint::make([](std::span<const int32_t> output) {
    testing::Following out;
    for (auto t = static_cast<int32_t>(output.size() % 3); t < 250; t += 3) out.tokens.push_back(t);
    return out;
  });
}

/// Some of all that is asked for.
std::vector<RequestOptions> asked() {
  std::vector<RequestOptions> out;
  for (int32_t i = 0; i < 6; ++i) {
    RequestOptions& one = out.emplace_back();
    one.prompt_token_ids = prompt(3 + 3 * i, 5 * i);
    SamplingParams& sampling = one.sampling;
    sampling = {.temperature = 0, .max_tokens = 5 + i, .ignore_eos = true};
    if (i % 2 == 1) {
      sampling.temperature = 1.0f;
      sampling.seed = static_cast<uint64_t>(i);
      sampling.min_tokens = 3;
      sampling.ignore_eos = false;
      sampling.logit_bias = {{5, 1.0f}, {9, -100.0f}};
    }
    if (i % 4 == 2) sampling.logprobs = 3;
    if (i % 3 == 1) sampling.repetition_penalty = 1.3f;
    if (i % 5 == 1) sampling.frequency_penalty = 0.5f;
    if (i % 5 == 2) sampling.no_repeat_ngram_size = 2;
    if (i % 4 == 3) sampling.prompt_logprobs = 2;
    if (i % 3 == 0) one.constraint = every_third();
    if (i % 4 == 1) one.lora_name = "a";
  }
  return out;
}

std::vector<Output> generate(Engine& engine, const std::vector<RequestOptions>& all) {
  std::vector<Request> requests;
  for (const RequestOptions& one : all) requests.push_back(engine.submit("m", one));
  std::vector<Output> out;
  for (size_t i = 0; i < all.size(); ++i) out.push_back(read_all(requests[i].results()));
  return out;
}

std::unique_ptr<Engine> engine_with_adapter(cuda::EmulatedGpu& gpu, const std::string& guesses) {
  auto engine = emulated_engine(gpu);
  ModelOptions options = small_options();
  options.max_loras = 1;
  options.speculative.method = guesses;
  options.speculative.num_speculative_tokens = 1;
  engine->install_model("m", options);
  engine->start_model("m");
  const TempFolder adapter;
  write_adapter(adapter, load_model_config(llama_folder()), {});
  engine->load_lora("m", "a", adapter.path().string());
  return engine;
}

void expect_same(const std::vector<PositionLogprobs>& got,
                 const std::vector<PositionLogprobs>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].logprob, want[i].logprob);
    EXPECT_EQ(got[i].top, want[i].top);
  }
}

// Steps of a model that guesses wait for each other.
TEST_F(CudaAhead, StepsThatBeginAheadGiveTheSameBits) {
  const auto covered_by = [&](const char* guesses, std::vector<Output>& out) {
    const auto engine = engine_with_adapter(gpu_, guesses);
    const int before = gpu_.api.covered_waits();
    out = generate(*engine, asked());
    return gpu_.api.covered_waits() - before;
  };
  std::vector<Output> want, got;
  EXPECT_EQ(covered_by("ngram", want), 0);
  EXPECT_GE(covered_by("", got), 5) << "about every other step also runs the one behind it";
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].error_message, "");
    EXPECT_EQ(got[i].token_ids, want[i].token_ids) << i;
    expect_same(got[i].logprobs, want[i].logprobs);
    expect_same(got[i].prompt_logprobs, want[i].prompt_logprobs);
  }
}

TEST_F(CudaAhead, NoStepWaitsForTheOneBefore) {
  const auto engine = emulated_engine(gpu_);
  engine->install_model("m", small_options());
  engine->start_model("m");
  read_all(engine->submit("m", small_request(5, 1, 8)).results());
  gpu_.api.reset_calls();
  const uint64_t steps = engine->model_stats("m").steps;
  const int covered = gpu_.api.covered_waits();
  read_all(engine->submit("m", small_request(5, 1, 60)).results());
  EXPECT_EQ(engine->model_stats("m").steps - steps, 60u);
  EXPECT_EQ(gpu_.api.calls("synchronize"), 0);
  // Of 59: about every other one also runs the step behind it, which need not be waited for then.
  EXPECT_GE(gpu_.api.covered_waits() - covered, 25);
}

// Of decodes that begin ahead: the copy of inputs and the launch of the record with its draws, for
// greedy requests and others.
TEST_F(CudaAhead, AStepIsOneCopyAndOneLaunch) {
  const auto engine = emulated_engine(gpu_);
  engine->install_model("m", small_options());
  engine->start_model("m");
  const auto calls = [&](int32_t tokens, float temperature) {
    RequestOptions one = small_request(5, 1, tokens);
    one.sampling.temperature = temperature;
    one.sampling.top_p = 0.9f;
    one.sampling.seed = 3;
    gpu_.api.reset_calls();
    EXPECT_EQ(read_all(engine->submit("m", std::move(one)).results()).error_message, "");
    std::vector<int> out;
    for (const char* call : {"launch", "kernel", "copy"}) out.push_back(gpu_.api.calls(call));
    return out;
  };
  for (const float temperature : {0.0f, 0.8f}) {
    calls(60, temperature);  // records of its kind
    const std::vector<int> few = calls(20, temperature), many = calls(60, temperature);
    EXPECT_EQ(many[0] - few[0], 40);
    EXPECT_EQ(many[1] - few[1], 0);
    EXPECT_EQ(many[2] - few[2], 40);
  }
}

TEST_F(CudaAhead, AnErrorFoundLateEndsBothSteps) {
  const auto engine = emulated_engine(gpu_);
  engine->install_model("m", small_options());
  engine->start_model("m");
  const Output want = read_all(engine->submit("m", small_request(5, 1, 12)).results());
  for (const char* call : {"synchronize_event", "record", "copy", "launch"}) {
    gpu_.api.fail(call, 999, 9);
    const Output failed = read_all(engine->submit("m", small_request(5, 1, 12)).results());
    EXPECT_EQ(failed.error_code, ErrorCode::kDevice) << call;
    EXPECT_EQ(read_all(engine->submit("m", small_request(5, 1, 12)).results()).token_ids,
              want.token_ids)
        << call;
  }
  gpu_.api.fail("synchronize_event", cuda::kFakeLaunchFailure, 5, true);
  EXPECT_EQ(read_all(engine->submit("m", small_request(5, 1, 12)).results()).error_code,
            ErrorCode::kDevice);
  engine->stop_model("m");
  EXPECT_EQ(engine->model_stats("m").state, ModelState::kFailed);
}

}  // namespace
}  // namespace headrace
