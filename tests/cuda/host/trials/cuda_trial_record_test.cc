// Which GPUs are remembered to have passed their trials.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cuda/host/support/emulated_gpu.h"
#include "cuda/host/trials/trial_record.h"

namespace headrace::cuda {
namespace {

namespace fs = std::filesystem;

class Records : public ::testing::Test {
 protected:
  Records() { fs::remove_all(folder_.parent_path()); }
  ~Records() override { fs::remove_all(folder_.parent_path()); }

  static TrialRecord record(const fs::path& folder, const std::string& key = "a key") {
    return {folder, key};
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(folder_)) out.push_back(entry.path());
    return out;
  }

  const fs::path folder_ = fs::path(::testing::TempDir()) / "trial records" / "of_kernels";
};

TEST_F(Records, AreOfOneKey) {
  EXPECT_FALSE(record(folder_).passed());
  record(folder_).keep();
  EXPECT_TRUE(record(folder_).passed());
  EXPECT_FALSE(record(folder_, "b key").passed());
  record(folder_).keep();
  EXPECT_EQ(files().size(), 1u);
}

// What others may have written is no proof, nor is what isn't whole.
TEST_F(Records, OfFilesThatAreNotWhatWasKeptAreNone) {
  const auto spoiled = [&](const auto& spoil) {
    fs::remove_all(folder_);
    record(folder_).keep();
    EXPECT_TRUE(record(folder_).passed());
    spoil(files().at(0));
    EXPECT_FALSE(record(folder_).passed());
    if (fs::is_regular_file(files().at(0))) {
      record(folder_).keep();
      EXPECT_TRUE(record(folder_).passed());
    }
  };
  spoiled([](const fs::path& file) { fs::resize_file(file, 2); });
  spoiled([](const fs::path& file) { fs::resize_file(file, 0); });
  spoiled([](const fs::path& file) { std::ofstream(file) << "b key"; });  // as long
  spoiled([](const fs::path& file) { std::ofstream(file, std::ios::app) << "and more"; });
  spoiled([](const fs::path& file) {
    fs::permissions(file, fs::perms::others_write, fs::perm_options::add);
  });
  spoiled([](const fs::path& file) {
    fs::remove(file);
    fs::create_directory(file);
  });
}

// A folder that can't be made or written costs nothing but the trials. (Root writes everywhere.)
TEST_F(Records, WithoutAFolderNothingIsKept) {
  for (const char* folder : {"", "/dev/null/folder"}) {
    record(folder).keep();
    EXPECT_FALSE(record(folder).passed()) << folder;
  }
  fs::create_directories(folder_.parent_path());
  std::ofstream(folder_) << "no folder";
  record(folder_).keep();
  EXPECT_FALSE(record(folder_).passed());
  fs::remove(folder_);
  fs::create_directories(folder_);
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  record(folder_).keep();
  EXPECT_EQ(record(folder_).passed(), ::geteuid() == 0);
  EXPECT_EQ(files().size(), ::geteuid() == 0 ? 1u : 0u);
}

struct Machine {
  std::string build = "a build, a driver";
  std::string card = "Fake GPU", uuid = "00ff";
  bool plain = true;
};

/// Whether a backend on such a machine tries kernels. `fault`: the first of them is the GPU's last.
bool tries(const fs::path& folder, const Machine& machine, bool fault) {
  EmulatedGpu gpu{.plain_kernels = machine.plain, .try_kernels = true, .trials_folder = folder};
  gpu.api.build_name = machine.build;
  gpu.api.devices[0].name = machine.card;
  gpu.api.devices[0].uuid = machine.uuid;
  if (fault) gpu.api.fail("kernel", kFakeLaunchFailure, 1, true);
  try {
    gpu.backend(DType::kF32);
  } catch (const Error&) {
  }
  return gpu.api.calls("kernel") > 0;
}

// Once for each build, driver and card; not where something has failed.
TEST_F(Records, SaveTheTrialsOfAGpuThatHasPassed) {
  EXPECT_TRUE(tries(folder_, {}, true));
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_TRUE(tries(folder_, {}, false));
  EXPECT_FALSE(tries(folder_, {}, false));
  EXPECT_TRUE(tries(folder_, {.build = "another build, a driver"}, true));
  EXPECT_TRUE(tries(folder_, {.build = "a build, another driver"}, true));
  EXPECT_TRUE(tries(folder_, {.card = "Another GPU"}, true));
  EXPECT_TRUE(tries(folder_, {.uuid = "00fe"}, true));
  EXPECT_TRUE(tries(folder_, {.plain = false}, true));
  EXPECT_EQ(files().size(), 1u);
  EXPECT_FALSE(tries(folder_, {}, true));
  fs::resize_file(files().at(0), 10);
  EXPECT_TRUE(tries(folder_, {}, true));
}

// A trial that a kernel fails without the GPU being lost is run again, too.
TEST_F(Records, AreNotOfFailures) {
  EmulatedGpu gpu{.plain_kernels = true, .try_kernels = true, .trials_folder = folder_};
  gpu.api.fail("kernel", 98, 3);
  EXPECT_EQ(gpu.backend(DType::kF32)->device_info().replaced_kernels.size(), 1u);
  EXPECT_FALSE(fs::exists(folder_));
}

// Likewise of what one model needs, beside what all do.
TEST_F(Records, SaveTheTrialsOfAModelsKernels) {
  const auto launches = [&](int32_t head_dim) {
    EmulatedGpu gpu{.plain_kernels = true, .try_kernels = true, .trials_folder = folder_};
    const auto backend = gpu.backend(DType::kBF16);
    gpu.api.reset_calls();
    backend->require({.storage = DType::kBF16, .kv_dtype = DType::kBF16, .head_dim = head_dim});
    return gpu.api.calls("kernel");
  };
  EXPECT_GT(launches(80), 0);
  EXPECT_EQ(launches(80), 0);
  EXPECT_GT(launches(96), 0);
  EXPECT_EQ(launches(96), 0);
}

}  // namespace
}  // namespace headrace::cuda
