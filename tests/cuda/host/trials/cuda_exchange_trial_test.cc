// Trials of the exchanges between GPUs, with faults that are planted.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/ranks/rank_group.h"
#include "cuda/host/memory/device_memory.h"
#include "cuda/host/support/emulated_gpu.h"
#include "cuda/host/support/fake_nccl_library.h"
#include "cuda/host/trials/exchange_trial.h"

namespace headrace::cuda {
namespace {

using std::chrono::milliseconds;

/// What each rank's work returns, or throws as an Error, on a thread of its own, as RankThreads
/// has it.
template <class Work>
std::vector<std::string> on_all(RankGroup& group, const Work& work) {
  std::vector<std::string> out(static_cast<size_t>(group.count()));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < out.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        out[rank] = work(rank);
      } catch (const Error& error) {
        out[rank] = error.what();
        group.fail(static_cast<int32_t>(rank));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return out;
}

class ExchangeTrials : public ::testing::Test {
 protected:
  struct Rank {
    Rank(FakeCudaApi& api, const std::shared_ptr<RankGroup>& group, int32_t number)
        : context(api, number),
          memory(context, 0),
          rank(context, memory, group, number,
               {.use_peers = true, .nccl = FakeNcclLibrary::kFile, .drop_records = [] {}}) {}

    CudaContext context;
    DeviceMemory memory;
    DeviceRank rank;
  };

  void open(int32_t count) {
    nccl_.serve(gpu_.api);
    gpu_.api.devices[0].multiprocessors = multiprocessors_;
    gpu_.api.add_devices(count - 1);
    group_ = std::make_shared<RankGroup>(count);
    for (int32_t i = 0; i < count; ++i) {
      ranks_.push_back(std::make_unique<Rank>(gpu_.api, group_, i));
    }
  }

