#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "memory/mmap_allocator.h"

namespace headrace {
namespace {

/// A fake root folder with /proc and /sys files.
class FakeRoot : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    root_ =
        std::filesystem::path(testing::TempDir()) / ("headrace_root_" + std::string(info->name()));
    std::filesystem::remove_all(root_);
    write("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:   800 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  RawMemoryInfo info() const { return host_memory_info(root_.string()); }

  std::filesystem::path root_;
};

TEST_F(FakeRoot, WithoutGroupsTheMachineIsTheBound) {
  EXPECT_EQ(info().total_bytes, 1000u * 1024);
  EXPECT_EQ(info().free_bytes, 800u * 1024);
}

TEST_F(FakeRoot, Version2GroupsAndTheirParentsNarrowIt) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/memory.max", "500000\n");
  write("sys/fs/cgroup/a/memory.current", "300000\n");
  write("sys/fs/cgroup/a/memory.stat", "anon 5\nfile 9\nactive_file 40000\ninactive_file 60000\n");
  EXPECT_EQ(info().total_bytes, 500000u);
  EXPECT_EQ(info().free_bytes, 300000u);
}

TEST_F(FakeRoot, Version1GroupOfAContainerLiesAtTheMountsRoot) {
  write("proc/self/cgroup", "5:devices:/x\n4:cpu,memory:/docker/0123\n0::/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "400000\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "450000\n");
  EXPECT_EQ(info().total_bytes, 400000u);
  EXPECT_EQ(info().free_bytes, 0u);
}

TEST_F(FakeRoot, NonsenseIsNoBound) {
  write("proc/self/cgroup", "garbage\n\n:\n4:memory:/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "lots");
  EXPECT_EQ(info().total_bytes, 1000u * 1024);
  write("proc/meminfo", "");
  EXPECT_EQ(info().free_bytes, 0u);
}

TEST(MmapAllocator, MapsAlignedWritableMemory) {
  MmapAllocator raw;
  for (const size_t bytes : {size_t{1}, size_t{5000}, (size_t{2} << 20) + 1, size_t{5} << 20}) {
    for (const size_t alignment : {size_t{1}, size_t{256}, size_t{1} << 16, size_t{4} << 20}) {
      const Result<void*> data = raw.alloc(bytes, alignment);
      ASSERT_TRUE(data.ok());
      const auto address = reinterpret_cast<uintptr_t>(data.value());
      EXPECT_EQ(address % alignment, 0u);
      if (bytes >= size_t{2} << 20) {
        EXPECT_EQ(address % (size_t{2} << 20), 0u);
      }
      std::memset(data.value(), 1, bytes);
      raw.free(data.value(), bytes);
    }
  }
}

TEST_F(FakeRoot, WhatIsMappedAndNotTouchedIsKnown) {
  constexpr size_t kMiB = size_t{1} << 20;
  MmapAllocator raw;
  const size_t before = MmapAllocator::mapped_bytes();
  EXPECT_EQ(untouched_mapped_bytes(root_.string()), 0u) << "it can't be told";
  void* const data = raw.alloc(5 * kMiB, 256).value();
  EXPECT_EQ(MmapAllocator::mapped_bytes() - before, 5 * kMiB);
  write("proc/self/status", "VmRSS: 9 kB\nRssAnon:\t1024 kB\nVmSwap:\t 2048 kB\n");
  EXPECT_EQ(untouched_mapped_bytes(root_.string()), before + 2 * kMiB);
  write("proc/self/status", "RssAnon:\t1024000 kB\n");
  EXPECT_EQ(untouched_mapped_bytes(root_.string()), 0u);
  raw.free(data, 5 * kMiB);
  EXPECT_EQ(MmapAllocator::mapped_bytes(), before);
}

TEST(MmapAllocator, RefusalIsAResult) {
  MmapAllocator raw;
  for (const size_t bytes :
       {std::numeric_limits<size_t>::max(), std::numeric_limits<size_t>::max() - 8192,
        std::numeric_limits<size_t>::max() / 2}) {
    const Result<void*> data = raw.alloc(bytes, 256);
    ASSERT_FALSE(data.ok());
    EXPECT_EQ(data.failure().code, ErrorCode::kOutOfMemory);
  }
}

TEST(MmapAllocator, KnowsThisMachine) {
  const RawMemoryInfo info = MmapAllocator().info();
  EXPECT_GT(info.total_bytes, size_t{16} << 20);
  EXPECT_GT(info.free_bytes, 0u);
  EXPECT_LE(info.free_bytes, info.total_bytes);
}

}  // namespace
}  // namespace headrace
