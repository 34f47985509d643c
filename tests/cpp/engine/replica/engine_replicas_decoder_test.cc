// Replicas of models that compute: the same bits as one, on groups of threads, also where each
// replica is shared by several.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/cpu_isa.h"
#include "base/check.h"
#include "cpp/model/golden_case.h"
#include "engine/load/describe.h"
#include "fakes/fake_engine.h"
#include "headrace/engine.h"
#include "memory/mmap_allocator.h"

namespace headrace {
namespace {

using testing::read_all;

std::vector<Output> answers(const std::string& model, int32_t replicas, int32_t ranks,
                            const std::string& speculative, std::vector<int32_t>& used) {
  const GoldenCase golden = load_golden_case(model);
  ModelOptions options;
  options.path = golden.folder;
  options.device = "cpu";
  options.data_parallel_size = replicas;
  options.tensor_parallel_size = ranks;
  options.num_threads = replicas * ranks;
  options.num_kv_blocks = 64;
  options.block_size = 16;
  options.max_num_seqs = 4;
  options.speculative.method = speculative;
  Engine engine;
  engine.install_model("m", options);
  const ModelInfo info = engine.model_info("m");
  EXPECT_EQ(info.data_parallel_size, replicas);
  EXPECT_EQ(info.tensor_parallel_size, ranks);
  EXPECT_EQ(info.num_threads, replicas * ranks);
  EXPECT_EQ(info.num_kv_blocks, replicas * 64);
  engine.start_model("m");
  std::vector<Request> requests;
  for (int round = 0; round < 2; ++round) {
    for (const GoldenPrompt& entry : golden.prompts) {
      RequestOptions request;
      request.prompt_token_ids = entry.prompt;
      request.sampling.seed = 7;
      request.sampling.max_tokens = 12;
      request.sampling.ignore_eos = true;
      request.sampling.logprobs = 2;
      requests.push_back(engine.submit("m", request));
    }
  }
  std::vector<Output> out;
  for (const Request& request : requests) {
    out.push_back(read_all(request.results()));
    used.push_back(request.results().stats().replica);
  }
  return out;
}

void expect_same(const std::vector<Output>& a, const std::vector<Output>& b) {
  ASSERT_EQ(a.size(), b.size());
  const auto same = [](const PositionLogprobs& x, const PositionLogprobs& y) {
    return x.token == y.token && x.logprob == y.logprob && x.top == y.top;
  };
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].token_ids, b[i].token_ids);
    EXPECT_TRUE(std::ranges::equal(a[i].logprobs, b[i].logprobs, same));
  }
}

TEST(EngineReplicas, GiveTheBitsOfOne) {
  for (const char* model : {"llama", "qwen3_moe"}) {
    for (const int32_t ranks : {1, 2}) {
      std::vector<int32_t> one, three;
      const auto alone = answers(model, 1, ranks, "", one);
      expect_same(alone, answers(model, 3, ranks, "", three));
      EXPECT_EQ(std::ranges::count(one, 0), std::ssize(one));
      for (const int32_t replica : {0, 1, 2}) EXPECT_GT(std::ranges::count(three, replica), 0);
    }
  }
}

TEST(EngineReplicas, GiveTheBitsOfOneWithGuesses) {
  std::vector<int32_t> used;
  expect_same(answers("llama", 1, 1, "ngram", used), answers("llama", 2, 1, "ngram", used));
}

int32_t blocks_of(int32_t replicas, size_t bytes) {
  const size_t total = host_memory_info().total_bytes;
  ModelOptions options;
  options.path = load_golden_case("llama").folder;
  options.device = "cpu";
  options.data_parallel_size = replicas;
  options.num_threads = 3;
  options.max_num_batched_tokens = options.max_num_seqs = 2048;
  options.block_size = 16;
  options.total_memory_ratio = static_cast<double>(bytes) / static_cast<double>(total);
  Engine engine;
  engine.install_model("m", options);
  return engine.model_info("m").num_kv_blocks;
}

TEST(EngineReplicas, ShareTheMemoryOfOne) {
  constexpr size_t kEach = size_t{40} << 20;
  const int32_t one = blocks_of(1, kEach);
  EXPECT_LT(one, blocks_of(1, 2 * kEach)) << "memory is what there is too little of";
  EXPECT_NEAR(blocks_of(3, 3 * kEach), 3 * one, 3);
}

class FakeGpu final : public CpuBackend {
 public:
  explicit FakeGpu(int32_t number) : CpuBackend(select_cpu_isa(""), 1, 0), number_(number) {}

  DeviceInfo device_info() const override {
    DeviceInfo info = CpuBackend::device_info();
    info.name = str_cat("cuda:", number_);
    info.host_memory = false;
    info.free_bytes = static_cast<size_t>(100 + number_);
    info.replaced_kernels = {str_cat("planted ", number_)};
    return info;
  }

 private:
  const int32_t number_;
};

TEST(DescribeDevice, IsOfAllOfThem) {
  using Kernels = std::vector<std::string>;
  const auto describe = [](int32_t count, int32_t replicas) {
    internal::RankedBackends ranks{std::make_shared<internal::RankThreads>(count), {}};
    for (int32_t i = 0; i < count; ++i) ranks.backends.push_back(std::make_shared<FakeGpu>(i));
    ModelInfo info;
    internal::describe_device(ranks, replicas, info);
    EXPECT_EQ(info.num_nodes, 1);
    return info;
  };
  EXPECT_EQ(describe(1, 1).device_free_bytes, 100u);
  EXPECT_EQ(describe(1, 1).replaced_kernels, (Kernels{"planted 0"}));
  EXPECT_EQ(describe(1, 2).replaced_kernels, (Kernels{"cuda:0: planted 0"}));
  EXPECT_EQ(describe(2, 1).device_free_bytes, 201u);
  EXPECT_EQ(describe(2, 1).replaced_kernels, (Kernels{"cuda:0: planted 0", "cuda:1: planted 1"}));
}

}  // namespace
}  // namespace headrace
