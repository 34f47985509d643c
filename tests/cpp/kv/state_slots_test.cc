#include "kv/state_slots.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "headrace/status.h"

namespace headrace {
namespace {

/// Nodes 0 .. n - 1 of blocks of one token: a chain, but for the last one, which hangs under node
/// 0.
class StateSlotsTest : public testing::Test {
 protected:
  static constexpr int32_t kNone = StateSlots::kNone, kNodes = 5;
  StateSlotsTest() {
    for (int32_t node = 0; node < kNodes; ++node) {
      const std::vector<int32_t> tokens = {node};
      index_.insert({{}, node == kNodes - 1 ? 0 : node - 1}, {tokens}, node);
    }
  }

  /// The state behind `node` becomes a snapshot; its slot.
  static int32_t save(StateSlots& slots, int32_t node, bool is_shared = false) {
    const int32_t slot = slots.take();
    EXPECT_TRUE(slots.publish(node, slot, is_shared));
    return slot;
  }

  PrefixIndex index_{kNodes, 1};
};

TEST_F(StateSlotsTest, WhatWasOnlyPassedByGoesFirst) {
  StateSlots slots(index_, kNodes, 4, 0);
  save(slots, 4);
  save(slots, 1, true);
  save(slots, 2);
  save(slots, 3);
  EXPECT_EQ(slots.num_free(), 0);
  slots.take();
  EXPECT_FALSE(slots.has_snapshot(2)) << "3 is behind it, and 1 is shared";
  slots.take();
  EXPECT_FALSE(slots.has_snapshot(4)) << "the oldest";
  slots.take();
  EXPECT_FALSE(slots.has_snapshot(1));
  slots.take();
  EXPECT_FALSE(slots.has_snapshot(3));
  EXPECT_EQ(slots.take(), kNone);
  EXPECT_EQ(slots.evicted(), 4u);
}

TEST_F(StateSlotsTest, WhatIsBegunWithStaysAndIsUsedLast) {
  StateSlots slots(index_, kNodes, 3, 0);
  const int32_t first = save(slots, 3);
  save(slots, 4);
  const StateSlots::Start start = slots.start(3);
  EXPECT_EQ(start.source, first);
  EXPECT_EQ(slots.num_snapshots(), 2);
  slots.drop(3);
  EXPECT_TRUE(slots.has_snapshot(3)) << "it is held";
  slots.release(start.source);
  slots.take();
  EXPECT_FALSE(slots.has_snapshot(4));
  EXPECT_TRUE(slots.has_snapshot(3));
}

TEST_F(StateSlotsTest, TheLastSlotIsTakenOver) {
  StateSlots slots(index_, kNodes, 2, 0);
  const int32_t slot = save(slots, 1);
  EXPECT_NE(slots.start(kNone).live, slot);
  const StateSlots::Start start = slots.start(1);
  EXPECT_EQ(start.live, slot);
  EXPECT_EQ(start.source, kNone);
  EXPECT_FALSE(slots.has_snapshot(1));
  EXPECT_EQ(slots.start(kNone).live, kNone);
}

TEST_F(StateSlotsTest, TheFirstOfTwoStays) {
  StateSlots slots(index_, kNodes, 3, 1);
  const int32_t first = save(slots, 1);
  EXPECT_FALSE(slots.publish(1, slots.take(), false));
  EXPECT_EQ(slots.num_free(), 2);
  EXPECT_EQ(slots.start(1).source, first);
}

TEST_F(StateSlotsTest, WhatLeavesGoesToHostSlotsAndComesBack) {
  StateSlots slots(index_, kNodes, 1, 2);
  const int32_t slot = save(slots, 3);
  ASSERT_EQ(slots.take(), slot);
  ASSERT_EQ(slots.copies().size(), 1u);
  const BlockCopy out = slots.copies()[0];
  EXPECT_TRUE(out.to_host && out.is_state && out.block == slot);
  slots.release(slot);
  slots.clear_copies();
  const StateSlots::Start start = slots.start(3);
  EXPECT_EQ(start.live, slot);
  EXPECT_EQ(start.source, kNone);
  ASSERT_EQ(slots.copies().size(), 1u);
  EXPECT_FALSE(slots.copies()[0].to_host);
  EXPECT_EQ(slots.copies()[0].host_block, out.host_block);
  EXPECT_EQ(slots.num_host_snapshots(), 1) << "another may want it";
  // A new one in a slot takes its place.
  EXPECT_TRUE(slots.publish(3, slot, false));
  EXPECT_EQ(slots.num_host_snapshots(), 0);
  slots.forget(3);
  EXPECT_EQ(slots.num_free(), 1);
}

}  // namespace
}  // namespace headrace
