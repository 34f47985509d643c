// plan_attention(): where it cuts, in which order blocks take the pieces, and how even that is.

#include "cuda/kernels/attention/attention_plan.h"

#include <gtest/gtest.h>

#include <set>
#include <span>
#include <utility>
#include <vector>

namespace headrace::cuda {
namespace {

TEST(AttentionPlan, CutsWorkAtFixedPlaces) {
  const AttentionShape shape{8, 2, 64, 0};
  const SeqSlice seqs[] = {{0, 1, 600, {}}, {1, 4, 252, {}}, {5, 33, 100, {}}};
  AttentionPlan plan;
  plan_attention(seqs, shape, 3, &plan);
  ASSERT_EQ(plan.short_items.size(), 4u);  // splits 0, 1, 2 of the first; 0 of the second
  EXPECT_EQ(plan.short_items[3].partial, -1);
  EXPECT_EQ(plan.num_partials, 3);
  EXPECT_EQ(plan.short_items[2].partial, 2);
  ASSERT_EQ(plan.long_items.size(), 3u);
  EXPECT_EQ(plan.long_items[1].row, 5 + 32);  // three tiles, as the one before; 4 rows see 256 keys
  EXPECT_EQ(plan.long_items[1].num_rows, 1);

  const AttentionShape window{8, 2, 64, 100};
  plan_attention(std::span(seqs, 1), window, 2, &plan);
  ASSERT_EQ(plan.short_items.size(), 2u);  // keys 501..600: splits 1 and 2
  EXPECT_EQ(plan.short_items[0].first_split, 1);

  plan_attention(seqs, shape, 2, &plan);  // three splits are too many
  EXPECT_EQ(plan.num_partials, 0);
  EXPECT_EQ(plan.short_items.size(), 1u);
  ASSERT_EQ(plan.long_items.size(), 4u);
  EXPECT_EQ(plan.long_items[0].end_split, 3);
}

struct PlannedOrder {
  size_t items, group_items;  ///< all, and of the first one's group
  AttentionBalance balance;
};

PlannedOrder planned_order(std::span<const SeqSlice> seqs, int32_t kv_heads) {
  const AttentionShape shape{4 * kv_heads, kv_heads, 128, 0, kWgmmaRows};
  AttentionPlan plan;
  plan_attention(seqs, shape, 0, &plan);
  return {plan.long_items.size(), static_cast<size_t>(plan.long_items[0].group_items),
          attention_balance(plan.long_items, shape)};
}

std::vector<SeqSlice> prompts(int32_t count, int32_t rows) {
  std::vector<SeqSlice> seqs;
  for (int32_t i = 0; i < count; ++i) seqs.push_back({i * rows, rows, 0, {}});
  return seqs;
}

TEST(AttentionPlan, EveryPieceIsTakenOnce) {
  // Groups of 3, 1 and 2 items.
  std::vector<AttentionItem> items(6);
  for (const auto& [first, size] : {std::pair{0, 3}, {3, 1}, {4, 2}}) {
    for (int32_t i = 0; i < size; ++i) {
      items[static_cast<size_t>(first + i)].ahead = i;
      items[static_cast<size_t>(first + i)].group_items = size;
    }
  }
  constexpr uint32_t kUnits = 4;
  std::set<std::pair<uint32_t, uint32_t>> seen;
  std::vector<uint32_t> order;
  for (uint32_t p = 0; p < items.size() * kUnits; ++p) {
    const PieceAt piece = piece_at(items.data(), p, kUnits);
    EXPECT_TRUE(piece.item < items.size() && piece.unit < kUnits) << p;
    seen.insert({piece.item, piece.unit});
    order.push_back(piece.item);
  }
  EXPECT_EQ(seen.size(), items.size() * kUnits);
  const std::vector<uint32_t> want = {0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0,
                                      3, 3, 3, 3, 4, 5, 5, 4, 4, 5, 5, 4};
  EXPECT_EQ(order, want);
}

// One long prompt: the longest items of all heads first. Many prompts: blocks that run beside each
// other read the same keys.
TEST(AttentionPlan, BlocksHaveAboutTheSameToDoAndReadTheSameKeys) {
  for (const int32_t kv_heads : {4, 8}) {
    for (const int32_t rows : {2048, 4096, 8192, 16384}) {
      const PlannedOrder one = planned_order(prompts(1, rows), kv_heads);
      EXPECT_EQ(one.group_items, 1u) << rows << ", " << kv_heads;
      EXPECT_LE(one.balance.busiest, 1.04) << rows << ", " << kv_heads;
      EXPECT_LE(one.balance.alone, 0.08) << rows << ", " << kv_heads;
    }
    const PlannedOrder many = planned_order(prompts(8, 2048), kv_heads);
    EXPECT_EQ(many.group_items, 64u) << kv_heads;  // a sequence's
    EXPECT_LE(many.balance.busiest, 1.04) << kv_heads;
    EXPECT_LE(many.balance.alone, 0.06) << kv_heads;
    // Chunks of prompts that are at different places, and one whose keys came before.
    const SeqSlice chunks[] = {{0, 1000, 0, {}}, {1000, 1096, 3000, {}}, {2096, 2000, 200, {}}};
    EXPECT_LE(planned_order(chunks, kv_heads).balance.busiest, kv_heads < 8 ? 1.12 : 1.06)
        << kv_heads;
    const SeqSlice late[] = {{0, 2048, 8192, {}}};
    EXPECT_LE(planned_order(late, kv_heads).balance.busiest, 1.04) << kv_heads;
    // One prompt that dominates, and short ones.
    std::vector<SeqSlice> mixed = {{0, 8192, 0, {}}};
    for (int32_t i = 0; i < 8; ++i) mixed.push_back({8192 + 512 * i, 512, 0, {}});
    EXPECT_LE(planned_order(mixed, kv_heads).balance.busiest, 1.07) << kv_heads;
    // Many short prompts of all lengths.
    std::vector<SeqSlice> shorts;
    int32_t row = 0;
    for (int32_t i = 0; i < 20; row += shorts.back().num_rows, ++i) {
      shorts.push_back({row, 100 + 137 * i % 700, 0, {}});
    }
    const PlannedOrder order = planned_order(shorts, kv_heads);
    EXPECT_LE(order.balance.busiest, 1.1) << kv_heads;
    EXPECT_LE(order.balance.alone, 0.25) << kv_heads;
  }
}

}  // namespace
}  // namespace headrace::cuda
