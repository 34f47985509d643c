// Models on several GPUs that don't reach each other's memory, by a fake NCCL
// (cuda/host/support/fake_nccl.h): the bits of those that do, and what happens when NCCL is missing
// or fails.

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cpp/engine/expect_error.h"
#include "cuda/host/support/engine_requests.h"
#include "cuda/host/support/fake_nccl_library.h"
#include "cuda/host/support/rank_devices.h"

namespace headrace {
namespace {

using testing::expect_error;

/// `count` GPUs that don't reach each other.
class NcclDevices {
 public:
  explicit NcclDevices(int32_t count) : devices_(count), count_(count) {
    nccl.serve(devices_.api());
    devices_.gpu().nccl = cuda::FakeNcclLibrary::kFile;
    devices_.api().reachable = false;
  }
  RankDevices& operator*() { return devices_; }
  RankDevices* operator->() { return &devices_; }
  void start(const ModelOptions& options) { devices_.start(options, count_); }

  cuda::FakeNcclLibrary nccl;

 private:
  RankDevices devices_;
  int32_t count_;
};

const std::vector<std::vector<int32_t>> kPrompts = {prompt(30, 3), prompt(7, 9), prompt(50, 1)};

// Alone and together, in plain and in recorded steps, of which some begin ahead.
TEST(CudaNccl, GivesTheBitsOfGpusThatReachEachOther) {
  for (const int32_t count : {2, 4}) {
    SCOPED_TRACE(count);
    ModelOptions options = small_options();
    options.dtype = "bfloat16";
    RankDevices peers(count);
    peers.start(options, count);
    const auto want = peers.run(kPrompts, 10, false);
    options.max_num_batched_tokens = 16;
    NcclDevices devices(count);
    devices.start(options);
    const int loaded = devices->api().calls("launch");
    const int queued = devices.nccl->gathers;
    expect_same(devices->run(kPrompts, 10, true), want);
    EXPECT_GE(devices->api().calls("launch") - loaded, count * 4);  // graphs, on all
    EXPECT_GT(devices.nccl->gathers, queued);
    EXPECT_EQ(devices.nccl->inits, 1);
    EXPECT_EQ(devices->api().calls("reach"), 0);
    devices->engine().release_model("m");
    EXPECT_EQ(devices.nccl->destroys, count);
    EXPECT_EQ(devices.nccl->live_comms, 0);
  }
}

// NCCL wants an exchange to be recorded, or not, on all GPUs alike, and replayed as it was
// recorded. What the first one alone does in a step (draws) makes no difference.
TEST(CudaNccl, AllRecordTheSameSteps) {
  NcclDevices devices(2);
  devices.start(small_options());
  const auto run = [&](int32_t count, std::optional<int32_t> logprobs) {
    std::vector<Request> requests;
    for (int32_t i = 0; i < count; ++i) {
      RequestOptions request = small_request(5, i + 1, 8);
      request.sampling.logprobs = logprobs;
      requests.push_back(devices->engine().submit("m", std::move(request)));
    }
    std::vector<std::vector<int32_t>> tokens;
    for (const Request& request : requests) {
      const Output out = testing::read_all(request.results());
      EXPECT_EQ(out.error_message, "");
      tokens.push_back(out.token_ids);
    }
    return tokens;
  };
  const auto want = run(1, std::nullopt);
  EXPECT_EQ(run(1, 3), want);
  EXPECT_EQ(run(1, std::nullopt), want);
  EXPECT_EQ(run(1, 20), want);
  run(3, std::nullopt);
  run(3, 5);
  const int launches = devices->api().calls("launch");
  EXPECT_EQ(run(1, std::nullopt), want);
  EXPECT_GE(devices->api().calls("launch") - launches, 2 * 5);
}

TEST(CudaNccl, AnswersAsTransformersDoes) {
  const GoldenCase golden = load_golden_case("qwen3_moe");
  NcclDevices devices(2);
  devices.start(options_for(golden));
  constexpr size_t kMost = 8;
  const auto answers = devices->run(prompts_of(golden), kMost, true);
  for (size_t i = 0; i < answers.size(); ++i) {
    std::vector<int32_t> want = golden.prompts[i].tokens;
    want.resize(kMost);
    EXPECT_EQ(answers[i].token_ids, want) << i;
  }
}

TEST(CudaNccl, CanBeAskedForWherePeersReachEachOther) {
  NcclDevices devices(2);
  devices->api().reachable = true;
  devices.start(small_options());
  EXPECT_EQ(devices.nccl->inits, 0);
  devices->engine().release_model("m");
  devices->gpu().use_peers = false;
  devices.start(small_options());
  EXPECT_EQ(devices.nccl->inits, 1);
  EXPECT_EQ(devices->run({prompt(5, 3)}, 3, false)[0].error_message, "");
}

/// What installing the model says.
void expect_refused(NcclDevices& devices, ErrorCode code,
                    std::initializer_list<const char*> words) {
  expect_error(code, words, [&] { devices.start(small_options()); });
  EXPECT_TRUE(devices->engine().models().empty());
  EXPECT_EQ(devices->api().device_bytes(), 0u);
}

TEST(CudaNcclErrors, NameTheLibraryThatIsMissingAndTheRemedy) {
  NcclDevices devices(2);
  devices->gpu().nccl = "/no/such/libnccl.so.2";
  expect_refused(devices, ErrorCode::kUnsupported,
                 {"/no/such/libnccl.so.2", "pip install nvidia-nccl-cu13", "HEADRACE_NCCL"});
  devices->gpu().nccl = std::filesystem::read_symlink("/proc/self/exe").string();
  expect_refused(devices, ErrorCode::kUnsupported, {"nvidia-nccl-cu13"});
  devices->gpu().nccl = "libm.so.6";
  expect_refused(devices, ErrorCode::kUnsupported, {"'libm.so.6' is no NCCL library", "ncclGet"});
  devices->gpu().nccl = cuda::FakeNcclLibrary::kFile;
  devices.nccl->version = 21703;
  expect_refused(devices, ErrorCode::kUnsupported, {"is NCCL 2.17.3", "2.18.0 or later"});
}

TEST(CudaNcclErrors, AFailedStartEndsTheLoadOnAll) {
  for (const int32_t count : {2, 4}) {
    NcclDevices devices(count);
    devices.nccl->init_result = 2;
    expect_refused(devices, ErrorCode::kDevice, {"ncclCommInitAll", "a fake error (2)"});
    devices.nccl->init_result = 0;
    for (const int nth : {1, count, 2 * count}) {  // the first exchanges
      devices.nccl->fail_gather = nth;
      expect_refused(devices, ErrorCode::kDevice, {"ncclAllGather", "a fake error (3)"});
      EXPECT_EQ(devices.nccl->live_comms, 0);
    }
    devices.start(small_options());
    EXPECT_EQ(devices->run({prompt(5, 3)}, 3, false)[0].error_message, "");
  }
}

/// The nth exchange from now fails. The others' communicators are aborted, and the next step has
/// new ones.
void expect_one_step_lost(NcclDevices& devices, int nth, const std::vector<Output>& want) {
  const int aborts = devices.nccl->aborts, inits = devices.nccl->inits;
  devices.nccl->fail_gather = nth;
  const auto hit = devices->run({prompt(21, 8)}, 6, false);
  EXPECT_NE(hit[0].error_message.find("ncclAllGather of NCCL failed"), std::string::npos)
      << hit[0].error_message;
  EXPECT_EQ(devices.nccl->live_comms, 0);
  const auto aborted = devices.nccl->aborts - aborts;
  expect_same(devices->run({prompt(20, 3)}, 6, false), want);
  EXPECT_EQ(devices.nccl->inits - inits, 1);
  EXPECT_EQ(aborted, devices.nccl->live_comms);
}

/// Exchanges of one request.
int exchanges_of(NcclDevices& devices, const std::vector<int32_t>& prompt) {
  const int before = devices.nccl->gathers;
  EXPECT_EQ(devices->run({prompt}, 6, false)[0].error_message, "");
  return devices.nccl->gathers - before;
}

// In a prompt, in steps that are recorded, and in the last one of a request whose steps all have
// records. (How many those are before depends on how many start-up had the time to make.)
TEST(CudaNcclErrors, AStepThatFailsCostsItsRequestsAlone) {
  for (const int32_t count : {2, 4}) {
    std::vector<Output> want;
    int least = 0;
    {
      NcclDevices devices(count);
      devices.start(small_options());
      want = devices->run({prompt(20, 3)}, 6, false);
      for (int32_t i = 0; i < 3; ++i) least = exchanges_of(devices, prompt(20, 30 + i));
      expect_one_step_lost(devices, least - count, want);
    }
    for (const int nth : {1, 2, least / 2}) {
      SCOPED_TRACE(::testing::Message() << count << " GPUs, " << nth << " of " << least);
      NcclDevices devices(count);
      devices.start(small_options());
      expect_one_step_lost(devices, nth, want);
    }
  }
}

TEST(CudaNcclErrors, AGpuThatFailsBetweenExchangesHoldsUpNobody) {
  for (const int nth : {1, 5, 31}) {
    SCOPED_TRACE(nth);
    NcclDevices devices(2);
    devices.start(small_options());
    const auto want = devices->run({prompt(20, 3)}, 6, false);
    devices->api().fail("kernel", 98, nth);
    EXPECT_NE(devices->run({prompt(21, 8)}, 6, false)[0].error_message, "");
    expect_same(devices->run({prompt(20, 3)}, 6, false), want);
  }
}

TEST(CudaNcclErrors, ThatComeLaterEndTheNextStep) {
  NcclDevices devices(2);
  devices.start(small_options());
  devices.nccl->async_result = 6;
  const auto hit = devices->run({prompt(21, 8)}, 2, false);
  EXPECT_NE(hit[0].error_message.find("an earlier ncclAllGather"), std::string::npos);
  devices.nccl->async_result = 0;
  EXPECT_EQ(devices->run({prompt(21, 8)}, 2, false)[0].error_message, "");
}

TEST(CudaNcclErrors, ALostGpuEndsTheModel) {
  NcclDevices devices(2);
  devices.start(small_options());
  devices->api().fail("kernel", cuda::kFakeLaunchFailure, 30, true);
  for (const Output& output : devices->run({prompt(20, 3), prompt(9, 4)}, 30, true)) {
    EXPECT_NE(output.error_message, "");
  }
  devices->engine().stop_model("m");  // the requests end before the model does
  EXPECT_EQ(devices->engine().model_stats("m").state, ModelState::kFailed);
  EXPECT_THROW(devices->submit(prompt(5, 5), 3), Error);
  devices->engine().release_model("m");
}

}  // namespace
}  // namespace headrace
