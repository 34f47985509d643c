// Clusters of blocks in the emulation: what they must compute, and what must be found.

#include "cuda/device/cluster.cuh"

#include <gtest/gtest.h>

#include <vector>

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/linear/tensor_map.h"
#include "device_data.h"

namespace headrace::cuda {
namespace {

using emulation::EmulationError;

constexpr int kStages = 2, kUnits = 5;
constexpr int kPartRows = 16, kRowBytes = 128, kPartBytes = kPartRows * kRowBytes;
constexpr unsigned kClusters = 3;

// What goes wrong. kTail and kOneShot are right: blocks that need no barrier at their end.
enum class Slip {
  kNone,
  kTail,
  kOneShot,
  kNoFirstSync,
  kInitBehindSync,
  kNoLastSync,
  kOneSyncLess,
  kEndsEarly,
  kTooFewBytes,
  kTooManyBytes,
  kOneBlockLess,
  kOneBlockMore,
  kNoBlock,
  kSamePlace,
  kNoWaitForEmpty,
  kFreesOwnOnly,
  kFreesTwice,
  kFreesNobody,
  kTooFewArrivals
};

struct Task {
  uint32_t blocks;  // of a cluster
  int units;
  Slip slip;
  int* sums;  // [block][unit][row]
};

struct Pipe {
  uint64_t full[kStages], empty[kStages];
};

__device__ char* stage_of(const Task& task, int n) {
  return shared_memory() + 1024 + n % kStages * static_cast<int>(task.blocks) * kPartBytes;
}

/// The block's part of each stage into all blocks: one thread's work.
template <bool kTiles>
__device__ void copy_parts(const TensorMap& map, const Task& task, Pipe* pipe) {
  const uint32_t rank = cluster_rank(), part = task.slip == Slip::kSamePlace ? 0 : rank;
  uint32_t bytes = task.blocks * kPartBytes, mask = (1u << task.blocks) - 1;
  if (task.slip == Slip::kTooFewBytes) bytes -= kPartBytes;
  if (task.slip == Slip::kTooManyBytes) bytes += kPartBytes;
  if (task.slip == Slip::kOneBlockLess) mask >>= 1;
  if (task.slip == Slip::kOneBlockMore) mask = mask << 1 | 1u;
  if (task.slip == Slip::kNoBlock) mask = 0;
  for (int n = 0; n < task.units; ++n) {
    uint64_t* const full = &pipe->full[n % kStages];
    if (n >= kStages && task.slip != Slip::kNoWaitForEmpty) {
      barrier_wait(&pipe->empty[n % kStages], (n / kStages - 1) & 1);
    }
    barrier_expect_bytes(full, bytes);
    char* const to = stage_of(task, n) + part * kPartBytes;
    if constexpr (kTiles) {
      copy_unit_to_cluster(to, &map, static_cast<int32_t>(rank), n, full,
                           static_cast<uint16_t>(mask));
    } else {
      copy_box_to_cluster(to, &map, n * kBoxColumns, static_cast<int32_t>(rank) * kPartRows, full,
                          static_cast<uint16_t>(mask));
    }
  }
  for (int n = task.units - kStages; n < task.units && task.slip == Slip::kTail; ++n) {
    barrier_wait(&pipe->empty[n % kStages], n / kStages & 1);
  }
}

__device__ void free_stage(const Task& task, uint64_t* empty) {
  const auto lane = static_cast<uint32_t>(lane_id());
  if (task.slip == Slip::kOneShot) return;
  if (task.slip == Slip::kFreesOwnOnly) {
    if (lane == 0) barrier_arrive(empty);
    return;
  }
  if (lane < task.blocks) barrier_arrive_at(empty, lane + (task.slip == Slip::kFreesNobody));
  if (lane < task.blocks && task.slip == Slip::kFreesTwice) barrier_arrive_at(empty, lane);
}

/// A warp's work: sums of the rows of each stage.
__device__ void add_rows(const Task& task, Pipe* pipe) {
  const int rows = static_cast<int>(task.blocks) * kPartRows;
  for (int n = 0; n < task.units; ++n) {
    barrier_wait(&pipe->full[n % kStages], n / kStages & 1);
    for (int row = lane_id(); row < rows; row += kWarp) {
      int sum = 0;
      for (int i = 0; i < kRowBytes; ++i) {
        sum += static_cast<uint8_t>(stage_of(task, n)[row * kRowBytes + i]);
      }
      task.sums[(static_cast<int>(blockIdx.x) * task.units + n) * rows + row] = sum;
    }
    __syncwarp();
    free_stage(task, &pipe->empty[n % kStages]);
  }
}

template <bool kTiles>
__global__ void share_kernel(const __grid_constant__ TensorMap map, Task task) {
  const Slip slip = task.slip;
  auto* pipe = reinterpret_cast<Pipe*>(shared_memory());
  const auto init = [&] {
    const uint32_t arrivals = slip == Slip::kTooFewArrivals ? 1 : task.blocks;
    for (int i = 0; i < kStages && threadIdx.x == 0; ++i) {
      barrier_init(&pipe->full[i], 1);
      barrier_init(&pipe->empty[i], arrivals);
    }
    barrier_init_fence();
  };
  if (slip != Slip::kInitBehindSync) init();
  if (slip == Slip::kNoFirstSync) {
    __syncthreads();
  } else if (slip != Slip::kOneSyncLess || cluster_rank() != 1) {
    cluster_sync();
  }
  if (slip == Slip::kInitBehindSync) {
    init();
    __syncthreads();
  }
  if (slip == Slip::kEndsEarly && cluster_rank() == 1) return;
  if (warp_id() == 1) {
    add_rows(task, pipe);
  } else if (threadIdx.x == 0) {
    copy_parts<kTiles>(map, task, pipe);
  }
  if (slip != Slip::kNoLastSync && slip != Slip::kTail && slip != Slip::kOneShot) cluster_sync();
}

class Cluster : public KernelTest {
 protected:
  /// Are all sums right?
  template <bool kTiles>
  bool share(unsigned blocks, Slip slip) {
    constexpr int kMaxUnitBytes = kUnits * kRowBytes;
    const int units = slip == Slip::kOneShot ? kStages : kUnits;
    const int rows = static_cast<int>(blocks) * kPartRows;
    std::vector<uint8_t> bytes(static_cast<size_t>(rows) * kMaxUnitBytes);
    for (uint8_t& one : bytes) one = static_cast<uint8_t>(random_.integer(0, 127));
    const DeviceArray<uint8_t> data(bytes);
    const TensorMap map =
        kTiles ? make_tile_map({data.data(), blocks, kUnits * kPartBytes, kUnits}, 1)
               : make_tensor_map({data.data(), rows, kMaxUnitBytes / 2, kMaxUnitBytes / 2},
                                 DType::kF16, kPartRows);
    std::vector<int> sums(size_t(kClusters) * blocks * size_t(units * rows), -1);
    const Task task{blocks, units, slip, sums.data()};
    launch("test", share_kernel<kTiles>,
           {.grid = {kClusters * blocks},
            .threads = 2 * kWarp,
            .shared_bytes = 1024 + size_t{kStages} * blocks * kPartBytes,
            .cluster = blocks},
           nullptr, map, task);
    for (size_t i = 0; i < sums.size(); ++i) {
      const size_t row = i % size_t(rows), unit = i / size_t(rows) % size_t(units);
      const uint8_t* from = bytes.data() + row * kMaxUnitBytes + unit * kRowBytes;
      if (kTiles) {
        from = bytes.data() + row / kPartRows * kUnits * kPartBytes + unit * kPartBytes +
               row % kPartRows * kRowBytes;
      }
      int want = 0;
      for (int j = 0; j < kRowBytes; ++j) want += from[j];
      if (sums[i] != want) return false;
    }
    return true;
  }

