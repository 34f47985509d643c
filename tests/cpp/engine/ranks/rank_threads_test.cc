#include "engine/ranks/rank_threads.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "base/check.h"

namespace headrace::internal {
namespace {

TEST(RankThreads, EachRankHasAThreadOfItsOwnAndTheFirstIsTheCaller) {
  for (const int32_t count : {1, 2, 4}) {
    RankThreads threads(count);
    std::vector<std::thread::id> ids(static_cast<size_t>(count));
    threads.run([&](int32_t rank) { ids[static_cast<size_t>(rank)] = std::this_thread::get_id(); });
    EXPECT_EQ(ids[0], std::this_thread::get_id());
    EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), ids.size());
    for (int round = 0; round < 200; ++round) {
      threads.run([&](int32_t rank) {
        EXPECT_EQ(std::this_thread::get_id(), ids[static_cast<size_t>(rank)]);
        threads.group()->meet();
      });
    }
  }
}

TEST(RankThreads, TheReasonIsThrownAndTheNextWorkSucceeds) {
  constexpr int32_t kCount = 3;
  RankThreads threads(kCount);
  for (int32_t failing = 0; failing < kCount; ++failing) {
    try {
      threads.run([&](int32_t rank) {
        threads.group()->meet();
        if (rank == failing) throw_error(ErrorCode::kOutOfMemory, "rank ", rank, " is full.");
        threads.group()->meet();
        ADD_FAILURE() << "rank " << rank << " met a rank that has failed";
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
      EXPECT_EQ(error.what(), str_cat("rank ", failing, " is full."));
    }
    std::vector<int32_t> done(kCount);
    threads.run([&](int32_t rank) {
      threads.group()->meet();
      done[static_cast<size_t>(rank)] = 1;
    });
    EXPECT_EQ(done, std::vector<int32_t>(kCount, 1));
  }
}

}  // namespace
}  // namespace headrace::internal
