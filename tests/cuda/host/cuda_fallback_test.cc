// Device "auto" where the GPU refuses what the model needs, at whatever time of the load.

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "base/log.h"
#include "cpp/engine/expect_error.h"
#include "cuda/host/support/emulated_gpu.h"
#include "cuda/host/support/engine_requests.h"
#include "cuda/host/trials/kernel_trials.h"
#include "engine/engine_access.h"
#include "engine/load/load_model.h"
#include "fakes/fake_engine.h"

namespace headrace::cuda {
namespace {

using headrace::testing::read_all;

/// A machine with one GPU, on which the trial of one group of kernels fails.
struct Machine {
  EmulatedGpu gpu;
  std::string warnings{};
  Logger logger{[this](LogLevel, std::string_view text) { warnings += text; }, LogLevel::kWarning};

  /// Of the kernels that nothing replaces: the first one's `nth` launch fails.
  explicit Machine(int nth) {
    gpu.plain_kernels = gpu.try_kernels = true;
    gpu.api.fail("kernel", 98, nth);
  }

  internal::LoadedModel load(const ModelOptions& options) {
    const auto open = [&](const ModelOptions& own, bool, const BackendNeeds& needs,
                          Logger&) -> std::shared_ptr<Backend> {
      if (own.device == "cpu") return make_cpu_backend({.num_threads = 1});
      auto backend = gpu.backend(needs.storage);
      backend->require(needs);
      return backend;
    };
    return internal::load_model_on(open, "m", options, {}, logger);
  }
};

/// Launches of the trials ahead of those of int4 weights.
int launches_before_quant() {
  int out = 0;
  const auto add = [&](const std::function<void(CudaContext&)>& trial) {
    FakeCudaApi api;
    CudaContext context(api, 0);
    trial(context);
    out += api.calls("kernel");
  };
  add([](CudaContext& c) { try_attention(c, attention, false); });
  add([](CudaContext& c) { try_code_attention(c, attention); });
  add([](CudaContext& c) { try_sampling(c, sample); });
  add([](CudaContext& c) { try_linears(c, linear); });
  return out;
}

ModelOptions int4_options(const std::string& device) {
  ModelOptions options = small_options();
  options.device = device;
  options.dtype = "bfloat16";
  options.quantization = "wint4";
  return options;
}

// The weights are what shows it.
TEST(CudaFallback, AutoIsTheCpuWhereWeightsAreRefused) {
  Machine machine(launches_before_quant() + 1);
  const internal::LoadedModel loaded = machine.load(int4_options("auto"));
  EXPECT_EQ(loaded.info.device, "cpu");
  for (const char* part :
       {"device auto is the CPU", "linears of int4 and int8 weights", "fake error 98"}) {
    EXPECT_NE(machine.warnings.find(part), std::string::npos) << machine.warnings;
  }
}

TEST(CudaFallback, CudaByNameIsRefused) {
  Machine machine(launches_before_quant() + 1);
  testing::expect_error(ErrorCode::kUnsupported,
                        {"linears of int4 and int8 weights", "use device cpu"},
                        [&] { machine.load(int4_options("cuda")); });
}

// Kernels that this model doesn't need are no reason.
TEST(CudaFallback, AutoStaysWhereTheModelRuns) {
  Machine machine(launches_before_quant() + 1);
  ModelOptions options = small_options();
  options.device = "auto";
  EXPECT_EQ(machine.load(options).info.device, "cuda:0");
  EXPECT_EQ(machine.warnings.find("device auto"), std::string::npos) << machine.warnings;
}

}  // namespace
}  // namespace headrace::cuda