  /// What is reported; of wrong sums: "wrong".
  std::string slip(Slip slip, unsigned blocks = 2) {
    try {
      return share<true>(blocks, slip) ? "nothing was found" : "wrong";
    } catch (const EmulationError& error) {
      return error.what();
    }
  }
  void expect(Slip made, const std::string& part) {
    for (const unsigned blocks : {2u, 3u}) {
      const std::string found = slip(made, blocks);
      EXPECT_NE(found.find(part), std::string::npos)
          << "slip " << static_cast<int>(made) << ", " << blocks << " blocks: " << found;
    }
  }

  Random random_{71};
};

TEST_P(Cluster, BlocksShareWhatEachCopies) {
  SCOPED_TRACE(random_.trace());
  for (const unsigned blocks : {1u, 2u, 3u, 8u}) {
    EXPECT_TRUE(share<false>(blocks, Slip::kNone)) << blocks;
    EXPECT_TRUE(share<true>(blocks, Slip::kNone)) << blocks;
  }
  // Each end is waited for at a block's own barriers.
  EXPECT_TRUE(share<true>(2, Slip::kTail));
  EXPECT_TRUE(share<true>(2, Slip::kOneShot));
}

TEST_P(Cluster, FindsBarriersUsedTooEarlyOrTooLate) {
  expect(Slip::kNoFirstSync, "initialised");
  expect(Slip::kInitBehindSync, "initialised");
  expect(Slip::kNoLastSync, "a block");
  expect(Slip::kOneSyncLess, "initialised");
  expect(Slip::kEndsEarly, "has ended");
}

TEST_P(Cluster, FindsWrongCountsAndPlaces) {
  expect(Slip::kTooFewBytes, "ended before this copy");
  expect(Slip::kTooManyBytes, "wait for each other");
  expect(Slip::kOneBlockLess, "wait for each other");
  expect(Slip::kOneBlockMore, "no such block");
  expect(Slip::kNoBlock, "into no block");
  expect(Slip::kSamePlace, "wrong");
  expect(Slip::kNoWaitForEmpty, "more arrivals than");
  expect(Slip::kFreesOwnOnly, "wait for each other");
  expect(Slip::kFreesTwice, "more arrivals than");
  expect(Slip::kFreesNobody, "no such block");
  expect(Slip::kTooFewArrivals, "more arrivals than");
}

/// 0: half of the threads end, which the others don't wait for.
__global__ void turns_kernel(int slip) {
  const auto site = std::source_location::current();
  if (slip == 0 && threadIdx.x >= 32) return;
  if (slip == 4 && blockIdx.x == 1) cluster_sync();
  if (slip == 1) emulation::cluster_wait(site);
  emulation::cluster_arrive(site);
  if (slip == 2) emulation::cluster_arrive(site);
  if (slip != 3 || blockIdx.x != 1) emulation::cluster_wait(site);
}

std::string turns(int slip, unsigned blocks, unsigned cluster) {
  try {
    launch("test", turns_kernel, {.grid = {blocks}, .threads = 64, .cluster = cluster}, nullptr,
           slip);
    return "nothing was found";
  } catch (const EmulationError& error) {
    return error.what();
  }
}

TEST(ClusterBarrier, ThreadsArriveThenWait) {
  EXPECT_EQ(turns(0, 4, 2), "nothing was found");
  EXPECT_NE(turns(1, 4, 2).find("without having arrived"), std::string::npos);
  EXPECT_NE(turns(2, 4, 2).find("again without a wait"), std::string::npos);
  EXPECT_EQ(turns(3, 2, 2), "nothing was found");
  EXPECT_NE(turns(4, 2, 2).find("different barriers of the cluster"), std::string::npos);
}

TEST(ClusterBarrier, ClustersThatNoGpuTakes) {
  EXPECT_NE(turns(0, 5, 2).find("no GPU takes"), std::string::npos);
  EXPECT_NE(turns(0, 18, 9).find("no GPU takes"), std::string::npos);
  EXPECT_NE(turns(0, 2, 0).find("no GPU takes"), std::string::npos);
}

HEADRACE_KERNEL_TESTS(Cluster);

}  // namespace
}  // namespace headrace::cuda
