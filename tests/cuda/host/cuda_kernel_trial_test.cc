// What a GPU must show before it is trusted with a request, with faults that are planted.

#include "cuda/host/kernel_trial.h"

#include <gtest/gtest.h>

#include <mutex>

#include "base/log.h"
#include "cuda/host/emulated_gpu.h"
#include "cuda/host/engine_requests.h"
#include "engine/load/loaded_model.h"

namespace headrace::cuda {
namespace {

class KernelTrial : public testing::Test {
 protected:
  std::string reason(LinearOp op) { return try_wgmma_linears(context_, op); }

  FakeCudaApi api_;
  CudaContext context_{api_, 0};
};

TEST_F(KernelTrial, GoodKernelsPassAndLeaveNothing) {
  EXPECT_EQ(reason(linear), "");
  EXPECT_GT(api_.calls("launch"), 0);
  EXPECT_EQ(api_.device_bytes(), 0u);
}

/// Of `rows` rows the fast path reads the features one element off.
template <int64_t kBadRows>
void off_by_one(const LinearArgs& args, Stream stream) {
  LinearArgs bad = args;
  if (args.has_wgmma && args.x.rows == kBadRows) {
    bad.x.data = static_cast<const char*>(args.x.data) + 16;
    --bad.x.rows;
    --bad.out.rows;
  }
  linear(bad, stream);
}

TEST_F(KernelTrial, WrongBitsNameTheRows) {
  EXPECT_EQ(reason(off_by_one<64>), "of 64 rows in bfloat16 they differ");
  EXPECT_EQ(reason(off_by_one<257>), "of 257 rows in bfloat16 they differ");
}

void wrong_with_silu(const LinearArgs& args, Stream stream) {
  LinearArgs bad = args;
  if (args.has_wgmma && args.dtype == DType::kF16) bad.silu_mul = bad.layout.gate_up = false;
  if (bad.silu_mul != args.silu_mul) bad.layout.n /= 2;
  linear(bad, stream);
}

TEST_F(KernelTrial, EveryEpilogueAndTypeIsTried) {
  EXPECT_EQ(reason(wrong_with_silu), "of 1 rows in float16 with SiLU they differ");
}

TEST_F(KernelTrial, ARefusedLaunchIsAReasonAndALostGpuAnError) {
  api_.fail("kernel", 98, 3);
  EXPECT_NE(reason(linear).find("fake error 98"), std::string::npos);
  EXPECT_EQ(reason(linear), "");
  api_.fail("kernel", kFakeLaunchFailure, 3, true);
  EXPECT_THROW(reason(linear), Error);
  EXPECT_EQ(api_.device_bytes(), 0u);
}

TEST(KernelTrialAtLoad, WhatFailsIsReplacedWithAWarning) {
  EmulatedGpu gpu;
  gpu.try_kernels = true;
  gpu.api.fail("kernel", 98, 3);
  std::string warnings;
  Logger logger([&](LogLevel, std::string_view text) { warnings += text; }, LogLevel::kWarning);
  const auto open = [&](const ModelOptions&, bool, const BackendNeeds& needs, Logger&) {
    return gpu.backend(needs.storage);
  };
  internal::load_model_on(open, "m", small_options(), logger);
  EXPECT_NE(warnings.find("linears by wgmma"), std::string::npos) << warnings;
  EXPECT_NE(warnings.find("fake error 98"), std::string::npos) << warnings;
  warnings.clear();
  EXPECT_EQ(gpu.backend(DType::kBF16)->device_info().replaced_kernels.size(), 0u);
  internal::load_model_on(open, "m", small_options(), logger);
  EXPECT_EQ(warnings, "");
}

}  // namespace
}  // namespace headrace::cuda
