#include "memory/bfc_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "cpp/memory/fake_address_space.h"
#include "memory/mmap_allocator.h"

namespace headrace {
namespace {

constexpr size_t kUnit = BfcAllocator::kAlignment;

BfcOptions small_regions(size_t limit = 0) {
  BfcOptions options;
  options.limit_bytes = limit;
  options.min_region_bytes = 16 * kUnit;
  options.region_alignment = 4 * kUnit;
  return options;
}

uintptr_t address_of(const Result<void*>& result) {
  return reinterpret_cast<uintptr_t>(result.value());
}

/// Live allocations as the caller knows them: start -> bytes asked for.
using Live = std::map<uintptr_t, size_t>;

size_t rounded(size_t bytes) { return (std::max<size_t>(bytes, 1) + kUnit - 1) / kUnit * kUnit; }

void check_invariants(const BfcAllocator& bfc, const FakeAddressSpace& raw, const Live& live) {
  const BfcSnapshot shot = bfc.snapshot();
  // Regions are those of the raw allocator.
  ASSERT_EQ(shot.regions.size(), raw.ranges().size());
  for (const auto& region : shot.regions) {
    ASSERT_TRUE(raw.ranges().contains(region.address));
    ASSERT_EQ(raw.ranges().at(region.address), region.bytes);
  }
  // Chunks tile them, aligned, with no two free neighbours.
  size_t i = 0;
  std::map<uintptr_t, size_t> free_chunks, used_chunks;
  for (const auto& region : shot.regions) {
    uintptr_t at = region.address;
    bool after_free = false;
    while (at < region.address + region.bytes) {
      ASSERT_LT(i, shot.chunks.size());
      const auto& chunk = shot.chunks[i++];
      ASSERT_EQ(chunk.address, at);
      ASSERT_GT(chunk.bytes, 0u);
      ASSERT_EQ(chunk.address % kUnit, 0u);
      ASSERT_EQ(chunk.bytes % kUnit, 0u);
      ASSERT_FALSE(after_free && !chunk.in_use) << "two free neighbours at " << at;
      after_free = !chunk.in_use;
      (chunk.in_use ? used_chunks : free_chunks)[at] = chunk.bytes;
      at += chunk.bytes;
    }
    ASSERT_EQ(at, region.address + region.bytes);
  }
  ASSERT_EQ(i, shot.chunks.size());
  // Each free chunk is in exactly its bin.
  ASSERT_EQ(shot.free_entries.size(), free_chunks.size());
  size_t free_bytes = 0;
  for (const auto& entry : shot.free_entries) {
    ASSERT_TRUE(free_chunks.contains(entry.address));
    ASSERT_EQ(free_chunks[entry.address], entry.bytes);
    ASSERT_EQ(entry.bin, BfcAllocator::bin_of(entry.bytes));
    free_bytes += entry.bytes;
    free_chunks.erase(entry.address);  // a second entry would not find it
  }
  // The chunks in use are the caller's, and bytes balance.
  size_t in_use = 0, requested = 0;
  ASSERT_EQ(used_chunks.size(), live.size());
  for (const auto& [address, bytes] : live) {
    ASSERT_TRUE(used_chunks.contains(address));
    ASSERT_EQ(used_chunks[address], rounded(bytes));
    in_use += rounded(bytes);
    requested += bytes;
  }
  const BfcStats stats = bfc.stats();
  ASSERT_EQ(stats.in_use_bytes, in_use);
  ASSERT_EQ(stats.requested_bytes, requested);
  ASSERT_EQ(stats.num_allocations, live.size());
  ASSERT_EQ(stats.num_regions, shot.regions.size());
  ASSERT_EQ(stats.region_bytes, in_use + free_bytes);
  ASSERT_EQ(stats.region_bytes, raw.used());
  ASSERT_GE(stats.peak_in_use_bytes, in_use);
  if (stats.limit_bytes > 0) {
    ASSERT_LE(stats.region_bytes, stats.limit_bytes);
  }
}

/// Out of memory must be true: no free chunk is large enough, and no region may be added.
void check_refusal_was_right(const BfcAllocator& bfc, size_t bytes, const BfcOptions& options,
                             const FakeAddressSpace& raw) {
  ASSERT_LT(bfc.stats().largest_free_bytes, rounded(bytes));
  if (options.single_region) return;
  const size_t region = (rounded(bytes) + options.region_alignment - 1) / options.region_alignment *
                        options.region_alignment;
  const bool raw_refuses = region > raw.info().free_bytes;
  const bool over_limit =
      options.limit_bytes > 0 && bfc.stats().region_bytes + region > options.limit_bytes;
  ASSERT_TRUE(raw_refuses || over_limit) << bytes;
}

void run_random_operations(uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return random() % n; };
  BfcOptions options = small_regions(below(3) == 0 ? 0 : (8 + below(200)) * kUnit);
  options.single_region = options.limit_bytes > 0 && below(3) == 0;
  options.min_region_bytes = below(40) * kUnit;
  FakeAddressSpace raw((10 + below(300)) * kUnit);
  BfcAllocator bfc(&raw, options);
  Live live;
  for (int step = 0; step < 120; ++step) {
    const uint64_t kind = below(20);
    if (kind < 11 || live.empty()) {
      const size_t bytes = below(4) == 0 ? below(60 * kUnit) : below(6 * kUnit);
      const Result<void*> data = bfc.allocate(bytes);
      if (data.ok()) {
        ASSERT_TRUE(live.emplace(address_of(data), bytes).second);
      } else {
        ASSERT_EQ(data.failure().code, ErrorCode::kOutOfMemory);
        check_refusal_was_right(bfc, bytes, options, raw);
      }
    } else {
      auto victim = std::next(live.begin(), static_cast<int64_t>(below(live.size())));
      bfc.free(reinterpret_cast<void*>(victim->first));
      live.erase(victim);
    }
    check_invariants(bfc, raw, live);
    if (testing::Test::HasFatalFailure()) return;
  }
  for (const auto& [address, bytes] : live) bfc.free(reinterpret_cast<void*>(address));
  check_invariants(bfc, raw, {});
}

#if defined(HEADRACE_TSAN)
constexpr uint64_t kSeeds = 50;  // one thread alone: nothing for ThreadSanitizer to see
#else
constexpr uint64_t kSeeds = 1000;
#endif

TEST(BfcAllocator, KeepsItsInvariantsUnderRandomOperations) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    run_random_operations(seed);
    if (HasFatalFailure()) return;
  }
}

