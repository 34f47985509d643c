// Which replica computes a request.

#include "engine/replica/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/replica/prefix_trace.h"

namespace headrace::internal {
namespace {

constexpr int32_t kBlock = 16;

std::vector<int32_t> tokens(int32_t count, int32_t first = 0) {
  std::vector<int32_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

SeqSpec spec(std::vector<int32_t> prompt, int32_t max_tokens = 10) {
  SeqSpec out;
  out.prompt = std::move(prompt);
  out.max_tokens = max_tokens;
  return out;
}

bool all(size_t) { return true; }

TEST(CacheableColumns, HaveABlockOfEachGroup) {
  EXPECT_EQ(cacheable_columns({.num_blocks = 100, .num_host_blocks = 20}), 120);
  const std::vector<int32_t> windows = {0, 64, 64};
  EXPECT_EQ(cacheable_columns({.num_blocks = 100, .num_host_blocks = 20, .windows = windows}), 40);
}

TEST(PrefixHashes, StandForFullBlocksAndWhatIsBeforeThem) {
  const auto a = prefix_hashes(spec(tokens(40)), kBlock);
  ASSERT_EQ(a.size(), 2u);
  EXPECT_TRUE(prefix_hashes(spec(tokens(15)), kBlock).empty());
  auto other = tokens(40);
  other[39] = 7;  // in no full block
  EXPECT_EQ(prefix_hashes(spec(other), kBlock), a);
  other[20] = 7;
  EXPECT_EQ(prefix_hashes(spec(other), kBlock)[0], a[0]);
  EXPECT_NE(prefix_hashes(spec(other), kBlock)[1], a[1]);
  other = tokens(40);
  other[0] = 7;
  EXPECT_NE(prefix_hashes(spec(other), kBlock)[1], a[1]);
}

TEST(PrefixHashes, DependOnTheIdentityOfTheSequence) {
  const auto plain = prefix_hashes(spec(tokens(32)), kBlock);
  SeqSpec with = spec(tokens(32));
  with.identity.sequence.adapter = 1;
  EXPECT_NE(prefix_hashes(with, kBlock)[0], plain[0]);
  with = spec(tokens(32));
  with.identity.sequence.rope_len = 32;
  EXPECT_NE(prefix_hashes(with, kBlock)[0], plain[0]);
  with = spec(tokens(32));
  with.identity.media = std::make_shared<const std::vector<MediaItem>>(
      std::vector<MediaItem>{{.digest = {1, 2, 3, 4}, .first = 20, .last = 22}});
  EXPECT_EQ(prefix_hashes(with, kBlock)[0], plain[0]);
  EXPECT_NE(prefix_hashes(with, kBlock)[1], plain[1]);
}

TEST(PrefixTrace, ForgetsWhatWasUsedLongestAgo) {
  PrefixTrace trace(4);
  const std::vector<uint64_t> a = {1, 2}, b = {3, 4}, c = {5, 6};
  trace.note(a);
  trace.note(b);
  trace.note(a);
  trace.note(c);
  EXPECT_EQ(trace.size(), 4u);
  EXPECT_EQ(trace.match(a), 2u);
  EXPECT_EQ(trace.match(b), 0u);
  EXPECT_EQ(trace.match(c), 2u);
  trace.note(std::vector<uint64_t>{7});
  EXPECT_EQ(trace.match(a), 1u) << "the end of a prefix goes before its beginning";
  trace.note(std::vector<uint64_t>{10, 11, 12, 13, 14, 15});
  EXPECT_EQ(trace.size(), 4u);
  EXPECT_EQ(trace.match(std::vector<uint64_t>{10, 11, 12, 13, 14, 15}), 4u);
  trace.clear();
  EXPECT_EQ(trace.match(c), 0u);
}

TEST(Router, SendsARequestWhereTheLeastIsToDo) {
  Router router({100, 100}, kBlock, true);
  auto a = router.choose(spec(tokens(50, 1000)), all);
  EXPECT_EQ(a->replica, 0u);
  EXPECT_EQ(router.load(0), 60);
  auto b = router.choose(spec(tokens(20, 2000)), all);
  EXPECT_EQ(b->replica, 1u);
  auto c = router.choose(spec(tokens(20, 3000)), all);
  EXPECT_EQ(c->replica, 1u);
  EXPECT_EQ(router.load(1), 60);
  a->booking.prompt_done();
  EXPECT_EQ(router.load(0), 10);
  a->booking.prompt_done();
  EXPECT_EQ(router.load(0), 10);
  auto d = router.choose(spec(tokens(20, 4000)), all);
  EXPECT_EQ(d->replica, 0u);
  a.reset();
  b.reset();
  c.reset();
  d.reset();
  EXPECT_EQ(router.load(0), 0);
  EXPECT_EQ(router.load(1), 0);
}

TEST(Router, ExpectsNoMoreThanSomeTokensOfALongOutput) {
  Router router({100}, kBlock, true);
  const auto choice = router.choose(spec(tokens(20), 1 << 20), all);
  EXPECT_EQ(router.load(0), 20 + Router::kExpectedOutput);
}

TEST(Router, APrefixDrawsRequestsAsLongAsThatIsFaster) {
  Router router({100, 100}, kBlock, true);
  auto other = router.choose(spec(tokens(16, 5000)), all);
  EXPECT_EQ(other->replica, 0u);
  const auto turn = tokens(64);
  EXPECT_EQ(router.choose(spec(turn), all)->replica, 1u);
  other.reset();
  // Both idle: 80 rows on the first one, 16 on the second.
  auto next = router.choose(spec(tokens(80)), all);
  EXPECT_EQ(next->replica, 1u);
  EXPECT_EQ(router.load(1), 16 + 10);
  // 80 + 0 rows against 16 + 26, and so on until 64 rows are saved no more.
  std::vector<Router::Choice> more;
  while (more.size() < 10) {
    more.push_back(*router.choose(spec(tokens(80)), all));
    if (more.back().replica == 0) break;
  }
  EXPECT_EQ(more.size(), 6u);  // each booked 1 row and 10 tokens: 26 + 5 x 11 + 1 > 80
  SeqSpec unread = spec(tokens(80));
  unread.read_prefix_cache = false;
  more.clear();
  next.reset();
  EXPECT_EQ(router.choose(unread, all)->replica, 0u);
}

TEST(Router, ForgetsPrefixesWhenAsked) {
  Router router({100, 100}, kBlock, true);
  const auto first = router.choose(spec(tokens(16, 5000)), all);
  EXPECT_EQ(router.choose(spec(tokens(64)), all)->replica, 1u);
  router.forget_prefixes();
  const auto hold = router.choose(spec(tokens(100, 6000)), all);  // 100 rows to do on the second
  EXPECT_EQ(hold->replica, 1u);
  EXPECT_EQ(router.choose(spec(tokens(64)), all)->replica, 0u);
}

TEST(Router, WithoutACacheNoPrefixCounts) {
  Router router({100, 100}, kBlock, false);
  const auto first = router.choose(spec(tokens(16, 5000)), all);
  EXPECT_EQ(router.choose(spec(tokens(64)), all)->replica, 1u);
  const auto hold = router.choose(spec(tokens(100, 6000)), all);
  EXPECT_EQ(router.choose(spec(tokens(64)), all)->replica, 0u);
}

TEST(Router, LeavesOutWhatIsNotOpen) {
  Router router({10, 10, 10}, kBlock, true);
  EXPECT_EQ(router.choose(spec(tokens(4)), [](size_t i) { return i == 2; })->replica, 2u);
  EXPECT_FALSE(router.choose(spec(tokens(4)), [](size_t) { return false; }));
}

}  // namespace
}  // namespace headrace::internal
