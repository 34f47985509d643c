// Layers that keep the same are a group, and groups are about as large.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "model/sources/cache_layout.h"

namespace headrace {
namespace {

constexpr CacheOptions kWindows{.block_size = 32, .dtype = DType::kBF16, .windows_below = 4096};

std::vector<LayerKeeps> layers_of(const std::vector<int32_t>& windows) {
  std::vector<LayerKeeps> out;
  for (const int32_t window : windows) {
    out.push_back({kv_rows(2, 64, DType::kF32), {}});
    out.back().rows.window = window;
  }
  return out;
}

/// Every layer has a place of its own, in a group of layers that keep what it keeps.
void expect_places(const CacheLayout& layout, const std::vector<int32_t>& windows) {
  ASSERT_EQ(layout.layers.size(), windows.size());
  std::vector<std::vector<bool>> used;
  for (const CacheGroup& group : layout.groups) {
    EXPECT_EQ(group.rows.dtype, DType::kBF16);
    used.emplace_back(static_cast<size_t>(group.num_layers), false);
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    const CachePlace& place = layout.layers[i];
    const auto group = static_cast<size_t>(place.group), slot = static_cast<size_t>(place.slot);
    EXPECT_EQ(layout.groups.at(group).rows.window, windows[i]) << i;
    EXPECT_FALSE(used.at(group).at(slot)) << i;
    used[group][slot] = true;
  }
}

TEST(CacheLayout, OfAUniformModelIsOneGroup) {
  const CacheLayout layout = make_cache_layout(layers_of({0, 0, 0, 0, 0}), kWindows);
  expect_places(layout, {0, 0, 0, 0, 0});
  EXPECT_EQ(layout.block_size, 32);
  EXPECT_EQ(layout.num_groups(), 1);
  EXPECT_EQ(layout.groups[0].num_layers, 5);
}

TEST(CacheLayout, HasLayersThatKeepAllRowsFirst) {
  const std::vector<int32_t> windows = {16, 0, 16, 0, 48, 48};
  const CacheLayout layout = make_cache_layout(layers_of(windows), kWindows);
  expect_places(layout, windows);
  ASSERT_EQ(layout.num_groups(), 3);
  EXPECT_EQ(layout.groups[0].rows.window, 0);
  EXPECT_EQ(layout.groups[1].rows.window, 48);
}

TEST(CacheLayout, WithoutWindowsIsOneGroup) {
  const CacheLayout layout = make_cache_layout(layers_of({16, 0, 16, 0}), {.dtype = DType::kBF16});
  expect_places(layout, {0, 0, 0, 0});
  EXPECT_EQ(layout.num_groups(), 1);
}

TEST(CacheLayout, WindowsThatReachTheLongestSequenceAreNone) {
  const CacheLayout layout = make_cache_layout(layers_of({4096, 0, 4095, 1 << 30}), kWindows);
  expect_places(layout, {0, 0, 4095, 0});
}

// 5 layers of all rows in 34, as Gemma 3 has them, and others: few groups, and little unused.
TEST(CacheLayout, DividesLayersIntoGroupsOfOneSize) {
  struct Case {
    int32_t full, sliding, groups;
  };
  for (const auto& [full, sliding, groups] : {Case{5, 29, 6},
                                              {10, 52, 5},
                                              {12, 12, 2},
                                              {21, 7, 4},
                                              {1, 2, 3},
                                              {0, 32, 1},
                                              {1, 40, 21},
                                              {7, 13, 3}}) {
    SCOPED_TRACE(testing::Message() << full << " + " << sliding);
    std::vector<int32_t> windows(static_cast<size_t>(sliding), 512);
    windows.insert(windows.begin() + sliding / 2, static_cast<size_t>(full), 0);
    const CacheLayout layout = make_cache_layout(layers_of(windows), kWindows);
    expect_places(layout, windows);
    int32_t most = 0;
    for (const CacheGroup& group : layout.groups) most = std::max(most, group.num_layers);
    const int32_t parts = layout.num_groups() * most;
    EXPECT_LE((parts - full - sliding) * 16, parts);
    EXPECT_EQ(layout.num_groups(), groups);
  }
}

// Gemma 4's: heads of two sizes, and layers that read the last one of their kind.
TEST(CacheLayout, FillsBlocksWithRowsOfOtherSizes) {
  std::vector<LayerKeeps> layers;
  for (int32_t i = 0; i < 15; ++i) {
    const bool full = i % 5 == 4;
    layers.push_back({kv_rows(1, full ? 512 : 256, DType::kF32), {}});
    if (!full) layers.back().rows.window = 512;
  }
  for (int32_t i = 0; i < 2; ++i) layers.push_back({{}, {}, 13 + i});
  const CacheLayout layout = make_cache_layout(layers, kWindows);
  ASSERT_EQ(layout.num_groups(), 3);
  EXPECT_EQ(layout.groups[0].rows.key_dim, 512);
  EXPECT_EQ(layout.groups[0].num_layers, 3);
  EXPECT_EQ(layout.groups[1].num_layers, 6);
  EXPECT_EQ(layout.groups[2].num_layers, 6);
  EXPECT_EQ(layout.rows(0).key_dim, 256);
  for (int32_t i = 15; i < 17; ++i) {
    EXPECT_EQ(layout.place(i).group, layout.place(i - 2).group);
    EXPECT_EQ(layout.place(i).slot, layout.place(i - 2).slot);
  }
}

// A layer may keep rows, a state, or both; those without rows are in no group.
TEST(CacheLayout, HasStatesByLayer) {
  const StateRows conv{.channels = 48, .window = 2};
  std::vector<LayerKeeps> layers = layers_of({0, 0, 0});
  layers[0] = {{}, conv};
  layers[2].state = conv;
  const CacheLayout layout = make_cache_layout(layers, kWindows);
  ASSERT_EQ(layout.num_groups(), 1);
  EXPECT_EQ(layout.groups[0].num_layers, 2);
  EXPECT_LT(layout.place(0).group, 0);
  EXPECT_EQ(layout.place(2).slot, 1);
  ASSERT_TRUE(layout.has_states());
  EXPECT_EQ(layout.state(0), conv);
  EXPECT_TRUE(layout.state(1).empty());
  EXPECT_EQ(layout.state(2), conv);
  EXPECT_FALSE(make_cache_layout(layers_of({0}), kWindows).has_states());
}

}  // namespace
}  // namespace headrace
