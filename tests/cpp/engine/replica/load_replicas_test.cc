// Replicas are loaded together: their progress, their failure, and where they are.

#include "engine/replica/load_replicas.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "cpp/engine/expect_error.h"
#include "engine/load/device.h"
#include "engine/load/memory_plan.h"

namespace headrace::internal {
namespace {

using testing::expect_error;

ModelOptions replicas(int32_t count) {
  ModelOptions out;
  out.path = "m";
  out.data_parallel_size = count;
  return out;
}

LoadedModel loaded_on(const std::string& device) {
  LoadedModel out;
  out.info.device = device;
  return out;
}

TEST(LoadReplicas, TellsEachItsPlaceAndTheFirstOnesDevice) {
  for (const std::string device : {"cpu", "cuda:0"}) {
    Logger logger;
    std::vector<std::string> places(3);
    const auto loader = [&](const std::string&, const ModelOptions&, const ReplicaPlace& replica,
                            Logger&) {
      places[static_cast<size_t>(replica.index)] = replica.first_device;
      return loaded_on(device);
    };
    EXPECT_EQ(load_replicas(loader, "m", replicas(3), logger).size(), 3u);
    EXPECT_EQ(places, (std::vector<std::string>{"", device, device}));
  }
}

TEST(LoadReplicas, OneThatFailsCancelsTheOthers) {
  Logger logger;
  std::atomic<int> cancelled{0};
  const auto loader = [&](const std::string&, const ModelOptions& options,
                          const ReplicaPlace& replica, Logger&) -> LoadedModel {
    if (replica.index == 2) throw Error(ErrorCode::kDevice, "planted");
    while (replica.index > 0 && !options.load_stop.stop_requested()) std::this_thread::yield();
    if (replica.index > 0) {
      ++cancelled;
      throw Error(ErrorCode::kCancelled, "the load was cancelled.");
    }
    return loaded_on("cuda:0");
  };
  expect_error(ErrorCode::kDevice, {"planted"},
               [&] { load_replicas(loader, "m", replicas(4), logger); });
  EXPECT_EQ(cancelled, 2);
}

TEST(LoadReplicas, NothingIsMadeForMoreThanThereMayBe) {
  Logger logger;
  const auto loader = [&](const std::string&, const ModelOptions&, const ReplicaPlace&, Logger&) {
    ADD_FAILURE() << "it was asked to load one";
    return loaded_on("cpu");
  };
  expect_error(ErrorCode::kInvalidArgument, {"data_parallel_size", "[1, 64]", "got 65"},
               [&] { load_replicas(loader, "m", replicas(65), logger); });
}

TEST(LoadReplicas, StopWhenTheOwnerAsks) {
  Logger logger;
  std::stop_source stop;
  ModelOptions options = replicas(2);
  options.load_stop = stop.get_token();
  const auto loader = [&](const std::string&, const ModelOptions& own, const ReplicaPlace&,
                          Logger&) -> LoadedModel {
    stop.request_stop();
    EXPECT_TRUE(own.load_stop.stop_requested());
    throw Error(ErrorCode::kCancelled, "the load was cancelled.");
  };
  expect_error(ErrorCode::kCancelled, {}, [&] { load_replicas(loader, "m", options, logger); });
}

TEST(LoadReplicas, TheirProgressIsOne) {
  Logger logger;
  std::vector<LoadProgress> seen;
  ModelOptions options = replicas(2);
  options.load_progress = [&](const LoadProgress& now) { seen.push_back(now); };
  const auto loader = [&](const std::string&, const ModelOptions& own, const ReplicaPlace&,
                          Logger&) {
    own.load_progress({.stage = LoadStage::kOpening});
    for (const size_t done : {0, 50, 100}) {
      own.load_progress({.stage = LoadStage::kWeights, .bytes_done = done, .bytes_total = 100});
    }
    own.load_progress({.stage = LoadStage::kReserving});
    return loaded_on("cpu");
  };
  load_replicas(loader, "m", options, logger);
  ASSERT_EQ(seen.size(), 9u);
  EXPECT_EQ(seen.front().stage, LoadStage::kOpening);
  EXPECT_EQ(seen.back().stage, LoadStage::kReserving);
  size_t before = 0;
  for (size_t i = 1; i + 1 < seen.size(); ++i) {
    EXPECT_EQ(seen[i].stage, LoadStage::kWeights);
    EXPECT_EQ(seen[i].bytes_total, 200u);
    EXPECT_GE(seen[i].bytes_done, before);
    before = seen[i].bytes_done;
  }
  EXPECT_EQ(before, 200u);
}

TEST(ReplicaDevices, AreThoseOfTheListInTheirOrder) {
  ModelOptions options = replicas(2);
  options.devices = {"cuda:3", "cuda:1", "cuda:0", "cuda:2"};
  check_devices(options);
  EXPECT_EQ(num_ranks(options), 2);
  EXPECT_EQ(rank_options(options, {0, ""}, 1, nullptr).device, "cuda:1");
  EXPECT_EQ(rank_options(options, {1, "cuda:3"}, 0, nullptr).device, "cuda:0");
}

TEST(ReplicaDevices, AreTheFirstGpusOrGroupsOfThreads) {
  ModelOptions options = replicas(3);
  options.device = "cuda";
  options.tensor_parallel_size = 2;
  EXPECT_EQ(rank_options(options, {2, "cuda:0"}, 1, nullptr).device, "cuda:5");
  options.device = "cpu";
  const ModelOptions own = rank_options(options, {1, "cpu"}, 0, nullptr);
  EXPECT_EQ(own.device, "cpu:2");
  EXPECT_EQ(own.tensor_parallel_size, 6) << "num_threads is for all of them";
}

TEST(ReplicaDevices, AutoIsWhatTheFirstReplicaFound) {
  ModelOptions options = replicas(2);
  EXPECT_EQ(rank_options(options, {0, ""}, 0, nullptr).device, "auto");
  EXPECT_EQ(rank_options(options, {1, "cuda:0"}, 0, nullptr).device, "cuda:1");
  EXPECT_EQ(rank_options(options, {1, "cpu"}, 0, nullptr).device, "cpu:1");
}

TEST(ReplicaDevices, NumbersThatCantBeAreNamed) {
  const auto refuse = [](const ModelOptions& options, std::initializer_list<const char*> words) {
    expect_error(ErrorCode::kInvalidArgument, words, [&] { check_devices(options); });
  };
  refuse(replicas(0), {"data_parallel_size", "[1, 64]", "got 0"});
  refuse(replicas(65), {"data_parallel_size", "got 65"});
  ModelOptions options = replicas(16);
  options.tensor_parallel_size = 8;
  refuse(options, {"data_parallel_size x tensor_parallel_size", "128"});
  options = replicas(2);
  options.device = "cuda:1";
  refuse(options, {"cuda:1", "data_parallel_size is 2"});
  options = replicas(2);
  options.devices = {"cuda:0", "cuda:1", "cuda:2"};
  refuse(options, {"devices names 3", "data_parallel_size 2"});
  options.devices = {"cuda:0", "cuda:1", "cuda:2", "cuda:3"};
  options.tensor_parallel_size = 4;
  refuse(options, {"tensor_parallel_size is 4", "names 2 for each replica"});
  options.devices = {"cuda:0", "cuda:0"};
  options.tensor_parallel_size = 1;
  refuse(options, {"cuda:0 twice"});
}

/// What each of them may take of `free`, of which those before it have taken theirs.
std::vector<size_t> shares(MemoryRequest request, int32_t count) {
  std::vector<size_t> out;
  request.block_bytes = 1 << 10;
  request.block_size = 16;
  request.max_num_seqs = 64;
  request.model_max_len = 1 << 24;
  for (int32_t i = 0; i < count; ++i) {
    request.sharers = count - i;
    request.sharers_before = i;
    out.push_back(size_t{1024} * static_cast<size_t>(plan_memory(request).num_kv_blocks));
    request.free_bytes -= out.back();
  }
  return out;
}

TEST(ReplicaMemory, SharesAreEqualAndNoMoreThanOneWouldTake) {
  constexpr size_t kFree = size_t{1} << 30;
  for (const int32_t count : {1, 2, 4, 7}) {
    for (const double share : {0.1, 0.5, 0.9, 1.0}) {
      MemoryRequest request;
      request.free_bytes = kFree;
      request.total_bytes = 2 * kFree;
      request.utilization = share;
      const auto expect_shares = [&](double whole) {
        size_t sum = 0;
        for (const size_t own : shares(request, count)) {
          EXPECT_NEAR(static_cast<double>(own), whole / count, 4096) << count << " " << share;
          sum += own;
        }
        EXPECT_LE(static_cast<double>(sum), whole + 1);
      };
      expect_shares(share * kFree);
      request.total_ratio = share;
      expect_shares(std::min(2 * share, 1.0) * kFree);
    }
  }
}

TEST(ReplicaMemory, AnErrorSaysWhoSharesIt) {
  MemoryRequest request;
  request.free_bytes = request.total_bytes = size_t{1} << 30;
  request.utilization = 0.5;
  request.weight_bytes = size_t{512} << 20;
  request.block_bytes = 1 << 10;
  request.sharers = 1;
  request.sharers_before = 1;
  expect_error(ErrorCode::kOutOfMemory, {"for 2 replicas, of which 1 have been loaded"},
               [&] { plan_memory(request); });
}

TEST(ReplicaMemory, IsSharedByThoseThatAreToCome) {
  MemoryRequest request;
  request.free_bytes = request.total_bytes = size_t{10} << 20;
  request.host_free_bytes = size_t{10} << 20;
  request.utilization = 0.8;
  request.weight_bytes = size_t{1} << 20;
  request.block_bytes = request.host_block_bytes = 1 << 10;
  request.block_size = 16;
  request.max_num_seqs = 1;
  request.model_max_len = 1 << 20;
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 7 << 10);
  request.sharers = 2;
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 3 << 10);
  request.sharers = 8;
  expect_error(ErrorCode::kOutOfMemory, {"8 replicas"}, [&] { plan_memory(request); });
  request.sharers = 1;
  request.device_is_host = false;
  request.swap_space = 6.0 / 1024;
  EXPECT_EQ(plan_memory(request).num_host_blocks, 6 << 10);
  request.host_sharers = 2;
  expect_error(ErrorCode::kOutOfMemory, {"swap_space", "for each of the"},
               [&] { plan_memory(request); });
}

}  // namespace
}  // namespace headrace::internal
