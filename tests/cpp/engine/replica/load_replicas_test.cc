// Replicas are loaded together: their progress, their failure, and where they are.

#include "engine/replica/load_replicas.h"

#include <gtest/gtest.h>

#include <atomic>
#include <initializer_list>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "cpp/engine/expect_error.h"
#include "engine/devices/device_names.h"

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
  for (const char* alias : {"cuda:00", "cuda:-0", "cuda:-1", "cuda:+1"}) {
    options.devices = {"cuda:0", alias};
    refuse(options, {alias, "at place 1"});
  }
}

}  // namespace
}  // namespace headrace::internal
