// What is said where no GPU can be used.

#include "cuda/host/runtime/device_check.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cuda/host/support/fake_cuda_api.h"
#include "headrace/status.h"

namespace headrace::cuda {
namespace {

struct Machine {
  const char* name;
  std::function<void(FakeCudaApi&)> spoil;
  std::vector<std::string> mentions;
  int32_t device = 0;
};

class UnusableMachine : public testing::TestWithParam<Machine> {};

TEST_P(UnusableMachine, IsRefusedWithItsReasonAndARemedy) {
  FakeCudaApi api;
  require_device(api, 0);
  GetParam().spoil(api);
  try {
    require_device(api, GetParam().device);
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    for (const std::string& word : GetParam().mentions) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, UnusableMachine,
    testing::Values(
        Machine{"no_driver", [](auto& api) { api.driver = 0; }, {"no NVIDIA driver", "cpu"}},
        Machine{"driver_call_fails",
                [](auto& api) { api.fail("driver_version", kErrorInsufficientDriver); },
                {"no NVIDIA driver"}},
        Machine{"old_driver",
                [](auto& api) { api.driver = 12040; },
                {"supports CUDA 12.4", "needs 13.0", "update the driver"}},
        Machine{"no_gpu", [](auto& api) { api.devices.clear(); }, {"finds no GPU", "nvidia-smi"}},
        Machine{
            "count_fails", [](auto& api) { api.fail("device_count", 802); }, {"fake error 802"}},
        Machine{"no_such_gpu", [](auto&) {}, {"no GPU 1", "(cuda:0)"}, 1},
        Machine{"no_such_gpu_of_two",
                [](auto& api) { api.devices.push_back(api.devices[0]); },
                {"no GPU 2", "(cuda:0 to cuda:1)"},
                2},
        Machine{"old_gpu",
                [](auto& api) {
                  api.devices[0].name = "Tesla V100";
                  api.devices[0].major = 7;
                },
                {"Tesla V100", "7.0", "8.0"}},
        Machine{"no_kernels",
                [](auto& api) {
                  api.devices[0] = {"RTX 5090", 12, 0};
                  api.fail("find_kernels", kErrorNoKernelImage);
                },
                {"no kernels for GPU 0", "RTX 5090", "12.0", "80-real, 90a-real", "device cpu"}},
        Machine{"kernels_cannot_be_looked_for",
                [](auto& api) { api.fail("find_kernels", 46); },
                {"fake error 46"}}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(RequireDevice, TakesAmpereAndTheSameMajorVersionsDriver) {
  FakeCudaApi api;
  api.runtime = 13020;
  api.devices[0].major = 8;
  EXPECT_EQ(require_device(api, 0).major, 8);
}

TEST(ListDevices, NamesThoseThatCannotBeUsedWithTheReason) {
  FakeCudaApi api;
  api.add_devices(1);
  api.devices[1].name = "Tesla V100";
  api.devices[1].major = 7;
  const std::vector<GpuInfo> gpus = list_devices(api);
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].device, "cuda:0");
  EXPECT_EQ(gpus[0].name, "Fake GPU");
  EXPECT_EQ(gpus[0].compute_capability, "9.0");
  EXPECT_EQ(gpus[0].total_bytes, size_t{1} << 30);
  EXPECT_EQ(gpus[0].unusable, "");
  EXPECT_EQ(gpus[1].device, "cuda:1");
  EXPECT_NE(gpus[1].unusable.find("7.0, but 8.0 or later is needed"), std::string::npos)
      << gpus[1].unusable;
}

TEST(ListDevices, SaysWhatIsMissingWhereThereAreNone) {
  FakeCudaApi api;
  api.driver = 0;
  EXPECT_THROW(list_devices(api), Error);
  api.driver = 13000;
  api.devices.clear();
  EXPECT_THROW(list_devices(api), Error);
}

}  // namespace
}  // namespace headrace::cuda
