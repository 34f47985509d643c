// Steps on the CUDA backend that begin before the results of the ones before are waited for.

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "cuda/host/support/emulated_engine.h"
#include "cuda/host/support/engine_requests.h"
#include "fakes/fake_model.h"

namespace headrace {
namespace {

using testing::read_all;

class CudaAhead : public ::testing::Test {
 protected:
  cuda::EmulatedGpu gpu_;
};

struct Asked {
  int32_t length, first;
  SamplingParams sampling;
};

std::vector<Asked> asked() {
  std::vector<Asked> out;
  for (int32_t i = 0; i < 8; ++i) {
    Asked one{3 + 9 * i, 5 * i, {.temperature = 0, .max_tokens = 6 + 3 * i, .ignore_eos = true}};
    if (i % 2 == 1) {
      one.sampling.temperature = 1.0f;
      one.sampling.seed = static_cast<uint64_t>(i);
      one.sampling.min_tokens = 3;
      one.sampling.ignore_eos = false;
      one.sampling.logit_bias = {{5, 1.0f}, {9, -100.0f}};
    }
    if (i % 4 == 2) one.sampling.logprobs = 3;
    out.push_back(std::move(one));
  }
  return out;
}

std::vector<Output> generate(Engine& engine, const std::vector<Asked>& all) {
  std::vector<Request> requests;
  for (const Asked& one : all) {
    RequestOptions options;
    options.prompt_token_ids = prompt(one.length, one.first);
    options.sampling = one.sampling;
    requests.push_back(engine.submit("m", std::move(options)));
  }
  std::vector<Output> out;
  for (size_t i = 0; i < all.size(); ++i) out.push_back(read_all(requests[i].results()));
  return out;
}

// A request whose penalties follow its own output keeps every step it is in from beginning early.
TEST_F(CudaAhead, StepsThatBeginAheadGiveTheSameBits) {
  const auto engine = emulated_engine(gpu_);
  engine->install_model("m", small_options());
  engine->start_model("m");
  const std::vector<Asked> all = asked();
  std::vector<Output> want;
  const int loaded = gpu_.api.covered_waits();
  for (Asked one : all) {
    one.sampling.presence_penalty = 1e-30f;  // of no effect
    want.push_back(generate(*engine, {one}).front());
  }
  EXPECT_EQ(gpu_.api.covered_waits(), loaded);
  const std::vector<Output> got = generate(*engine, all);
  EXPECT_GE(gpu_.api.covered_waits() - loaded, 15);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].error_message, "");
    EXPECT_EQ(got[i].token_ids, want[i].token_ids) << i;
    ASSERT_EQ(got[i].logprobs.size(), want[i].logprobs.size());
    for (size_t k = 0; k < want[i].logprobs.size(); ++k) {
      EXPECT_EQ(got[i].logprobs[k].logprob, want[i].logprobs[k].logprob);
      EXPECT_EQ(got[i].logprobs[k].top, want[i].logprobs[k].top);
    }
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
