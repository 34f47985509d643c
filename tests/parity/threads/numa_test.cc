#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <vector>

#include "backend/cpu/kv/kv_cache.h"
#include "backend/cpu/threads/numa_topology.h"
#include "parity/attention/attention_harness.h"
#include "parity/linear/linear_harness.h"
#include "parity/ranks/ranks.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

CpuMask cpus(const char* list) { return parse_cpu_list(list).value(); }

/// A /sys of our own.
class FakeSystem {
 public:
  explicit FakeSystem(const std::string& name)
      : root_(fs::path(testing::TempDir()) / str_cat("numa-", name, ::getpid())) {
    fs::create_directories(nodes());
  }
  ~FakeSystem() { fs::remove_all(root_); }
  void online(const std::string& list) { std::ofstream(nodes() / "online") << list << "\n"; }
  void node(int id, const std::string& list) {
    fs::create_directories(nodes() / str_cat("node", id));
    std::ofstream(nodes() / str_cat("node", id) / "cpulist") << list << "\n";
  }
  std::string root() const { return root_.string(); }

 private:
  fs::path nodes() const { return root_ / "sys/devices/system/node"; }
  fs::path root_;
};

TEST(CpuMask, HoldsCpusByNumber) {
  CpuMask mask = CpuMask::of(70);
  mask.add(0);
  mask.add(CpuMask::kMaxCpus);  // ignored
  mask.add(-1);
  EXPECT_EQ(mask.count(), 2);
  EXPECT_TRUE(mask.contains(70));
  EXPECT_TRUE(mask.contains(0));
  EXPECT_FALSE(mask.contains(1));
  EXPECT_FALSE(mask.contains(CpuMask::kMaxCpus));
  EXPECT_EQ(mask & CpuMask::of(70), CpuMask::of(70));
}

TEST(NumaTopology, ListsOfCpus) {
  EXPECT_EQ(cpus("").count(), 0);
  EXPECT_EQ(cpus("3"), CpuMask::of(3));
  EXPECT_EQ(cpus("0-2,5,7-7").count(), 5);
  EXPECT_EQ(format_cpu_list(cpus("5,7-7,0-2,8191")), "0-2,5,7,8191");
  EXPECT_EQ(format_cpu_list(CpuMask{}), "");
  for (const char* bad :
       {"a", "1-", "-1", "2-1", "1,", ",1", "1 2", "0-9000", "99999999999", "1;2"}) {
    EXPECT_FALSE(parse_cpu_list(bad).has_value()) << bad;
  }
}

TEST(NumaTopology, NodesWithCoresOfThisProcess) {
  FakeSystem system("nodes");
  system.online("0-3,7");
  system.node(0, "0-3");
  system.node(1, "");      // memory alone
  system.node(2, "4-7");   // outside of the process's set but for one
  system.node(3, "8-11");  // wholly outside
  system.node(4, "0-3");   // not online
  const auto nodes = find_numa_nodes(cpus("0-4"), system.root());
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].id, 0);
  EXPECT_EQ(nodes[0].cpus, cpus("0-3"));
  EXPECT_EQ(nodes[1].id, 2);
  EXPECT_EQ(nodes[1].cpus, cpus("4"));
}

TEST(NumaTopology, OneNodeWhereTheSystemTellsOfNone) {
  FakeSystem empty("empty"), broken("broken");
  broken.online("zero");
  for (const std::string& root : {empty.root(), broken.root(), str_cat(empty.root(), "/nowhere")}) {
    const auto nodes = find_numa_nodes(cpus("2,5"), root);
    ASSERT_EQ(nodes.size(), 1u);
    EXPECT_EQ(nodes[0].id, -1);
    EXPECT_EQ(nodes[0].cpus, cpus("2,5"));
  }
}

TEST(NumaTopology, ChosenNodes) {
  FakeSystem system("chosen");
  system.online("0-1");
  system.node(0, "0-3");
  system.node(1, "4-7");
  const auto nodes = parse_numa_nodes("0,1;2-5;6", cpus("0-7"), system.root());
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(nodes[1].cpus, cpus("2-5"));
  EXPECT_EQ(nodes[0].id, 0);
  EXPECT_EQ(nodes[2].id, 1);
  for (const char* bad : {"0;", ";0", "0;;1", "0;0", "0-2;2", "0;8", "x", "0,1;1-2"}) {
    EXPECT_THROW(parse_numa_nodes(bad, cpus("0-7"), system.root()), Error) << bad;
  }
}

