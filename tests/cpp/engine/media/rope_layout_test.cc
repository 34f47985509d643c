#include "engine/media/rope_layout.h"

#include <gtest/gtest.h>

namespace headrace::internal {
namespace {

using Axes = std::array<int32_t, 3>;

MediaInput item(int32_t position, MediaGrid grid, std::vector<int32_t> steps) {
  MediaInput out;
  out.runs.push_back({position, grid.t * grid.h * grid.w, 0, grid, std::move(steps)});
  return out;
}

// Two tokens and START before the item, END behind it.
TEST(RopeLayout, FollowsTheRuleOfTheMakers) {
  const RopeLayout image({{item(3, {1, 2, 3}, {0})}});
  EXPECT_EQ(image.at(2), (Axes{2, 2, 2}));
  EXPECT_EQ(image.at(3), (Axes{3, 3, 3}));
  EXPECT_EQ(image.at(8), (Axes{3, 4, 5}));
  EXPECT_EQ(image.at(9), (Axes{6, 6, 6}));
  EXPECT_EQ(image.at(100), (Axes{97, 97, 97}));
  const RopeLayout clip({{item(3, {3, 2, 2}, {0, 3, 6})}});
  EXPECT_EQ(clip.at(14), (Axes{9, 4, 4}));
  EXPECT_EQ(clip.at(15), (Axes{10, 10, 10}));
  const RopeLayout short_clip({{item(3, {3, 2, 2}, {0, 1, 2})}});
  EXPECT_EQ(short_clip.at(15), (Axes{6, 6, 6}));
}

TEST(RopeLayout, RunsWithoutAGridAreText) {
  MediaInput plain;
  plain.runs.push_back({1, 4, 0, {}, {}});
  EXPECT_TRUE(RopeLayout({{plain}}).is_plain());
  const RopeLayout both({{plain, item(5, {1, 1, 4}, {0})}});
  EXPECT_EQ(both.at(4), (Axes{4, 4, 4}));
  EXPECT_EQ(both.at(8), (Axes{5, 5, 8}));
  EXPECT_EQ(both.at(9), (Axes{9, 9, 9}));
}

}  // namespace
}  // namespace headrace::internal
