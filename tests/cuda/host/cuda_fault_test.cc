// The engine on a GPU that fails: at install, in a step, for good.

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cpp/engine/expect_error.h"
#include "cuda/host/support/emulated_engine.h"
#include "cuda/host/support/engine_requests.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using testing::expect_error;
using testing::read_all;

constexpr int kPassing = 999;

class CudaFault : public ::testing::Test {
 protected:
  cuda::EmulatedGpu gpu_;
};

void expect_failed(const Output& out, const char* word) {
  EXPECT_EQ(out.finish_reason, FinishReason::kError);
  EXPECT_EQ(out.error_code, ErrorCode::kDevice);
  EXPECT_NE(out.error_message.find(word), std::string::npos) << out.error_message;
}

TEST_F(CudaFault, AnErrorInAStepEndsItsRequestsAlone) {
  const auto engine = emulated_engine(gpu_);
  engine->install_model("m", small_options());
  engine->start_model("m");
  const RequestOptions one = small_request(20, 1, 6);
  const std::vector<int32_t> want = read_all(engine->submit("m", one).results()).token_ids;
  for (const char* call : {"copy", "record", "kernel", "launch", "synchronize_event"}) {
    for (const int nth : {1, 3}) {
      SCOPED_TRACE(std::string(call) + " " + std::to_string(nth));
      gpu_.api.fail(call, kPassing, nth);
      expect_failed(read_all(engine->submit("m", one).results()), "fake error 999");
      EXPECT_EQ(read_all(engine->submit("m", one).results()).token_ids, want);
    }
  }
  EXPECT_EQ(engine->model_stats("m").state, ModelState::kRunning);
}

// Whatever fails, whoever is cancelled: what the others get, then and later, is right.
TEST_F(CudaFault, FailuresAtRandomSpoilNothing) {
  const auto seed = static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto engine = emulated_engine(gpu_);
  ModelOptions options = small_options();
  options.num_kv_blocks = 16;
  options.swap_space = 1.0 / 16;
  engine->install_model("m", options);
  engine->start_model("m");
  constexpr int kRequests = 5;
  const auto submit = [&](int i) { return engine->submit("m", small_request(20 + 10 * i, i, 6)); };
  std::vector<std::vector<int32_t>> want;
  for (int i = 0; i < kRequests; ++i) want.push_back(read_all(submit(i).results()).token_ids);
  const char* const calls[] = {"copy",   "copy_rows", "record",
                               "kernel", "launch",    "synchronize_event"};
  constexpr int kRounds = 4;
  int failed = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Request> requests;
    for (int i = 0; i < kRequests; ++i) requests.push_back(submit(i));
    gpu_.api.fail(calls[random() % std::size(calls)], kPassing,
                  1 + static_cast<int>(random() % 12));
    requests[random() % kRequests].cancel();
    for (int i = 0; i < kRequests; ++i) {
      const Output out = read_all(requests[static_cast<size_t>(i)].results());
      const auto& expected = want[static_cast<size_t>(i)];
      ASSERT_LE(out.token_ids.size(), expected.size());
      EXPECT_TRUE(std::equal(out.token_ids.begin(), out.token_ids.end(), expected.begin())) << i;
      EXPECT_NE(out.error_code, ErrorCode::kInternal) << out.error_message;
      failed += out.error_code == ErrorCode::kDevice;
    }
    for (const char* call : calls) gpu_.api.fail(call, cuda::kSuccess);
    EXPECT_EQ(read_all(submit(round).results()).token_ids, want[static_cast<size_t>(round)]);
  }
  EXPECT_GT(failed, 0);
  const ModelStats stats = engine->model_stats("m");
  EXPECT_EQ(stats.state, ModelState::kRunning);
  EXPECT_EQ(stats.free_kv_blocks, stats.total_kv_blocks);
  engine->release_model("m");
  EXPECT_EQ(gpu_.api.device_bytes(), 0u);
}

TEST_F(CudaFault, AnErrorThatStaysFailsTheModelWhichCanBeReleased) {
  for (const char* call : {"copy", "kernel", "launch", "synchronize_event"}) {
    SCOPED_TRACE(call);
    cuda::EmulatedGpu gpu;
    const auto engine = emulated_engine(gpu);
    engine->install_model("m", small_options());
    engine->start_model("m");
    read_all(engine->submit("m", small_request(20, 1, 6)).results());
    gpu.api.fail(call, cuda::kFakeLaunchFailure, 2, true);
    Request first = engine->submit("m", small_request(20, 1, 6));
    expect_failed(read_all(first.results()), "fake error 719");
    while (engine->model_stats("m").state != ModelState::kFailed) std::this_thread::yield();
    expect_error(ErrorCode::kInvalidState, {"failed"},
                 [&] { engine->submit("m", small_request(20, 1, 6)); });
    engine->release_model("m");
    EXPECT_EQ(gpu.api.device_bytes(), 0u);
    expect_error(ErrorCode::kDevice, {"can't go on", "new process"},
                 [&] { engine->install_model("m", small_options()); });
  }
}

// Whatever call fails while a model is loaded: an error, and nothing is kept.
TEST_F(CudaFault, AFailedLoadGivesEverythingBack) {
  for (const char* call : {"create_stream", "create_event", "malloc_device", "malloc_pinned",
                           "copy", "record", "synchronize", "synchronize_event"}) {
    int failures = 0;
    for (const int nth : {1, 8, 64}) {
      SCOPED_TRACE(std::string(call) + " " + std::to_string(nth));
      cuda::EmulatedGpu gpu;
      const auto engine = emulated_engine(gpu);
      gpu.api.fail(call, kPassing, nth);
      try {
        engine->install_model("m", small_options());
        engine->start_model("m");
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kDevice) << error.what();
        ++failures;
      }
      if (engine->models().empty()) {
        EXPECT_EQ(gpu.api.device_bytes(), 0u);
      }
    }
    EXPECT_GT(failures, 0) << call;
  }
}

TEST_F(CudaFault, AnUnusableMachineIsRefusedWithItsReason) {
  const auto refuse = [](std::initializer_list<const char*> words, auto spoil) {
    cuda::EmulatedGpu gpu;
    spoil(gpu.api);
    const auto engine = emulated_engine(gpu);
    expect_error(ErrorCode::kUnsupported, words,
                 [&] { engine->install_model("m", small_options()); });
  };
  refuse({"no NVIDIA driver"}, [](auto& api) { api.driver = 0; });
  refuse({"update the driver"}, [](auto& api) { api.driver = 12080; });
  refuse({"finds no GPU"}, [](auto& api) { api.devices.clear(); });
  refuse({"7.5"}, [](auto& api) { api.devices[0].major = 7, api.devices[0].minor = 5; });
}

}  // namespace
}  // namespace headrace
