// A load under way: how far it is, how it is ended, and files that change beneath it.

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "cpp/engine/load/packed_model.h"
#include "cpp/model/expect_error.h"
#include "headrace/engine.h"
#include "headrace/pack.h"

namespace headrace {
namespace {

std::vector<LoadStage> stages_of(const std::vector<LoadProgress>& reports) {
  std::vector<LoadStage> out;
  for (const LoadProgress& report : reports) {
    if (out.empty() || out.back() != report.stage) out.push_back(report.stage);
  }
  return out;
}

/// Within each stage what is done grows to all of it.
void expect_growth(const std::vector<LoadProgress>& reports) {
  for (size_t i = 0; i < reports.size(); ++i) {
    EXPECT_LE(reports[i].bytes_done, reports[i].bytes_total);
    const bool is_last = i + 1 == reports.size() || reports[i + 1].stage != reports[i].stage;
    if (is_last) {
      EXPECT_EQ(reports[i].bytes_done, reports[i].bytes_total) << i;
    } else {
      EXPECT_LE(reports[i].bytes_done, reports[i + 1].bytes_done) << i;
    }
  }
}

std::vector<LoadProgress> reports_of(ModelOptions options) {
  std::vector<LoadProgress> reports;
  options.load_progress = [&](const LoadProgress& report) { reports.push_back(report); };
  Engine engine;
  engine.install_model("m", options);
  return reports;
}

class EngineLoad : public testing::Test {
 protected:
  ModelOptions from_folder() const {
    ModelOptions options = model_.options();
    options.packed_weights.clear();
    return options;
  }

  /// Ends a load at its report number `when`, for each there is, and loads again.
  void expect_cancellable(const ModelOptions& options) {
    const size_t count = reports_of(options).size();
    ASSERT_GT(count, 3u);
    Engine engine;
    for (size_t when = 0; when < count; ++when) {
      std::stop_source stop;
      size_t seen = 0;
      ModelOptions ended = options;
      ended.load_stop = stop.get_token();
      ended.load_progress = [&](const LoadProgress&) {
        if (seen++ == when) stop.request_stop();
      };
      if (when + 1 == count) break;  // what follows the last report is too short to be ended
      expect_error(ErrorCode::kCancelled, {"cancelled"}, [&] { engine.install_model("m", ended); });
      EXPECT_LE(seen, when + 2) << "it went on";
      EXPECT_TRUE(engine.models().empty());
    }
    engine.install_model("m", options);
    engine.start_model("m");
    EXPECT_EQ(ask(engine, "m"), answer_of(options));
  }