TEST(NumaTopology, ThreadsInProportionToCores) {
  const std::vector<NumaNode> nodes = {{0, cpus("0-5")}, {1, cpus("6-7")}};
  const auto threads = [&](int32_t count) {
    const auto groups = share_threads(count, nodes);
    return std::pair(groups[0].threads, groups[1].threads);
  };
  EXPECT_EQ(threads(2), std::pair(1, 1));
  EXPECT_EQ(threads(4), std::pair(3, 1));
  EXPECT_EQ(threads(8), std::pair(6, 2));
  EXPECT_EQ(threads(16), std::pair(12, 4));
  EXPECT_THROW(threads(1), Error);
}

int32_t group_of(const std::vector<ThreadGroup>& groups, int32_t thread) {
  int32_t group = 0;
  for (; thread >= groups[static_cast<size_t>(group)].threads; ++group) {
    thread -= groups[static_cast<size_t>(group)].threads;
  }
  return group;
}

TEST(ThreadGroups, EachHasItsPartOfEveryLoop) {
  for (const auto& sizes : {std::vector{1, 1}, std::vector{1, 3}, std::vector{2, 1, 2}}) {
    std::vector<ThreadGroup> groups;
    for (const int32_t size : sizes) groups.push_back({size, usable_cpus()});
    ThreadPool pool(groups);
    for (const int64_t count : {0, 1, 2, 3, 7, 100}) {
      for (const int64_t rounds : {1, 2, 5}) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(rounds * count));
        pool.parallel_rounds(rounds, count, [&](int64_t round, int64_t i, int32_t thread) {
          ++hits[static_cast<size_t>(round * count + i)];
          const auto part = pool.part_of(group_of(groups, thread), count);
          EXPECT_TRUE(i >= part.begin && i < part.end) << i << " by thread " << thread;
        });
        for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
      }
      std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
      pool.parallel_for(count, 3, [&](int64_t begin, int64_t end, int32_t) {
        for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
      for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadGroups, RunOnTheirCores) {
  const std::string ranks = parity::ranks_of(2);
  if (ranks.empty()) GTEST_SKIP() << "needs two cores";
  const auto nodes = parse_numa_nodes(ranks, usable_cpus());
  const CpuMask before = usable_cpus();
  {
    ThreadPool pool(share_threads(4, nodes));
    pool.adopt_caller();
    std::vector<std::atomic<int32_t>> seen(4);
    for (int round = 0; round < 200; ++round) {
      pool.parallel_for(8, 1, [&](int64_t, int64_t, int32_t thread) {
        seen[static_cast<size_t>(thread)] = ::sched_getcpu() + 1;
      });
    }
    for (size_t thread = 0; thread < 4; ++thread) {
      if (seen[thread] > 0) {
        EXPECT_TRUE(nodes[thread / 2].cpus.contains(seen[thread] - 1));
      }
    }
  }
  set_thread_affinity(0, before);
}

TEST(NumaMemory, IsPlacedWhereTheSystemKnowsNodes) {
  const int32_t node = find_numa_nodes(usable_cpus()).back().id;
  constexpr size_t kBytes = size_t{8} << 20, kPage = size_t{2} << 20;
  void* const data =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  place_near(data, kBytes, -1);  // no node: nothing happens
  place_near(data, kBytes, 1'000'000);
  place_near(data, kPage - 1, node);  // no whole page
  int mode = -1;
  unsigned long mask[16] = {};
  const auto ask = [&] {
    return ::syscall(SYS_get_mempolicy, &mode, mask, 1025, static_cast<char*>(data) + 2 * kPage,
                     MPOL_F_ADDR) == 0;
  };
  if (node >= 0 && ask()) {
    EXPECT_EQ(mode, MPOL_DEFAULT);
    place_near(data, kBytes, node);
    EXPECT_TRUE(ask());
    EXPECT_EQ(mode, MPOL_PREFERRED);
    EXPECT_EQ(mask[node / 64], 1ul << (node % 64));
    spread_over(data, kBytes, std::vector<NumaNode>{{-1, {}}});  // not all known: nothing happens
    EXPECT_TRUE(ask());
    EXPECT_EQ(mode, MPOL_PREFERRED);
    spread_over(data, kBytes, std::vector<NumaNode>{{node, {}}});
    EXPECT_TRUE(ask());
    EXPECT_EQ(mode, MPOL_INTERLEAVE);
  }
  ::munmap(data, kBytes);
}

TEST(NumaBackend, SaysWhatItRunsOn) {
  EXPECT_EQ(make_cpu_backend({.num_threads = 1})->device_info().name, "cpu");
  const std::string ranks = parity::ranks_of(2);
  if (ranks.empty()) GTEST_SKIP() << "needs two cores";
  const DeviceInfo info =
      make_cpu_backend({.numa = true, .numa_nodes = ranks, .isa = "baseline"})->device_info();
  EXPECT_EQ(info.name, "cpu_numa");
  EXPECT_EQ(info.num_nodes, 2);
  EXPECT_EQ(info.num_threads, 2);
  EXPECT_THROW(make_cpu_backend({.num_threads = 1, .numa = true, .numa_nodes = ranks}), Error);
  EXPECT_THROW(make_cpu_backend({.numa = true, .numa_nodes = "0;x"}), Error);
}

/// ThreadSanitizer sees the same threads whatever the instructions.
std::vector<std::string> isas_for_ranks() {
  std::vector<std::string> isas = available_cpu_isas();
#if defined(HEADRACE_TSAN)
  isas.resize(1);
#endif
  std::erase(isas, "reference");
  return isas;
}

// Ranks own panels: fewer of them than ranks, and many, with blocks of rows.
TEST(NumaBackend, LinearGivesTheBitsOfOneRank) {
  const std::string ranks = parity::ranks_of(2);
  if (ranks.empty()) GTEST_SKIP() << "needs two cores";
  constexpr uint64_t kSeed = 20;
  parity::Random random(kSeed);
  for (const std::string& isa : isas_for_ranks()) {
    const auto one = make_cpu_backend({.num_threads = 1, .isa = isa});
    const auto two =
        make_cpu_backend({.num_threads = 3, .numa = true, .numa_nodes = ranks, .isa = isa});
    for (const parity::Shape shape : {parity::Shape{16, 64}, {192, 64}, {1500, 96}}) {
      const parity::Problem p = parity::random_problem(random, shape);
      for (const int64_t rows : {1, 5, 800}) {
        const std::vector<float> x = random.uniforms(rows * p.k);
        for (const int32_t bits : {0, 8, 4}) {
          const auto run = [&](Backend& backend) {
            WeightSpec spec;
            spec.parts = {{p.weight.data(), DType::kF32, p.n, p.k, false, p.k}};
            spec.storage = DType::kBF16;
            if (bits != 0) spec.quant = {.bits = bits, .group_size = 32};
            const auto weight = backend.pack_weight(spec);
            return parity::multiply(backend, p, *weight, WeightUse::kLinear, x);
          };
          ASSERT_EQ(run(*one), run(*two))
              << isa << " " << p.n << " x " << rows << ", " << bits << ", seed " << kSeed;
        }
      }
    }
  }
}

// KV heads that ranks share out evenly, those that they can't, and fewer than ranks; contexts that
// are one task and contexts cut into splits.
TEST(NumaBackend, AttentionGivesTheBitsOfOneRank) {
  const std::string ranks = parity::ranks_of(2);
  if (ranks.empty()) GTEST_SKIP() << "needs two cores";
  constexpr uint32_t kSeed = 23;
  const std::string isa = available_cpu_isas().front();
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kI8, DType::kF8E4M3, DType::kU4}) {
    for (const int32_t kv_heads : {1, 2, 3, 4}) {
      const test::AttentionShape shape{
          .num_heads = 2 * kv_heads, .num_kv_heads = kv_heads, .head_dim = 32, .dtype = dtype};
      const auto run = [&](const CpuBackendOptions& options) {
        const auto backend = make_cpu_backend(options);
        test::AttentionHarness harness(*backend, shape, 2, 1300, kSeed);
        harness.step({{0, 1200}}, false);
        std::vector<float> all;
        for (const std::vector<test::Slice>& slices :
             {std::vector<test::Slice>{{0, 1}}, {{0, 1}, {1, 40}}, {{0, 7}, {1, 1}}}) {
          const std::vector<float> out = harness.step(slices);
          all.insert(all.end(), out.begin(), out.end());
        }
        return all;
      };
      const auto one = run({.num_threads = 1, .isa = isa});
      for (const int32_t threads : {2, 3, 4}) {
        ASSERT_EQ(run({.num_threads = threads, .numa = true, .numa_nodes = ranks, .isa = isa}), one)
            << dtype_name(dtype) << ", " << kv_heads << " heads, " << threads << " threads, seed "
            << kSeed;
      }
    }
  }
}

