// The CUDA backend's host side: waits, memory, faults.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/host/emulated_gpu.h"
#include "cuda/host/generate.h"

namespace headrace {
namespace {

using cuda::EmulatedGpu;

class CudaBackendTest : public testing::Test {
 protected:
  EmulatedGpu gpu_;
};

TEST_F(CudaBackendTest, AStepWaitsOnlyToReadItsResults) {
  DecoderHarness harness(gpu_.backend(DType::kF32), llama_folder(), {});
  generate_alone(harness, 0, prompt(5, 1), 6);
  gpu_.api.reset_calls();
  harness.step({{0, {1}}});
  EXPECT_LE(gpu_.api.calls("synchronize"), 2);  // read_back's own
  EXPECT_EQ(gpu_.api.calls("malloc_device") + gpu_.api.calls("malloc_pinned"), 0);
}

TEST_F(CudaBackendTest, GivesEverythingBack) {
  {
    DecoderHarness harness(gpu_.backend(DType::kBF16), llama_folder(), {.storage = DType::kBF16});
    generate_alone(harness, 0, prompt(5, 1), 3);
    EXPECT_GT(gpu_.api.device_bytes(), 0u);
  }
  EXPECT_EQ(gpu_.api.device_bytes(), 0u);
}

TEST_F(CudaBackendTest, OutOfMemoryNamesWhatIsFree) {
  gpu_.api.total_bytes = size_t{80} << 20;
  gpu_.api.others_bytes = size_t{10} << 20;
  const auto backend = gpu_.backend(DType::kF32);
  const Backend::Buffer held = backend->allocate(size_t{66} << 20);
  try {
    const Backend::Buffer more = backend->allocate(size_t{8} << 20);
    FAIL() << "was given";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find("4 MiB of 80 MiB are free"), std::string::npos)
        << error.what();
  }
  EXPECT_FALSE(backend->lost());
  EXPECT_NO_THROW(backend->allocate(1 << 20));
}

TEST_F(CudaBackendTest, APassingErrorFailsItsStepAlone) {
  DecoderHarness harness(gpu_.backend(DType::kF32), llama_folder(), {});
  const Rows before = generate_alone(harness, 0, prompt(5, 1), 4);
  for (const char* call : {"copy", "synchronize", "launch", "kernel", "record"}) {
    gpu_.api.fail(call, 999);
    EXPECT_THROW(generate_alone(harness, 0, prompt(5, 1), 4), Error) << call;
    EXPECT_FALSE(harness.backend().lost());
    EXPECT_EQ(generate_alone(harness, 0, prompt(5, 1), 4), before) << call;
  }
}

TEST_F(CudaBackendTest, AFailedRecordingIsTriedAgain) {
  const Rows want = [&] {
    DecoderHarness harness(gpu_.backend(DType::kF32), llama_folder(), {});
    return generate_alone(harness, 0, prompt(5, 1), 4);
  }();
  for (const char* call : {"begin_capture", "end_capture", "instantiate"}) {
    DecoderHarness harness(gpu_.backend(DType::kF32), llama_folder(), {});
    gpu_.api.fail(call, 999);
    EXPECT_THROW(generate_alone(harness, 0, prompt(5, 1), 4), Error) << call;
    EXPECT_EQ(generate_alone(harness, 0, prompt(5, 1), 4), want) << call;
  }
}

TEST_F(CudaBackendTest, ALostGpuSaysSoAndIsStillGivenBack) {
  DecoderHarness harness(gpu_.backend(DType::kF32), llama_folder(), {});
  generate_alone(harness, 0, prompt(5, 1), 4);
  gpu_.api.fail("synchronize", cuda::kFakeLaunchFailure, 1, true);
  for (int i = 0; i < 2; ++i) {
    try {
      harness.step({{0, {1}}});
      FAIL() << "the step went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDevice);
      EXPECT_NE(std::string(error.what()).find("can't go on"), std::string::npos) << error.what();
    }
    EXPECT_TRUE(harness.backend().lost());
  }
}

}  // namespace
}  // namespace headrace
