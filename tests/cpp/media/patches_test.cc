#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "headrace/media.h"
#include "headrace/status.h"

namespace headrace {
namespace {

std::vector<float> table_of(float slope, float step) {
  std::vector<float> table(768);
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = slope * static_cast<float>(i % 256) + step * static_cast<float>(i / 256);
  }
  return table;
}

/// Row by row and value by value, from what the header says.
std::vector<float> reference(const std::vector<uint8_t>& pixels, const PatchLayout& layout,
                             const std::vector<float>& table) {
  const int64_t p = layout.patch_size, m = layout.merge_size, together = layout.temporal_patch_size;
  const int64_t rows = layout.height / p, columns = layout.width / p;
  std::vector<float> out;
  for (int64_t grid = 0; grid < (layout.frames + together - 1) / together; ++grid) {
    for (int64_t row = 0; row < rows * columns; ++row) {
      const int64_t block = row / (m * m), inside = row % (m * m);
      const int64_t y = block / (columns / m) * m + inside / m;
      const int64_t x = block % (columns / m) * m + inside % m;
      for (int64_t value = 0; value < 3 * together * p * p; ++value) {
        const int64_t channel = value / (together * p * p), t = value / (p * p) % together;
        const int64_t frame = std::min(grid * together + t, layout.frames - 1);
        const int64_t py = y * p + value / p % p, px = x * p + value % p;
        const uint8_t byte = pixels[static_cast<size_t>(
            ((frame * layout.height + py) * layout.width + px) * 3 + channel)];
        out.push_back(table[static_cast<size_t>(256 * channel + byte)]);
      }
    }
  }
  return out;
}

TEST(Patches, AreInMergeBlockOrder) {
  // One pixel a patch, which names its place: the order of a 4 x 6 grid.
  std::vector<uint8_t> pixels;
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 6; ++x) pixels.insert(pixels.end(), 3, static_cast<uint8_t>(10 * y + x));
  }
  const PatchLayout layout{1, 4, 6, 1, 2, 1};
  std::vector<float> out(patch_values(layout));
  normalize_patches(pixels.data(), layout, table_of(1, 0), out.data());
  const std::vector<float> order = {0,  1,  10, 11, 2,  3,  12, 13, 4,  5,  14, 15,
                                    20, 21, 30, 31, 22, 23, 32, 33, 24, 25, 34, 35};
  ASSERT_EQ(out.size(), 3 * order.size());
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(out[3 * i], order[i]) << i;
}

TEST(Patches, EqualTheReference) {
  std::mt19937 random(5);
  for (const PatchLayout& layout :
       {PatchLayout{1, 28, 56, 14, 2, 2}, PatchLayout{3, 8, 12, 2, 2, 2},
        PatchLayout{5, 12, 6, 3, 1, 1}, PatchLayout{4, 64, 32, 16, 2, 2},
        PatchLayout{2, 18, 9, 3, 3, 4}}) {
    std::vector<uint8_t> pixels(
        static_cast<size_t>(3 * layout.frames * layout.height * layout.width));
    for (uint8_t& byte : pixels) byte = static_cast<uint8_t>(random());
    const std::vector<float> table = table_of(0.25f, 1000.0f);
    std::vector<float> out(patch_values(layout));
    normalize_patches(pixels.data(), layout, table, out.data());
    EXPECT_EQ(out, reference(pixels, layout, table));
  }
}

TEST(Patches, RefuseLayoutsBeforeArithmetic) {
  const int64_t huge = INT64_MAX;
  for (const PatchLayout& bad :
       {PatchLayout{0, 28, 28}, PatchLayout{-1, 28, 28}, PatchLayout{huge, 28, 28},
        PatchLayout{1, 0, 28}, PatchLayout{1, huge, huge}, PatchLayout{1, 29, 28},
        PatchLayout{1, 28, 14}, PatchLayout{1, 28, 28, 0}, PatchLayout{1, 28, 28, -14},
        PatchLayout{1, 28, 28, 14, 0}, PatchLayout{1, 28, 28, 14, 17},
        PatchLayout{1, 28, 28, 14, 2, 0}, PatchLayout{1, 28, 28, 14, 2, 17},
        PatchLayout{1, 1 << 20, 1 << 20}, PatchLayout{int64_t{1} << 40, 28, 28},
        PatchLayout{1, 1 << 20, 1 << 10, 1, 1, 16}}) {
    EXPECT_THROW(patch_values(bad), Error);
    EXPECT_THROW(normalize_patches(nullptr, bad, {}, nullptr), Error);
  }
  const std::vector<uint8_t> pixels(3 * 28 * 28);
  std::vector<float> out(pixels.size());
  const std::vector<float> small(255);
  EXPECT_THROW(normalize_patches(pixels.data(), {1, 28, 28}, small, out.data()), Error);
}

}  // namespace
}  // namespace headrace