  const PackedModel model_;
};

TEST_F(EngineLoad, ReportsGrowFromStageToStage) {
  const std::vector<LoadProgress> reports = reports_of(from_folder());
  EXPECT_EQ(stages_of(reports),
            (std::vector{LoadStage::kOpening, LoadStage::kWeights, LoadStage::kReserving}));
  expect_growth(reports);
  EXPECT_GT(reports[reports.size() - 2].bytes_total, 0u);
  EXPECT_STREQ(load_stage_name(LoadStage::kWeights), "weights");
}

TEST_F(EngineLoad, APackedFileIsCheckedBeforeItIsMapped) {
  model_.pack();
  const std::vector<LoadProgress> reports = reports_of(model_.options());
  EXPECT_EQ(stages_of(reports), (std::vector{LoadStage::kOpening, LoadStage::kChecking,
                                             LoadStage::kWeights, LoadStage::kReserving}));
}

TEST_F(EngineLoad, ADraftModelCountsToo) {
  ModelOptions options = from_folder();
  const size_t own = reports_of(options)[1].bytes_total;
  options.speculative.method = "draft_model";
  options.speculative.model = options.path;
  const std::vector<LoadProgress> reports = reports_of(options);
  EXPECT_EQ(reports[1].bytes_total, 2 * own);
  expect_growth(reports);
}

TEST_F(EngineLoad, AStopEndsItAtAnyPointAndLeavesNothing) { expect_cancellable(from_folder()); }

TEST_F(EngineLoad, AStopEndsThatOfAPackedFile) {
  model_.pack();
  expect_cancellable(model_.options());
}

TEST_F(EngineLoad, AStopThatCameBeforeEndsItAtOnce) {
  std::stop_source stop;
  stop.request_stop();
  ModelOptions options = from_folder();
  options.load_stop = stop.get_token();
  Engine engine;
  expect_error(ErrorCode::kCancelled, {}, [&] { engine.install_model("m", options); });
}

TEST_F(EngineLoad, AnotherThreadCanEndIt) {
  ModelOptions options = from_folder();
  std::stop_source stop;
  options.load_stop = stop.get_token();
  std::atomic<bool> loading{false};
  options.load_progress = [&](const LoadProgress& report) {
    if (report.stage != LoadStage::kWeights) return;
    loading = true;
    loading.notify_all();
    while (!stop.stop_requested()) std::this_thread::yield();
  };
  std::thread other([&] {
    loading.wait(false);
    stop.request_stop();
  });
  Engine engine;
  expect_error(ErrorCode::kCancelled, {}, [&] { engine.install_model("m", options); });
  other.join();
}

TEST_F(EngineLoad, WhatTheCallbackThrowsIsThrown) {
  ModelOptions options = from_folder();
  options.load_progress = [](const LoadProgress& report) {
    if (report.stage == LoadStage::kWeights) throw std::out_of_range("mine");
  };
  Engine engine;
  EXPECT_THROW(engine.install_model("m", options), std::out_of_range);
  EXPECT_TRUE(engine.models().empty());
}

TEST_F(EngineLoad, PackingReportsAndEndsToo) {
  std::vector<LoadProgress> reports;
  ModelOptions options = from_folder();
  options.load_progress = [&](const LoadProgress& report) { reports.push_back(report); };
  pack_model(options, model_.file("packed").string());
  EXPECT_EQ(stages_of(reports), (std::vector{LoadStage::kOpening, LoadStage::kWeights}));
  std::filesystem::remove(model_.file("packed"));
  const std::vector<std::string> names = model_.names();
  std::stop_source stop;
  options.load_stop = stop.get_token();
  options.load_progress = [&](const LoadProgress& report) {
    if (report.bytes_done > 0) stop.request_stop();
  };
  expect_error(ErrorCode::kCancelled, {},
               [&] { pack_model(options, model_.file("packed").string()); });
  EXPECT_EQ(model_.names(), names);
}

/// Does `change` to the folder when the first weights have been read.
void expect_noticed(const ModelOptions& plain, const std::function<void()>& change) {
  ModelOptions options = plain;
  bool done = false;
  options.load_progress = [&](const LoadProgress& report) {
    if (done || report.stage != LoadStage::kWeights || report.bytes_done == 0) return;
    done = true;
    change();
  };
  Engine engine;
  expect_error(ErrorCode::kInvalidState, {"model.safetensors", "changed while it was being loaded"},
               [&] { engine.install_model("m", options); });
  EXPECT_TRUE(engine.models().empty());
}

TEST_F(EngineLoad, ACheckpointThatChangesMeanwhileIsAnError) {
  const std::string bytes = model_.read("model.safetensors");
  const auto overwrite = [&] {
    std::fstream out(model_.file("model.safetensors"),
                     std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(-1, std::ios::end);
    out.put(static_cast<char>(bytes.back() ^ 1));
  };
  expect_noticed(from_folder(), overwrite);
  expect_noticed(from_folder(), [&] {
    model_.write("new", bytes);
    std::filesystem::rename(model_.file("new"), model_.file("model.safetensors"));
  });
  ::setenv("HEADRACE_CACHE", model_.file("cache").c_str(), 1);
  ModelOptions cached = from_folder();
  cached.packed_weights = "auto";
  expect_noticed(cached, overwrite);
}

TEST_F(EngineLoad, CreatingAndClosingAgainAndAgainKeepsNothing) {
  const ModelOptions options = from_folder();
  const auto cycle = [&] {
    Engine engine;
    engine.install_model("m", options);
    engine.start_model("m");
    Request request = engine.submit("m", {.prompt_token_ids = {1, 2, 3}});
    request.cancel();
    request.wait();
  };
  for (int i = 0; i < 60; ++i) cycle();
  const size_t before = ::mallinfo2().uordblks;
  constexpr size_t kCycles = 200;
  for (size_t i = 0; i < kCycles; ++i) cycle();
  EXPECT_LT(::mallinfo2().uordblks, before + kCycles * 256);
}

TEST_F(EngineLoad, TheDtypeOfTheKvCacheIsCalledAsInTheOptions) {
  for (const char* dtype : {"float32", "bfloat16", "float16", "int8", "fp8", "uint4"}) {
    ModelOptions options = from_folder();
    options.kv_cache_dtype = dtype;
    Engine engine;
    engine.install_model("m", options);
    EXPECT_EQ(engine.model_info("m").kv_cache_dtype, dtype);
  }
}

TEST_F(EngineLoad, EmptyPathsAreRefused) {
  Engine engine;
  const auto refused = [](const auto& action) {
    expect_error(ErrorCode::kInvalidArgument, {"empty"}, action);
  };
  refused([&] { engine.install_model("m", {}); });
  refused([] { describe_model(""); });
  refused([&] { pack_model(from_folder(), ""); });
  refused([] { pack_model({}, "somewhere"); });
  ModelOptions options = from_folder();
  options.max_loras = 1;
  engine.install_model("m", options);
  expect_error(ErrorCode::kInvalidArgument, {"path can't be empty"},
               [&] { engine.load_lora("m", "a", ""); });
}

}  // namespace
}  // namespace headrace
