// Ranks on the host: sums in the order of the ranks, the same bits on each of them and every time,
// and nobody who waits for a rank that has failed.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/contract/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/host/cpu_affinity.h"
#include "backend/host/cpu_info.h"
#include "backend/ranks/rank_group.h"
#include "headrace/options.h"
#include "parity/random.h"

namespace headrace {
namespace {

using Floats = std::vector<float>;

/// Runs a rank's part on a thread for each.
void each_rank(int32_t count, const std::function<void(int32_t)>& part) {
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < count; ++rank) threads.emplace_back([&, rank] { part(rank); });
  for (std::thread& thread : threads) thread.join();
}

struct Ranks {
  std::shared_ptr<RankGroup> group;
  std::vector<std::unique_ptr<Backend>> backends;

  Ranks(int32_t count, const std::string& isa, int32_t threads = 1)
      : group(std::make_shared<RankGroup>(count)) {
    for (int32_t rank = 0; rank < count; ++rank) {
      backends.push_back(make_cpu_backend({.num_threads = threads, .isa = isa}));
      backends.back()->join(group, rank);
    }
  }
};

Floats numbers(int64_t count, uint64_t seed) {
  return parity::Random(seed).uniforms(count, -3.0f, 3.0f);
}

class RankOps : public testing::TestWithParam<std::string> {};

TEST_P(RankOps, SumsRunInTheOrderOfTheRanksWithTheSameBitsOnEach) {
  for (const int32_t count : {1, 2, 3, 4}) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 7}, {5, 96}, {33, 1280}}) {
      SCOPED_TRACE(testing::Message() << count << " ranks, " << rows << " x " << cols);
      Ranks ranks(count, GetParam(), 2);
      std::vector<Floats> x;
      for (int32_t rank = 0; rank < count; ++rank) {
        x.push_back(numbers(rows * cols, static_cast<uint64_t>(rank + 1)));
      }
      Floats expected = x[0];
      for (size_t rank = 1; rank < x.size(); ++rank) {
        for (size_t i = 0; i < expected.size(); ++i) expected[i] += x[rank][i];
      }
      each_rank(count, [&](int32_t rank) {
        const auto index = static_cast<size_t>(rank);
        ranks.backends[index]->all_reduce(TensorView(x[index].data(), DType::kF32, {rows, cols}));
      });
      for (const Floats& sum : x) EXPECT_EQ(sum, expected);
    }
  }
}

TEST_P(RankOps, ColumnsComeTogetherWhereTheyAreWanted) {
  const int64_t rows = 5;
  const std::vector<int64_t> widths = {48, 48, 31};
  Ranks ranks(3, GetParam());
  std::vector<Floats> x;
  for (const int64_t width : widths)
    x.push_back(numbers(rows * width, static_cast<uint64_t>(width)));
  std::vector<Floats> out(3, Floats(static_cast<size_t>(rows * 127), -7.0f));
  each_rank(3, [&](int32_t rank) {
    const auto index = static_cast<size_t>(rank);
    const TensorView part(x[index].data(), DType::kF32, {rows, widths[index]});
    const TensorView whole(out[index].data(), DType::kF32, {rows, 127});
    const TensorView none(nullptr, DType::kF32, {rows, 127});
    ranks.backends[index]->gather_columns(part, rank == 1 ? none : whole);
  });
  for (int64_t row = 0; row < rows; ++row) {
    size_t column = 0;
    for (size_t rank = 0; rank < 3; ++rank) {
      for (int64_t i = 0; i < widths[rank]; ++i, ++column) {
        EXPECT_EQ(out[0][static_cast<size_t>(row) * 127 + column],
                  x[rank][static_cast<size_t>(row * widths[rank] + i)]);
      }
    }
  }
  EXPECT_EQ(out[2], out[0]);
  EXPECT_EQ(out[1], Floats(out[1].size(), -7.0f));
}

TEST_P(RankOps, PartsOfATableGiveTheRowsOfTheirTokensAndNothingForOthers) {
  const int64_t vocab = 37, hidden = 16;
  const Floats table = numbers(vocab * hidden, 5);
  const std::vector<int32_t> ids = {0, 36, 19, 20, 7}, zeros(5, 0), ones(5, 1), blocks = {0};
  const std::vector<SeqSlice> seqs = {{0, 5, 0, blocks}};
  const std::vector<int32_t> positions = {0, 1, 2, 3, 4};
  const StepBatch batch{ids, positions, ones, seqs, {}};
  for (const DType storage : {DType::kF32, DType::kBF16}) {
    Ranks ranks(2, GetParam());
    const auto pack = [&](Backend& backend, int64_t first, int64_t n) {
      return backend.pack_weight(
          {.parts =
               {{.data = table.data() + first * hidden, .n = n, .k = hidden, .row_stride = hidden}},
           .storage = storage,
           .use = WeightUse::kTiedEmbedding});
    };
    Floats expected(5 * 16), got[2] = {Floats(5 * 16), Floats(5 * 16)};
    const auto alone = make_cpu_backend({.num_threads = 1, .isa = GetParam()});
    alone->begin_step(batch);
    alone->embed(*pack(*alone, 0, vocab), TensorView(expected.data(), DType::kF32, {5, hidden}));
    each_rank(2, [&](int32_t rank) {
      Backend& backend = *ranks.backends[static_cast<size_t>(rank)];
      const auto part = pack(backend, rank == 0 ? 0 : 20, rank == 0 ? 20 : 17);
      const TensorView out(got[rank].data(), DType::kF32, {5, hidden});
      backend.begin_step(batch);
      backend.embed_part(*part, rank == 0 ? 0 : 20, out);
      backend.all_reduce(out);
    });
    EXPECT_EQ(got[0], expected);
    EXPECT_EQ(got[1], expected);
  }
}

