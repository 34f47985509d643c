// What blocks are shared by beside token ids: adapters, RoPE lengths, media.

#include "kv/cache_identity.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kv/kv_blocks.h"

namespace headrace {
namespace {

constexpr size_t kBlock = 4;

CacheIdentity with_media(std::vector<MediaItem> items) {
  return {{}, std::make_shared<const std::vector<MediaItem>>(std::move(items))};
}

/// An item at positions [6, 14): it begins in block 1, fills block 2 and ends in block 3.
CacheIdentity with_item(uint64_t digest) { return with_media({{{0, 0, digest, 0}, 6, 14}}); }

/// Six blocks with the same token everywhere, as placeholders of media have.
std::vector<int32_t> placeholders() { return std::vector<int32_t>(6 * kBlock, 3); }

/// Computes and publishes what isn't there of `tokens`. Returns the blocks that were.
size_t run(KvBlocks& blocks, const CacheIdentity& identity, const std::vector<int32_t>& tokens) {
  KvTables table = blocks.acquire_prefix(identity, tokens);
  const auto hits = static_cast<size_t>(table.columns());
  for (size_t i = hits; i < tokens.size() / kBlock; ++i) {
    blocks.take_column(table);
    blocks.publish(identity, table, i, std::span(tokens).subspan(i * kBlock, kBlock));
  }
  blocks.release(table);
  return hits;
}

TEST(CacheIdentity, FindsTheMediaOfABlock) {
  const CacheIdentity identity =
      with_media({{{1, 0, 0, 0}, 0, 2}, {{2, 0, 0, 0}, 2, 3}, {{3, 0, 0, 0}, 8, 12}});
  const auto digests = [&](size_t first, size_t last) {
    std::vector<uint64_t> out;
    for (const MediaItem& item : identity.media_in(first, last)) out.push_back(item.digest[0]);
    return out;
  };
  EXPECT_EQ(digests(0, 4), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(digests(1, 2), (std::vector<uint64_t>{1}));
  EXPECT_EQ(digests(4, 8), (std::vector<uint64_t>{}));
  EXPECT_EQ(digests(4, 9), (std::vector<uint64_t>{3}));
  EXPECT_EQ(digests(11, 12), (std::vector<uint64_t>{3}));
  EXPECT_EQ(digests(12, 16), (std::vector<uint64_t>{}));
  EXPECT_EQ(digests(0, 16), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_TRUE(CacheIdentity{}.media_in(0, 100).empty());
}

TEST(CacheIdentity, TakesItemsInOrderWithinThePrompt) {
  EXPECT_TRUE(CacheIdentity{}.fits(1));
  EXPECT_TRUE(with_media({{{}, 0, 2}, {{}, 2, 5}}).fits(5));
  EXPECT_FALSE(with_media({{{}, 0, 2}, {{}, 2, 5}}).fits(4)) << "behind the prompt";
  EXPECT_FALSE(with_media({{{}, 0, 3}, {{}, 2, 5}}).fits(9)) << "overlap";
  EXPECT_FALSE(with_media({{{}, 4, 5}, {{}, 0, 2}}).fits(9)) << "order";
  EXPECT_FALSE(with_media({{{}, 4, 4}}).fits(9)) << "empty";
  EXPECT_FALSE(with_media({{{}, -1, 4}}).fits(9));
}

TEST(CacheIdentity, OtherMediaShareNothingFromTheirFirstBlockOn) {
  KvBlocks blocks(64, {.block_size = kBlock}, true);
  const std::vector<int32_t> tokens = placeholders();
  EXPECT_EQ(run(blocks, with_item(1), tokens), 0u);
  EXPECT_EQ(run(blocks, with_item(2), tokens), 1u) << "block 0 is before the item";
  EXPECT_EQ(run(blocks, {}, tokens), 1u) << "without an item";
  EXPECT_EQ(run(blocks, with_item(1), tokens), 6u) << "the same item";
  EXPECT_EQ(run(blocks, with_item(2), tokens), 6u);
  EXPECT_EQ(run(blocks, {}, tokens), 6u);
}

TEST(CacheIdentity, HitsEndBeforeInsideAndBehindAnItem) {
  KvBlocks blocks(256, {.block_size = kBlock}, true);
  const std::vector<int32_t> tokens = placeholders();
  run(blocks, with_item(1), tokens);
  for (size_t differs = 0; differs < tokens.size(); ++differs) {
    std::vector<int32_t> other = tokens;
    other[differs] = 100 + static_cast<int32_t>(differs);
    EXPECT_EQ(run(blocks, with_item(1), other), differs / kBlock) << "at " << differs;
  }
}

TEST(CacheIdentity, ASecondItemDoesNotHideTheFirst) {
  KvBlocks blocks(64, {.block_size = kBlock}, true);
  const std::vector<int32_t> tokens = placeholders();
  const auto items = [](uint64_t first, uint64_t second) {
    return with_media({{{first, 0, 0, 0}, 1, 3}, {{second, 0, 0, 0}, 17, 19}});
  };
  run(blocks, items(1, 2), tokens);
  EXPECT_EQ(run(blocks, items(1, 3), tokens), 4u);
  EXPECT_EQ(run(blocks, items(3, 2), tokens), 0u) << "the same item behind another one";
}

TEST(CacheIdentity, AdaptersAndRopeLengthsShareNothing) {
  KvBlocks blocks(64, {.block_size = kBlock}, true);
  const std::vector<int32_t> tokens = placeholders();
  const auto identity = [](uint64_t adapter, int32_t rope_len) {
    return CacheIdentity{{.adapter = adapter, .rope_len = rope_len}, nullptr};
  };
  for (const auto& [adapter, rope_len] : std::vector<std::pair<uint64_t, int32_t>>{
           {0, 0}, {1, 0}, {2, 0}, {0, 1}, {1, 1}, {uint64_t{1} << 32, 0}}) {
    EXPECT_EQ(run(blocks, identity(adapter, rope_len), tokens), 0u) << adapter << ", " << rope_len;
    EXPECT_EQ(run(blocks, identity(adapter, rope_len), tokens), 6u) << adapter << ", " << rope_len;
  }
}

}  // namespace
}  // namespace headrace