TEST(NumaBackend, EachNodeHoldsTheKeysOfItsHeads) {
  const std::string ranks = parity::ranks_of(2);
  if (ranks.empty()) GTEST_SKIP() << "needs two cores";
  const auto parts_of = [&](int32_t kv_heads, int32_t threads) {
    const auto backend = make_cpu_backend(
        {.num_threads = threads, .numa = true, .numa_nodes = ranks, .isa = "baseline"});
    const auto cache =
        backend->make_kv_cache(CacheLayout::uniform(2, kv_rows(kv_heads, 32, DType::kF32), 64), 3);
    return dynamic_cast<const CpuKvCache&>(*cache).num_parts();
  };
  EXPECT_EQ(parts_of(1, 2), 1);
  EXPECT_EQ(parts_of(2, 2), 2);
  EXPECT_EQ(parts_of(3, 2), 1);
  EXPECT_EQ(parts_of(4, 4), 2);
  EXPECT_EQ(parts_of(4, 3), 1);
  EXPECT_EQ(parts_of(6, 3), 2);

  const auto backend = make_cpu_backend({.numa = true, .numa_nodes = ranks, .isa = "baseline"});
  const PagedRows rows = kv_rows(4, 64, DType::kI8);
  const CacheLayout layout = CacheLayout::uniform(3, rows, 64);
  constexpr int32_t kBlocks = 200;
  const auto made = backend->make_kv_cache(layout, kBlocks);
  const auto& cache = dynamic_cast<const CpuKvCache&>(*made);
  ASSERT_EQ(cache.num_parts(), 2);
  EXPECT_EQ(cache.part(0).data() + cache.part(0).size(), cache.part(1).data());
  EXPECT_EQ(cache.part(0).size() + cache.part(1).size(), kBlocks * backend->kv_block_bytes(layout));
  for (int32_t layer = 0; layer < layout.num_layers(); ++layer) {
    for (int32_t head = 0; head < rows.num_kv_heads; ++head) {
      const CpuKvCache::HeadPlace place = cache.find_head(layer, head);
      EXPECT_EQ(place.head, head % 2);
      const std::span<uint8_t> part = cache.part(head / 2);
      // The first and the last block's share of the layer.
      const uint8_t* const last = place.layer->data + (kBlocks - 1) * place.layer->block_stride;
      EXPECT_TRUE(place.layer->data >= part.data() && last < part.data() + part.size());
    }
  }
  const auto nodes = parse_numa_nodes(ranks, usable_cpus());
  for (int32_t part = 0; part < 2; ++part) {
    const std::span<uint8_t> memory = cache.part(part);
    int mode = -1;
    unsigned long mask[16] = {};
    const int32_t node = nodes[static_cast<size_t>(part)].id;
    const bool known = node >= 0 && ::syscall(SYS_get_mempolicy, &mode, mask, 1025,
                                              memory.data() + memory.size() / 2, MPOL_F_ADDR) == 0;
    if (!known) GTEST_SKIP() << "the system tells of no nodes";
    EXPECT_EQ(mode, MPOL_PREFERRED);
    EXPECT_EQ(mask[node / 64], 1ul << (node % 64));
  }
}

}  // namespace
}  // namespace headrace
