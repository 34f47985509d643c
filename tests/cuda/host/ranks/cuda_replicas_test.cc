// Replicas of a model on several GPUs of the fake runtime: the tokens of one, each on devices of
// its own, and one that fails.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "cpp/model/golden_case.h"
#include "cuda/host/support/emulated_engine.h"
#include "fakes/fake_engine.h"

namespace headrace {
namespace {

using testing::read_all;

ModelOptions options_for(const GoldenCase& golden, int32_t replicas, int32_t ranks) {
  ModelOptions out;
  out.path = golden.folder;
  out.dtype = "float32";
  out.device = "cuda";
  out.data_parallel_size = replicas;
  out.tensor_parallel_size = ranks;
  out.max_model_len = 256;
  out.max_num_seqs = 8;
  out.num_kv_blocks = 64;
  out.block_size = 16;
  return out;
}

std::vector<Request> submit_all(Engine& engine, const GoldenCase& golden) {
  std::vector<Request> requests;
  for (const GoldenPrompt& entry : golden.prompts) {
    RequestOptions request;
    request.prompt_token_ids = entry.prompt;
    request.sampling.temperature = 0;
    request.sampling.max_tokens = 6;
    request.sampling.ignore_eos = true;
    requests.push_back(engine.submit("m", std::move(request)));
  }
  return requests;
}

TEST(CudaReplicas, EachHasDevicesOfItsOwn) {
  const GoldenCase golden = load_golden_case("llama");
  for (const int32_t ranks : {1, 2}) {
    cuda::EmulatedGpu gpu;
    gpu.api.add_devices(2 * ranks - 1);
    const auto engine = emulated_engine(gpu);
    engine->install_model("m", options_for(golden, 2, ranks));
    EXPECT_EQ(engine->model_info("m").data_parallel_size, 2);
    EXPECT_EQ(engine->model_info("m").tensor_parallel_size, ranks);
    engine->start_model("m");
    const std::vector<Request> requests = submit_all(*engine, golden);
    std::vector<int32_t> used(2);
    for (size_t i = 0; i < requests.size(); ++i) {
      const Output out = read_all(requests[i].results());
      EXPECT_EQ(out.error_message, "");
      const std::vector<int32_t>& all = golden.prompts[i].tokens;
      EXPECT_EQ(out.token_ids, std::vector<int32_t>(all.begin(), all.begin() + 6));
      ++used[static_cast<size_t>(requests[i].results().stats().replica)];
    }
    EXPECT_GT(std::ranges::min(used), 0);
  }
}

TEST(CudaReplicas, AreNoMoreThanThereAreDevices) {
  const GoldenCase golden = load_golden_case("llama");
  cuda::EmulatedGpu gpu;
  gpu.api.add_devices(1);
  const auto engine = emulated_engine(gpu);
  EXPECT_THROW(engine->install_model("m", options_for(golden, 3, 1)), Error);
  engine->install_model("m", options_for(golden, 2, 1));
}

}  // namespace
}  // namespace headrace
