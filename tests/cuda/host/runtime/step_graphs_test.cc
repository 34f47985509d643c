#include "cuda/host/step/step_graphs.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "cuda/host/support/fake_cuda_api.h"
#include "headrace/status.h"

namespace headrace::cuda {
namespace {

class StepGraphsTest : public testing::Test {
 protected:
  /// Whether a step of so many rows called its ops, rather than launched its record.
  bool computes(int64_t rows) {
    bool called = false;
    graphs_.run({nullptr, nullptr, rows, 1}, 0, [&] { called = true; });
    return called;
  }

  FakeCudaApi api_;
  CudaContext context_{api_, 0};
  StepGraphs graphs_{context_};
};

TEST_F(StepGraphsTest, RunsThenRecordsThenLaunches) {
  EXPECT_TRUE(computes(3));
  EXPECT_EQ(api_.calls("instantiate"), 0);
  EXPECT_TRUE(computes(3));  // into the record
  EXPECT_EQ(api_.calls("instantiate"), 1);
  EXPECT_EQ(api_.calls("upload"), 1);
  EXPECT_EQ(api_.calls("launch"), 1);
  EXPECT_FALSE(computes(3));
  EXPECT_EQ(api_.calls("launch"), 2);
}

// Another thread takes memory while a step is recorded, as one that loads an adapter does.
TEST_F(StepGraphsTest, WhoeverWaitsForSharedWorkWaitsForTheRecordingToEnd) {
  context_.share_work();
  computes(3);
  const int waits = api_.calls("synchronize");
  std::thread other;
  graphs_.run({nullptr, nullptr, 3, 1}, 0, [&] {
    other = std::thread([&] { context_.finish_shared_work(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(api_.calls("synchronize"), waits);
  });
  other.join();
  EXPECT_EQ(api_.calls("synchronize"), waits + 1);
  EXPECT_FALSE(computes(3));
}

TEST_F(StepGraphsTest, TheOneUsedLongestAgoMakesRoom) {
  constexpr auto kMost = static_cast<int64_t>(StepGraphs::kMaxGraphs);
  for (int64_t rows = 0; rows < kMost; ++rows) {
    computes(rows);
    computes(rows);
  }
  EXPECT_FALSE(computes(0));
  EXPECT_TRUE(computes(kMost));
  EXPECT_EQ(graphs_.size(), StepGraphs::kMaxGraphs);
  EXPECT_EQ(api_.calls("destroy_exec"), 1);
  EXPECT_EQ(api_.calls("synchronize"), 0);
  EXPECT_FALSE(computes(0));
  EXPECT_FALSE(computes(2));
  EXPECT_TRUE(computes(1));
}

TEST_F(StepGraphsTest, ARecordThatCannotBeUploadedIsGivenBack) {
  computes(3);
  api_.fail("upload", 2);
  EXPECT_THROW(computes(3), Error);
  EXPECT_TRUE(computes(3));
  EXPECT_FALSE(computes(3));
}

/// Ops as a model calls them: two norms and a linear, each of a tensor and a number.
struct Ops {
  std::vector<float> memory = std::vector<float>(8);
  int64_t rows = 2;
  float eps = 1e-6f;
  const char* last = "linear";
  bool has_more = false;
  int launched = 0;

  void run(StepGraphs& graphs) {
    const TensorView x(memory.data(), DType::kF32, {rows, 2});
    graphs.note("rms_norm", x, eps);
    graphs.note("rms_norm", x, 1.0f);
    graphs.note(last, x, memory.data());
    if (has_more) graphs.note("silu_mul", x);
    if (!graphs.dry_run()) ++launched;
  }
};

class ReplayTest : public testing::Test {
 protected:
  void step() {
    graphs_.run({nullptr, nullptr, 1, 1}, 0, [&] { ops_.run(graphs_); });
  }
  /// The message that a replay throws.
  std::string fault() {
    try {
      step();
    } catch (const InternalError& error) {
      return error.what();
    }
    return "";
  }

  FakeCudaApi api_;
  CudaContext context_{api_, 0};
  StepGraphs graphs_{context_, true};
  Ops ops_;
};

TEST_F(ReplayTest, TheSameOpsAreCalledButLaunchNothing) {
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(ops_.launched, 2);  // as they are, and into the record
  EXPECT_EQ(api_.calls("launch"), 4);
}

TEST_F(ReplayTest, AnyDifferenceIsAnErrorThatNamesTheOp) {
  step();
  step();
  const Ops recorded = ops_;
  const auto expect_fault = [&](const std::string& what) {
    const int launches = api_.calls("launch");
    EXPECT_NE(fault().find(what), std::string::npos) << what;
    EXPECT_EQ(api_.calls("launch"), launches) << "a wrong record was launched";
    ops_.eps = recorded.eps;
    ops_.rows = recorded.rows;
    ops_.last = recorded.last;
    ops_.has_more = false;
    EXPECT_EQ(fault(), "") << "after " << what;
  };
  ops_.eps = 1e-5f;
  expect_fault("op 0 (rms_norm) would now have other arguments");
  ops_.rows = 1;
  expect_fault("op 0 (rms_norm) would now have other arguments");
  ops_.last = "silu_mul";
  expect_fault("op 2 (linear) would now be silu_mul");
  ops_.has_more = true;
  expect_fault("one more: op 3 (silu_mul)");
  std::vector<float> elsewhere(8);
  ops_.memory.swap(elsewhere);
  EXPECT_NE(fault().find("op 0 (rms_norm)"), std::string::npos);
}

}  // namespace
}  // namespace headrace::cuda
