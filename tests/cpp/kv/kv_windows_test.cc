// Blocks of several groups of layers, some of which have windows.

#include <gtest/gtest.h>

#include <vector>

#include "kv/kv_blocks.h"

namespace headrace {
namespace {

using Tokens = std::vector<int32_t>;
const CacheIdentity kPlain;

/// Computes `tokens` in columns of one token, giving back as it goes, then leaves.
void slide(KvBlocks& blocks, const Tokens& tokens) {
  KvTables tables = blocks.acquire_prefix(kPlain, tokens);
  for (auto i = static_cast<size_t>(tables.columns()); i < tokens.size(); ++i) {
    ASSERT_TRUE(blocks.take_column(tables));
    blocks.publish(kPlain, tables, i, std::span(tokens).subspan(i, 1));
    blocks.give_back(tables, static_cast<int32_t>(i) + 1, static_cast<int32_t>(i));
  }
  blocks.release(tables);
}

int32_t hit(KvBlocks& blocks, const Tokens& tokens, int32_t group = 0) {
  KvTables tables = blocks.acquire_prefix(kPlain, tokens);
  const int32_t columns = tables.columns(), held = tables.held(static_cast<size_t>(group));
  blocks.release(tables);
  return group == 0 ? columns : held;
}

TEST(KvWindows, AHitHoldsWhatTheWindowReads) {
  KvBlocks blocks(20, {.block_size = 1, .windows = {0, 3}}, true);
  slide(blocks, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(hit(blocks, {1, 2, 3, 4, 5, 6}), 6);
  EXPECT_EQ(hit(blocks, {1, 2, 3, 4, 5, 6}, 1), 2) << "a row at 6 reads 4, 5 and itself";
  EXPECT_EQ(hit(blocks, {1, 2, 3, 9}), 3) << "what was given back is still there";
}

TEST(KvWindows, AHitEndsWhereAWindowHasLostABlock) {
  KvBlocks blocks(12, {.block_size = 1, .windows = {0, 3}}, true);
  slide(blocks, {1, 2, 3, 4, 5, 6});
  KvTables other(2);
  for (int i = 0; i < 2; ++i) blocks.take_column(other);  // takes what was given back first
  EXPECT_EQ(hit(blocks, {1, 2, 3, 4, 5, 6}), 6) << "the last ones were not given back so early";
  EXPECT_EQ(hit(blocks, {1, 2, 3, 4}), 0) << "blocks 0 to 3 of the window are gone";
  blocks.release(other);
}

TEST(KvWindows, WithTheBlockThatKeepsAllTheOthersGo) {
  KvBlocks blocks(4, {.block_size = 1, .windows = {0, 3}}, true);
  slide(blocks, {1, 2});
  KvTables other(2);
  blocks.take_column(other);
  EXPECT_EQ(blocks.pool().num_cached() + blocks.pool().num_free(), 2);
  EXPECT_EQ(blocks.index().size(), 1);
  EXPECT_EQ(hit(blocks, {1, 2}), 1);
  blocks.release(other);
}

TEST(KvWindows, WhereAllGroupsSlideNodesOutliveTheirBlocks) {
  KvBlocks blocks(3, {.block_size = 1, .windows = {2}}, true);
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 7};
  slide(blocks, tokens);
  EXPECT_EQ(blocks.index().size(), 7);
  EXPECT_EQ(hit(blocks, tokens), 7);
  blocks.clear_cache();
  EXPECT_EQ(blocks.index().size(), 0);
  EXPECT_EQ(hit(blocks, tokens), 0);
}

// Such an index has room for eight nodes a block.
TEST(KvWindows, AChainThatTheIndexHasNoRoomForIsNotPublished) {
  KvBlocks blocks(3, {.block_size = 1, .windows = {2}}, true);
  Tokens tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i);
  slide(blocks, tokens);
  EXPECT_EQ(blocks.index().size(), 24);
  EXPECT_EQ(blocks.available(), 3);
}

TEST(KvGroups, SayHowManyTokensBlocksHold) {
  const KvGroups uniform{.block_size = 16};
  EXPECT_EQ(uniform.most_tokens(10), 160);
  const KvGroups two{.block_size = 16, .windows = {0, 64}, .step_rows = 8};
  EXPECT_EQ(two.most_blocks(1600), 100 + 7);  // 63 + 16 positions, and two blocks
  EXPECT_EQ(two.most_tokens(107), 1600);
  EXPECT_EQ(two.most_tokens(8), 64);
  const KvGroups sliding{.block_size = 16, .windows = {64}, .step_rows = 8};
  EXPECT_EQ(sliding.most_tokens(6), 96);
  EXPECT_GT(sliding.most_tokens(7), 1 << 30);
}

}  // namespace
}  // namespace headrace