TEST(BfcAllocator, TakesTheSmallestThatFitsThenTheLowest) {
  FakeAddressSpace raw(1000 * kUnit);
  BfcOptions options = small_regions(64 * kUnit);
  options.single_region = true;
  BfcAllocator bfc(&raw, options);
  std::vector<void*> chunks;
  for (const size_t units : {8, 1, 5, 1, 6, 1, 5, 1}) {
    chunks.push_back(bfc.allocate(units * kUnit).value());
  }
  for (const size_t i : {0, 2, 4, 6}) bfc.free(chunks[i]);
  EXPECT_EQ(bfc.allocate(5 * kUnit).value(), chunks[2]);
  EXPECT_EQ(bfc.allocate(4 * kUnit + 1).value(), chunks[6]);
  EXPECT_EQ(bfc.allocate(5 * kUnit).value(), chunks[4]);
  EXPECT_EQ(bfc.allocate(7 * kUnit).value(), chunks[0]);
}

TEST(BfcAllocator, NeverJoinsChunksOfTwoRegions) {
  FakeAddressSpace raw(1000 * kUnit);
  BfcAllocator bfc(&raw, small_regions());
  void* const a = bfc.allocate(16 * kUnit).value();
  void* const b = bfc.allocate(16 * kUnit).value();
  bfc.free(a);
  bfc.free(b);
  EXPECT_EQ(bfc.stats().largest_free_bytes, 16 * kUnit);
}

TEST(BfcAllocator, GivesUnusedRegionsBackRatherThanFail) {
  FakeAddressSpace raw(1000 * kUnit);
  BfcAllocator bfc(&raw, small_regions(48 * kUnit));
  for (void* data : {bfc.allocate(16 * kUnit).value(), bfc.allocate(16 * kUnit).value()}) {
    bfc.free(data);
  }
  EXPECT_TRUE(bfc.allocate(40 * kUnit).ok());
  EXPECT_EQ(bfc.stats().num_regions, 1u);
}

