#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "headrace/status.h"

namespace headrace {
namespace {

TEST(BlockPool, BlocksGoFreeHeldCachedFree) {
  BlockPool pool(2);
  const int32_t a = pool.take(), b = pool.take();
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.take(), BlockPool::kNone);
  pool.retain(a);
  pool.release(a);
  EXPECT_EQ(pool.holders(a), 1);
  pool.keep(a);
  pool.release(a);
  EXPECT_TRUE(pool.is_cached(a));
  EXPECT_EQ(pool.num_cached(), 1);
  EXPECT_EQ(pool.take(), BlockPool::kNone) << "a cached block is not free";
  pool.retain(a);
  EXPECT_EQ(pool.num_cached(), 0);
  pool.release(a);
  EXPECT_TRUE(pool.is_cached(a)) << "kept for good";
  pool.drop(a);
  pool.release(b);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(BlockPool, MisuseIsCaughtAndChangesNothing) {
  BlockPool pool(2);
  const int32_t a = pool.take();
  for (const int32_t outside : {-1, 2, 1 << 30}) {
    EXPECT_THROW(pool.release(outside), InternalError);
    EXPECT_THROW(pool.retain(outside), InternalError);
  }
  EXPECT_THROW(pool.drop(a), InternalError);
  pool.release(a);
  EXPECT_THROW(pool.release(a), InternalError) << "double free";
  EXPECT_THROW(pool.retain(a), InternalError) << "use after free";
  EXPECT_THROW(pool.keep(a), InternalError);
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_THROW(BlockPool(-1), InternalError);
  EXPECT_EQ(BlockPool(0).take(), BlockPool::kNone);
}

TEST(BlockPool, AgreesWithAPlainModel) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const auto n = static_cast<int32_t>(1 + random() % 12);
    BlockPool pool(n);
    std::vector<int32_t> holders(static_cast<size_t>(n), 0);
    std::vector<bool> keep(static_cast<size_t>(n), false);
    std::deque<int32_t> cached;  // oldest first
    for (int step = 0; step < 200; ++step) {
      const auto block = static_cast<int32_t>(random() % static_cast<uint64_t>(n));
      const auto b = static_cast<size_t>(block);
      switch (random() % 5) {
        case 0: {
          const int32_t got = pool.take();
          if (got == BlockPool::kNone) break;
          ASSERT_EQ(holders[static_cast<size_t>(got)], 0);
          ASSERT_FALSE(keep[static_cast<size_t>(got)]);
          holders[static_cast<size_t>(got)] = 1;
          break;
        }
        case 1:
          if (holders[b] == 0 && !keep[b]) break;
          pool.retain(block);
          if (holders[b]++ == 0) std::erase(cached, block);
          break;
        case 2:
          if (holders[b] == 0) break;
          pool.release(block);
          if (--holders[b] == 0 && keep[b]) cached.push_back(block);
          break;
        case 3:
          if (holders[b] == 0) break;
          pool.keep(block);
          keep[b] = true;
          break;
        default:
          if (cached.empty()) break;
          ASSERT_EQ(pool.oldest_cached(), cached.front());
          pool.drop(cached.front());
          keep[static_cast<size_t>(cached.front())] = false;
          cached.pop_front();
      }
      const auto held = std::count_if(holders.begin(), holders.end(), [](int h) { return h > 0; });
      ASSERT_EQ(pool.num_held(), held);
      ASSERT_EQ(pool.num_cached(), static_cast<int32_t>(cached.size()));
      ASSERT_EQ(pool.num_free() + pool.num_cached() + pool.num_held(), n);
      ASSERT_EQ(pool.oldest_cached(), cached.empty() ? BlockPool::kNone : cached.front());
      for (int32_t i = 0; i < n; ++i) {
        ASSERT_EQ(pool.holders(i), holders[static_cast<size_t>(i)]);
        ASSERT_EQ(pool.is_cached(i), std::count(cached.begin(), cached.end(), i) == 1);
      }
    }
  }
}

}  // namespace
}  // namespace headrace