std::vector<std::string> isas() {
  std::vector<std::string> out = available_cpu_isas();
  if (std::find(out.begin(), out.end(), "reference") == out.end()) out.push_back("reference");
  return out;
}

INSTANTIATE_TEST_SUITE_P(Isas, RankOps, testing::ValuesIn(isas()),
                         [](const auto& test) { return test.param; });

TEST(CpuRanks, ShareThreadsAndHaveNodesOfTheirOwnWhereThereAreAsMany) {
  const auto open = [](int32_t index, int32_t count, int32_t threads, const char* nodes) {
    const auto backend =
        make_cpu_backend({.num_threads = threads, .numa_nodes = nodes, .rank = {index, count}});
    return backend->device_info();
  };
  EXPECT_EQ(open(0, 2, 5, "0").num_threads, 3);
  EXPECT_EQ(open(1, 2, 5, "0").num_threads, 2);
  EXPECT_EQ(open(1, 2, 5, "0").name, "cpu");
  const CpuMask usable = usable_cpus();
  std::vector<int32_t> cpus;
  for (int32_t cpu = 0; cpu < CpuMask::kMaxCpus; ++cpu) {
    if (usable.contains(cpu)) cpus.push_back(cpu);
  }
  if (cpus.size() < 2) GTEST_SKIP() << "one core can't be two nodes";
  const std::string nodes = std::to_string(cpus[0]) + ";" + std::to_string(cpus[1]);
  for (const int32_t index : {0, 1}) {
    const DeviceInfo info = open(index, 2, 2, nodes.c_str());
    EXPECT_EQ(info.name, "cpu_numa");
    EXPECT_EQ(info.num_threads, 1);
    EXPECT_EQ(info.num_nodes, 1);
    const auto backend =
        make_cpu_backend({.num_threads = 2, .numa_nodes = nodes, .rank = {index, 2}});
    std::thread([&] {
      backend->enter_thread();
      EXPECT_EQ(thread_affinity(0)->count(), 1);
      EXPECT_TRUE(thread_affinity(0)->contains(cpus[static_cast<size_t>(index)]));
    }).join();
  }
}

TEST(RankGroup, EachSeesWhatTheOthersShowRoundByRound) {
  constexpr int32_t kRanks = 3, kRounds = 2000;
  RankGroup group(kRanks);
  std::vector<Floats> values(kRanks, Floats(1));
  std::vector<int64_t> wrong(kRanks);
  each_rank(kRanks, [&](int32_t rank) {
    const auto index = static_cast<size_t>(rank);
    for (int32_t round = 0; round < kRounds; ++round) {
      values[index][0] = static_cast<float>(round * 10 + rank);
      const auto all =
          group.exchange(rank, {.x = TensorView(values[index].data(), DType::kF32, {1, 1})});
      for (int32_t other = 0; other < kRanks; ++other) {
        const float seen = all[static_cast<size_t>(other)].x.as<float>()[0];
        wrong[index] += seen != static_cast<float>(round * 10 + other);
      }
      group.meet();
    }
  });
  EXPECT_EQ(wrong, std::vector<int64_t>(kRanks, 0));
}

TEST(RankGroup, AFailureWakesThoseWhoWaitAndIsForgottenOnce) {
  constexpr int32_t kRanks = 3;
  RankGroup group(kRanks);
  for (int round = 0; round < 50; ++round) {
    std::vector<int> threw(kRanks);
    each_rank(kRanks, [&](int32_t rank) {
      if (rank == round % kRanks) {
        if (round % 2 == 0) std::this_thread::yield();
        group.fail(rank);
        return;
      }
      try {
        group.meet();
        group.meet();
      } catch (const OtherRankFailed&) {
        threw[static_cast<size_t>(rank)] = 1;
      }
    });
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(threw[static_cast<size_t>(rank)], rank != round % kRanks);
    }
    EXPECT_THROW(group.meet(), OtherRankFailed);
    group.reset();
    each_rank(kRanks, [&](int32_t) { group.meet(); });
  }
}

}  // namespace
}  // namespace headrace
