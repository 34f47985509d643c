#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/threads/numa_topology.h"
#include "headrace/cpu.h"
#include "headrace/gpu.h"
#include "headrace/status.h"

namespace headrace {
namespace {

TEST(DescribeCpu, IsasLackWhatKeepsThemFromBeingUsed) {
  const std::vector<std::string> available = available_cpu_isas();
  const CpuInfo info = describe_cpu();
  ASSERT_FALSE(info.isas.empty());
  EXPECT_EQ(info.isas.back().name, "baseline");
  for (const CpuIsaInfo& isa : info.isas) {
    EXPECT_EQ(isa.missing.empty(), std::ranges::count(available, isa.name) == 1) << isa.name;
  }
}

TEST(DescribeCpu, SaysWhatABackendWouldUse) {
  const CpuInfo info = describe_cpu();
  const DeviceInfo device = make_cpu_backend()->device_info();
  EXPECT_EQ(info.isa, device.isa);
  EXPECT_EQ(info.num_threads, device.num_threads);
  EXPECT_NE(device.description.find(info.brand), std::string::npos);
  int32_t cores = 0;
  for (const std::string& node : info.numa_nodes) cores += parse_cpu_list(node).value().count();
  EXPECT_EQ(cores, info.cores);
  EXPECT_FALSE(info.huge_pages.empty());
}

// With or without a plug-in, a driver and GPUs.
TEST(DescribeGpus, ListsThemOrSaysWhatIsMissing) {
  try {
    for (const GpuInfo& gpu : describe_gpus()) EXPECT_EQ(gpu.device.find("cuda:"), 0u);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
  }
}

}  // namespace
}  // namespace headrace
