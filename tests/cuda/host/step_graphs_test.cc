#include "cuda/host/step_graphs.h"

#include <gtest/gtest.h>

#include "cuda/host/fake_cuda_api.h"
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

}  // namespace
}  // namespace headrace::cuda