  /// The same on all ranks.
  std::string reason(const ExchangeOps& ops, DType dtype = DType::kBF16,
                     milliseconds patience = milliseconds(60'000)) {
    const auto all = on_all(*group_, [&](size_t rank) {
      Rank& own = *ranks_[rank];
      own.rank.links();
      return try_exchanges(own.context, own.rank, ops, dtype, patience);
    });
    for (const std::string& one : all) EXPECT_EQ(one, all[0]);
    return all[0];
  }

  int multiprocessors_ = 132;
  FakeNcclLibrary nccl_;
  EmulatedGpu gpu_;
  std::shared_ptr<RankGroup> group_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST_F(ExchangeTrials, GoodOnesPassOnTwoGpus) {
  open(2);
  gpu_.api.waits_within_calls = true;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    EXPECT_EQ(reason({}, dtype), "") << dtype_name(dtype);
  }
  EXPECT_GT(gpu_.api.calls("launch"), 0);
}

// Which let a single block wait.
TEST_F(ExchangeTrials, GoodOnesPassOnSmallGpus) {
  multiprocessors_ = 4;
  open(2);
  EXPECT_EQ(reason({}), "");
}

TEST_F(ExchangeTrials, GoodOnesPassOnThreeGpus) {  // which share sums of many bytes
  open(3);
  EXPECT_EQ(reason({}), "");
}

TEST_F(ExchangeTrials, GoodOnesPassByNccl) {
  gpu_.api.reachable = false;
  open(3);
  EXPECT_EQ(reason({}, DType::kF16), "");
  EXPECT_GT(nccl_->gathers, 0);
}

TEST_F(ExchangeTrials, WrongOnesAreSeenByAll) {
  open(2);
  ExchangeOps ops;
  ops.gather_columns = [](const GatherColumnsArgs& args, Stream stream) {
    GatherColumnsArgs bad = args;
    if (args.links.rank == 1) bad.out = {};
    gather_columns(bad, stream);
  };
  EXPECT_EQ(reason(ops), "cuda:1: columns are wrong");
  ops = {};
  ops.send_words = [](const SendArgs& args, Stream stream) {
    SendArgs bad = args;
    if (args.links.rank == 1) bad.count -= 4;
    send_words(bad, stream);
  };
  EXPECT_EQ(reason(ops), "cuda:1: words are wrong");
  ops = {};
  ops.reduce_add_norm = [](const ReduceAddNormArgs& args, Stream stream) {
    ReduceAddNormArgs bad = args;
    if (args.links.rank == 0) bad.norm.eps = 1e6f;
    reduce_add_norm(bad, stream);
  };
  EXPECT_EQ(reason(ops), "cuda:0: norms of sums are wrong");
  ops = {};
  ops.all_reduce = [](const AllReduceArgs& args, Stream stream) {
    AllReduceArgs bad = args;
    --bad.x.rows;  // of each rank
    all_reduce(bad, stream);
  };
  EXPECT_EQ(reason(ops), "cuda:0: sums are wrong");
}

TEST_F(ExchangeTrials, WrongSumsByShares) {
  open(3);
  ExchangeOps ops;
  ops.all_reduce = [](const AllReduceArgs& args, Stream stream) {
    AllReduceArgs bad = args;
    if (args.x.rows > 8) --bad.x.rows;
    all_reduce(bad, stream);
  };
  EXPECT_EQ(reason(ops), "cuda:0: sums by shares are wrong");
}

// What is wrong in records alone is seen, too.
std::atomic<int> sends;
TEST_F(ExchangeTrials, RecordsAreTried) {
  open(2);
  ExchangeOps ops;
  sends = 0;
  ops.send_words = [](const SendArgs& args, Stream stream) {
    SendArgs bad = args;
    if (++sends > 2) bad.count -= 4;  // the second of each rank
    send_words(bad, stream);
  };
  EXPECT_EQ(reason(ops), "cuda:1: words are wrong, recorded");
}

// A GPU whose words don't arrive: the others wait no longer than they have patience.
TEST_F(ExchangeTrials, NobodyWaitsForever) {
  open(2);
  ExchangeOps ops;
  ops.send_words = [](const SendArgs& args, Stream stream) {
    if (args.links.rank == 0) send_words(args, stream);
  };
  const std::string why = reason(ops, DType::kBF16, milliseconds(300));
  EXPECT_EQ(why, "cuda:0: they don't end");
}

// What a rank throws ends the others' waits.
TEST_F(ExchangeTrials, ARefusedLaunchEndsAll) {
  open(2);
  gpu_.api.fail("kernel", 98, 5);
  const auto all = on_all(*group_, [&](size_t rank) {
    Rank& own = *ranks_[rank];
    own.rank.links();
    return try_exchanges(own.context, own.rank, {}, DType::kBF16);
  });
  int refused = 0, told = 0;
  for (const std::string& one : all) {
    refused += one.find("fake error 98") != std::string::npos;
    told += one.find("another device of the model has failed") != std::string::npos;
  }
  EXPECT_EQ(refused, 1) << all[0] << "; " << all[1];
  EXPECT_EQ(told, 1);
}

/// Peers' sums are wrong, NCCL's aren't.
void wrong_by_peers(const AllReduceArgs& args, Stream stream) {
  AllReduceArgs bad = args;
  if (args.links.carrier == nullptr) --bad.x.rows;
  all_reduce(bad, stream);
}

TEST_F(ExchangeTrials, NcclTakesThePlaceOfPeers) {
  open(2);
  std::vector<ExchangeVerdict> verdicts(2);
  const auto prove = [&](const ExchangeOps& ops) {
    const auto all = on_all(*group_, [&](size_t rank) -> std::string {
      Rank& own = *ranks_[rank];
      own.rank.links();
      verdicts[rank] = prove_exchanges(own.context, own.rank, ops, DType::kBF16);
      return "";
    });
    EXPECT_EQ(all, std::vector<std::string>(2));
  };
  prove({});
  for (const ExchangeVerdict& one : verdicts) EXPECT_EQ(one.replaced + one.refused, "");
  EXPECT_EQ(nccl_->inits, 0);
  prove({.all_reduce = wrong_by_peers});
  for (const ExchangeVerdict& one : verdicts) {
    EXPECT_EQ(one.replaced, "exchanges through each other's memory (cuda:0: sums are wrong)");
    EXPECT_EQ(one.refused, "");
  }
  EXPECT_EQ(nccl_->inits, 1);
  prove({.all_reduce = [](const AllReduceArgs&, Stream) {}});
  for (const ExchangeVerdict& one : verdicts) {
    EXPECT_EQ(one.refused, "exchanges by NCCL (cuda:0: sums are wrong)");
  }
}

/// What becomes of the ranks of a model whose backends try their kernels.
class ExchangesAtLoad : public ::testing::Test {
 protected:
  ExchangesAtLoad() { std::filesystem::remove_all(folder_.parent_path()); }
  ~ExchangesAtLoad() override { std::filesystem::remove_all(folder_.parent_path()); }

  /// Launches of kernels when they link. `failing`: the launch that is refused; 0: none.
  int link(std::vector<std::string>* errors, int failing = 0, const char* uuid = "00ff") {
    EmulatedGpu gpu{.plain_kernels = true, .try_kernels = true, .trials_folder = folder_};
    gpu.api.add_devices(1);
    gpu.api.devices[1].uuid = uuid;
    const auto group = std::make_shared<RankGroup>(2);
    std::vector<std::shared_ptr<CudaBackend>> backends;
    for (int32_t rank = 0; rank < 2; ++rank) {
      backends.push_back(gpu.backend(DType::kBF16, 0, rank));
      backends.back()->join(group, rank);
    }
    gpu.api.reset_calls();
    if (failing > 0) gpu.api.fail("kernel", 98, failing);
    *errors = on_all(*group, [&](size_t rank) -> std::string {
      backends[rank]->link_ranks();
      return "";
    });
    return gpu.api.calls("kernel");
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / "exchange records" / "of_kernels";
};

TEST_F(ExchangesAtLoad, AreTriedOnceForTheseGpus) {
  std::vector<std::string> errors;
  EXPECT_GT(link(&errors), 0);
  EXPECT_EQ(errors, std::vector<std::string>(2));
  EXPECT_EQ(link(&errors), 0);
  EXPECT_GT(link(&errors, 3, "another"), 0);
  std::string all = errors[0] + errors[1];
  for (const char* word :
       {"fails the trial of kernels that the model needs: exchanges between GPUs", "fake error 98",
        "Fake GPU", "driver of CUDA 13.0", "another device of the model has failed"}) {
    EXPECT_NE(all.find(word), std::string::npos) << word << ": " << all;
  }
}

}  // namespace
}  // namespace headrace::cuda