TEST(BfcAllocator, OutOfMemoryIsAResultThatNamesNumbers) {
  FakeAddressSpace raw(1000 * kUnit);
  BfcAllocator bfc(&raw, small_regions(20 * kUnit));
  ASSERT_TRUE(bfc.allocate(10 * kUnit).ok());
  const Result<void*> refused = bfc.allocate(12 * kUnit);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.failure().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(refused.failure().message.find("3072 bytes"), std::string::npos);
  EXPECT_NE(refused.failure().message.find("limit: 5120 bytes"), std::string::npos);
  for (const size_t huge :
       {std::numeric_limits<size_t>::max(), std::numeric_limits<size_t>::max() - kUnit + 1,
        std::numeric_limits<size_t>::max() / 2}) {
    EXPECT_FALSE(bfc.allocate(huge).ok()) << huge;
  }
  EXPECT_TRUE(bfc.allocate(6 * kUnit).ok());
}

TEST(BfcAllocator, FallsBackToASmallerRegionWhenTheRawAllocatorIsShort) {
  FakeAddressSpace raw(12 * kUnit);
  BfcAllocator bfc(&raw, small_regions());
  ASSERT_TRUE(bfc.allocate(3 * kUnit).ok());
  EXPECT_EQ(bfc.stats().region_bytes, 4 * kUnit);
  raw.set_refuse(true);
  EXPECT_TRUE(bfc.allocate(kUnit).ok());
  EXPECT_FALSE(bfc.allocate(kUnit).ok());
}

TEST(BfcAllocator, ForeignAndDoubleFreesAreCaught) {
  FakeAddressSpace raw(100 * kUnit);
  BfcAllocator bfc(&raw, small_regions());
  void* const data = bfc.allocate(2 * kUnit).value();
  EXPECT_THROW(bfc.free(static_cast<char*>(data) + kUnit), InternalError);
  bfc.free(nullptr);
  bfc.free(data);
  EXPECT_THROW(bfc.free(data), InternalError);
  EXPECT_EQ(bfc.stats().in_use_bytes, 0u);
}

TEST(BfcAllocator, ServesThreadsAtOnceOverRealMemory) {
  MmapAllocator raw;
  BfcAllocator bfc(&raw, small_regions());
  const auto work = [&bfc](unsigned char mark) {
    std::mt19937_64 random(mark);
    std::vector<std::pair<unsigned char*, size_t>> mine;
    for (int i = 0; i < 2000; ++i) {
      if (mine.size() < 20 && random() % 2 == 0) {
        const size_t bytes = 1 + random() % 2000;
        auto* const data = static_cast<unsigned char*>(bfc.allocate(bytes).value());
        std::fill_n(data, bytes, mark);
        mine.emplace_back(data, bytes);
      } else if (!mine.empty()) {
        const auto [data, bytes] = mine.back();
        EXPECT_EQ(std::count(data, data + bytes, mark), static_cast<std::ptrdiff_t>(bytes));
        bfc.free(data);
        mine.pop_back();
      }
    }
    for (const auto& [data, bytes] : mine) bfc.free(data);
  };
  std::vector<std::thread> threads;
  for (unsigned char mark = 1; mark <= 4; ++mark) threads.emplace_back(work, mark);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(bfc.stats().in_use_bytes, 0u);
  EXPECT_EQ(bfc.stats().num_allocations, 0u);
}

TEST(BfcAllocator, BinsDoubleFrom256Bytes) {
  EXPECT_EQ(BfcAllocator::bin_of(256), 0);
  EXPECT_EQ(BfcAllocator::bin_of(256 + 255), 0);
  EXPECT_EQ(BfcAllocator::bin_of(512), 1);
  EXPECT_EQ(BfcAllocator::bin_of(size_t{1} << 20), 12);
  EXPECT_EQ(BfcAllocator::bin_of(std::numeric_limits<size_t>::max()), BfcAllocator::kNumBins - 1);
}

TEST(MemoryBudget, RespectsTotalFreeAndItsCorners) {
  const RawMemoryInfo card{1000, 600};
  EXPECT_EQ(memory_budget(card, {0.5, 0, 0}), 500u);
  EXPECT_EQ(memory_budget(card, {0.9, 100, 50}), 550u);
  EXPECT_EQ(memory_budget(card, {0.5, 400, 50}), 300u);
  EXPECT_EQ(memory_budget(card, {0.1, 1001, 0}), 0u);
  EXPECT_EQ(memory_budget(card, {1.0, 0, 700}), 0u);
  EXPECT_EQ(memory_budget(card, {-1.0, 0, 0}), 0u);
  EXPECT_EQ(memory_budget(card, {std::numeric_limits<double>::quiet_NaN(), 0, 0}), 0u);
  const size_t most = std::numeric_limits<size_t>::max();
  EXPECT_EQ(memory_budget({most, most}, {2.0, 0, 0}), most);
}

}  // namespace
}  // namespace headrace
