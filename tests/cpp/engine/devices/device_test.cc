#include "engine/devices/open_device.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda_plugin.h"

namespace headrace::internal {
namespace {

namespace fs = std::filesystem;

/// An empty folder that stands for a machine's root.
class CpuFallback : public ::testing::Test {
 protected:
  CpuFallback() : root_(fs::path(::testing::TempDir()) / "cpu_fallback") {
    fs::remove_all(root_);
    fs::create_directories(root_ / "dev");
  }
  ~CpuFallback() override { fs::remove_all(root_); }

  void touch(const std::string& file) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file).put(' ');
  }

  std::vector<std::pair<LogLevel, std::string>> logged() {
    std::vector<std::pair<LogLevel, std::string>> lines;
    Logger logger([&](LogLevel level, std::string_view text) { lines.emplace_back(level, text); },
                  LogLevel::kDebug);
    log_cpu_fallback(Error(ErrorCode::kUnsupported, "there is no plug-in."), logger,
                     root_.string());
    return lines;
  }

  fs::path root_;
};

TEST_F(CpuFallback, IsNoWarningWithoutAGpu) {
  touch("dev/nvidia-caps");
  fs::create_directories(root_ / "proc/driver/nvidia/gpus");
  EXPECT_FALSE(has_nvidia_gpu(root_.string()));
  const auto lines = logged();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].first, LogLevel::kDebug);
  EXPECT_NE(lines[0].second.find("there is no plug-in."), std::string::npos);
}

TEST_F(CpuFallback, WarnsWithTheReasonWhereThereIsAGpu) {
  for (const char* const sign :
       {"dev/nvidia0", "dev/dxg", "proc/driver/nvidia/gpus/0000:01:00.0/information"}) {
    touch(sign);
    EXPECT_TRUE(has_nvidia_gpu(root_.string())) << sign;
    const auto lines = logged();
    ASSERT_EQ(lines.size(), 1u) << sign;
    EXPECT_EQ(lines[0].first, LogLevel::kWarning) << sign;
    EXPECT_NE(lines[0].second.find("there is no plug-in."), std::string::npos) << sign;
    fs::remove_all(root_ / fs::path(sign).begin()->string());
  }
}

}  // namespace
}  // namespace headrace::internal
