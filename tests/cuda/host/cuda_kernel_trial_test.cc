// What a GPU must show before it is trusted with a request, with faults that are planted.

#include "cuda/host/trials/kernel_trials.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/log.h"
#include "cuda/host/emulated_gpu.h"
#include "cuda/host/engine_requests.h"
#include "engine/engine_access.h"
#include "engine/load/loaded_model.h"
#include "fakes/fake_model.h"

namespace headrace::cuda {
namespace {

using headrace::testing::read_all;

class KernelTrial : public ::testing::Test {
 protected:
  std::string reason(TrialOp<LinearArgs> op) { return try_wgmma_linears(context_, op); }

  FakeCudaApi api_;
  CudaContext context_{api_, 0};
};

TEST_F(KernelTrial, GoodKernelsPassAndLeaveNothing) {
  EXPECT_EQ(reason(linear), "");
  EXPECT_EQ(try_attention(context_, attention, true), "");
  EXPECT_EQ(try_attention(context_, attention, false), "");
  EXPECT_EQ(try_sampling(context_, sample), "");
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

/// Tensor cores see scores that are twice as large.
void another_scale(const AttentionArgs& args, Stream stream) {
  AttentionArgs bad = args;
  if (!args.plain) bad.scale *= 2.0f;
  attention(bad, stream);
}

/// Short pieces see scores that are a little larger.
template <DType kBad>
void other_decodes(const AttentionArgs& args, Stream stream) {
  attention(args, stream);
  if (args.plain || args.dtype != kBad) return;
  AttentionArgs bad = args;
  bad.scale *= 1.01f;
  bad.long_items.expected = 0;
  attention(bad, stream);
}

TEST_F(KernelTrial, WrongAttentionIsSeen) {
  EXPECT_EQ(try_attention(context_, another_scale, true),
            "values are wrong in bfloat16, heads of 64");
  EXPECT_EQ(try_attention(context_, another_scale, false),
            "values are wrong in bfloat16, heads of 64");
  EXPECT_EQ(try_attention(context_, other_decodes<DType::kBF16>, true),
            "a decode and a prompt differ in bfloat16, heads of 64");
  EXPECT_EQ(try_attention(context_, other_decodes<DType::kF16>, false),
            "a decode and a prompt differ in float16, heads of 128");
}

/// Ids are 16 off.
void shifted(const SampleArgs& args, Stream stream) {
  SampleArgs bad = args;
  bad.logits += 16;
  bad.vocab_size -= 16;
  sample(bad, stream);
}

/// All rows but the first are left out.
void no_draws(const SampleArgs& args, Stream stream) {
  SampleArgs bad = args;
  bad.num_rows = 1;
  sample(bad, stream);
}

TEST_F(KernelTrial, WrongSamplingIsSeen) {
  EXPECT_EQ(try_sampling(context_, shifted), "tokens of greedy are others");
  EXPECT_EQ(try_sampling(context_, no_draws), "tokens of temperature are others");
}

TEST_F(KernelTrial, ARefusedLaunchIsAReasonAndALostGpuAnError) {
  api_.fail("kernel", 98, 3);
  EXPECT_NE(reason(linear).find("fake error 98"), std::string::npos);
  EXPECT_EQ(reason(linear), "");
  api_.fail("kernel", kFakeLaunchFailure, 3, true);
  EXPECT_THROW(reason(linear), Error);
  EXPECT_EQ(api_.device_bytes(), 0u);
}

/// Kernels that a trial launches one by one.
template <class Try>
int launches(const Try& run) {
  FakeCudaApi api;
  CudaContext context(api, 0);
  EXPECT_EQ(run(context), "");
  return api.calls("kernel");
}

// A fault in each trial in turn: its kernels are replaced, by name, and requests are answered as
// ever.
TEST(KernelTrialAtLoad, WhatFailsIsReplacedWithAWarning) {
  const int linears = launches([](CudaContext& c) { return try_wgmma_linears(c, linear); });
  const int attends = launches([](CudaContext& c) { return try_attention(c, attention, true); });
  struct Fault {
    int nth;
    const char* kernels;
  };
  std::vector<int32_t> expected;
  for (const Fault& fault :
       {Fault{0, ""}, Fault{3, "linears by wgmma"}, Fault{linears + 3, "attention by wgmma"},
        Fault{linears + attends + 1, "sampling"}}) {
    SCOPED_TRACE(fault.kernels);
    EmulatedGpu gpu;
    gpu.try_kernels = fault.nth > 0;
    if (gpu.try_kernels) gpu.api.fail("kernel", 98, fault.nth);
    const std::shared_ptr<Backend> backend = gpu.backend(DType::kF32);
    const std::vector<std::string> replaced = backend->device_info().replaced_kernels;
    ASSERT_EQ(replaced.size(), fault.nth > 0 ? 1u : 0u);
    if (fault.nth > 0) {
      EXPECT_EQ(replaced[0].find(fault.kernels), 0u) << replaced[0];
      EXPECT_NE(replaced[0].find("fake error 98"), std::string::npos) << replaced[0];
    }
    const auto open = [&](const ModelOptions&, bool, const BackendNeeds&, Logger&) {
      return backend;
    };
    const auto engine = internal::EngineAccess::make(
        {}, [&](const std::string& name, const ModelOptions& options, Logger& logger) {
          return internal::load_model_on(open, name, options, logger);
        });
    engine->install_model("m", small_options());
    engine->start_model("m");
    EXPECT_EQ(engine->model_info("m").replaced_kernels, replaced);
    Request request = engine->submit("m", small_request(20, 3, 6));
    const auto answer = read_all(request.results());
    EXPECT_EQ(answer.error_message, "");
    if (expected.empty()) expected = answer.token_ids;
    EXPECT_EQ(answer.token_ids, expected);
  }
}

TEST(KernelTrialAtLoad, TheLogWarns) {
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
}

}  // namespace
}  // namespace headrace::cuda
