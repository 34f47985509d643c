// What is said of several replicas as of one model.

#include "engine/replica/combine_replicas.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headrace::internal {
namespace {

std::vector<LoadedModel> two() {
  std::vector<LoadedModel> out(2);
  for (LoadedModel& each : out) {
    each.scheduler.max_model_len = 128;
    each.scheduler.max_num_batched_tokens = 64;
    each.encoder.limits.refusal.clear();
    each.encoder.limits.cache_bytes = 1000;
    each.encoder.limits.most_scratch = 500;
  }
  return out;
}

TEST(CommonLimits, AreWhatTheSmallerOneTakes) {
  std::vector<LoadedModel> replicas = two();
  replicas[0].scheduler.max_model_len = 100;
  replicas[1].scheduler.max_num_batched_tokens = 32;
  replicas[1].encoder.limits.cache_bytes = 800;
  replicas[1].encoder.limits.most_scratch = 400;
  for (LoadedModel& each : replicas) each.scheduler.windows = {0, 128};
  replicas[0].scheduler.num_blocks = 40;
  replicas[1].scheduler.num_blocks = 30;
  const RequestLimits limits = common_limits(replicas);
  EXPECT_EQ(limits.max_model_len, 100);
  EXPECT_EQ(limits.max_num_batched_tokens, 32);
  EXPECT_EQ(limits.num_kv_blocks, 30);
  EXPECT_EQ(limits.num_kv_groups, 2);
  EXPECT_EQ(limits.kv_tokens, 64 * (30 - 5)) << "127 positions and a step's, and two blocks";
  EXPECT_EQ(limits.media.cache_bytes, 800u);
  EXPECT_EQ(limits.media.most_scratch, 400u);
  EXPECT_EQ(limits.media.refusal, "");
}

TEST(CommonLimits, OneThatTakesNoMediaSpeaksForAll) {
  for (const size_t refusing : {0, 1}) {
    std::vector<LoadedModel> replicas = two();
    replicas[refusing].encoder.limits.refusal = "this GPU is too old.";
    EXPECT_EQ(common_limits(replicas).media.refusal, "this GPU is too old.");
  }
}

TEST(SumInfo, OfNodesThatAreEachOnesOwn) {
  std::vector<LoadedModel> replicas = two();
  for (LoadedModel& each : replicas) {
    each.info.device = "cpu_numa";
    each.info.num_nodes = 2;
    each.info.device_free_bytes = 70;
  }
  replicas[1].info.device_free_bytes = 40;
  EXPECT_EQ(sum_info(replicas).num_nodes, 4);
  EXPECT_EQ(sum_info(replicas).device_free_bytes, 40u) << "one memory, when all had been loaded";
  for (LoadedModel& each : replicas) {
    each.info.device = "cpu";
    each.info.num_nodes = 1;
  }
  EXPECT_EQ(sum_info(replicas).num_nodes, 1);
}

TEST(SumInfo, OfGpus) {
  std::vector<LoadedModel> replicas = two();
  replicas[0].info.device = "cuda:0";
  replicas[1].info.device = "cuda:2";
  for (LoadedModel& each : replicas) {
    each.info.num_nodes = 1;
    each.info.device_free_bytes = 10;
    each.info.max_num_batched_tokens = 64;
    each.info.replaced_kernels = {each.info.device + ": planted"};
    each.info.takes_embeddings = true;
  }
  replicas[1].info.max_num_batched_tokens = 32;
  replicas[1].info.takes_embeddings = false;
  const ModelInfo sum = sum_info(replicas);
  EXPECT_EQ(sum.num_nodes, 1);
  EXPECT_EQ(sum.device_free_bytes, 20u);
  EXPECT_EQ(sum.max_num_batched_tokens, 32);
  EXPECT_FALSE(sum.takes_embeddings);
  EXPECT_EQ(sum.replaced_kernels, (std::vector<std::string>{"cuda:0: planted", "cuda:2: planted"}));
}

}  // namespace
}  // namespace headrace::internal
