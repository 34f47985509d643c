#include "model/vision/patch_order.h"

#include <gtest/gtest.h>

#include <numeric>

namespace headrace {
namespace {

using Ints = std::vector<int32_t>;

TEST(PatchOrder, SquaresComeWhole) {
  const VisionConfig config{.merge_size = 2};
  const PatchGrid grid{2, 4, 6};
  const PatchOrder order = order_patches(config, grid);
  EXPECT_TRUE(order.inputs.empty());
  EXPECT_TRUE(order.outputs.empty());
  EXPECT_EQ(order.grid_ends, (Ints{24, 48}));
  Ints places;
  for (int32_t i = 24; i < 48; ++i) {
    const auto [y, x] = place_of(config, grid, i);
    places.push_back(10 * y + x);
  }
  EXPECT_EQ(places, (Ints{0,  1,  10, 11, 2,  3,  12, 13, 4,  5,  14, 15,
                          20, 21, 30, 31, 22, 23, 32, 33, 24, 25, 34, 35}));
}

TEST(PatchOrder, WindowsAtTheEdgesAreSmaller) {
  const VisionConfig config{.merge_size = 2, .window = 4};
  const PatchOrder order = order_patches(config, {1, 10, 22});
  EXPECT_EQ(order.window_ends, (Ints{64, 128, 176, 192, 208, 220}));
  EXPECT_EQ(order.grid_ends, Ints{220});
  ASSERT_EQ(order.outputs.size(), 55u);
  EXPECT_EQ(Ints(order.outputs.begin(), order.outputs.begin() + 18),
            (Ints{0, 1, 2, 3, 11, 12, 13, 14, 22, 23, 24, 25, 33, 34, 35, 36, 4, 5}));
  EXPECT_EQ(Ints(order.outputs.end() - 11, order.outputs.end()),
            (Ints{44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54}));
  // Four patches of each square, one behind the other.
  ASSERT_EQ(order.inputs.size(), 220u);
  for (size_t i = 0; i < 220; ++i) {
    EXPECT_EQ(order.inputs[i], 4 * order.outputs[i / 4] + static_cast<int32_t>(i % 4));
  }
}

TEST(PatchOrder, WindowsNeverCrossGrids) {
  const VisionConfig config{.merge_size = 2, .window = 4};
  const PatchOrder order = order_patches(config, {3, 4, 4});
  EXPECT_EQ(order.window_ends, (Ints{16, 32, 48}));
  Ints all(48);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(order.inputs, all);
}

TEST(PatchOrder, PatchesRowByRowAreGatheredIntoSquares) {
  const VisionConfig config{.merge_size = 2, .patches_by_row = true};
  const PatchGrid grid{2, 2, 4};
  const PatchOrder order = order_patches(config, grid);
  EXPECT_EQ(order.inputs, (Ints{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15}));
  EXPECT_TRUE(order.outputs.empty());
  EXPECT_EQ(place_of(config, grid, 13), (std::pair<int32_t, int32_t>{1, 1}));
}

}  // namespace
}  // namespace headrace
