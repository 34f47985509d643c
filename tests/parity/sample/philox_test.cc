#include "backend/contract/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

namespace headrace {
namespace {

using Block = std::array<uint32_t, 4>;

Block run(Block counter, std::array<uint32_t, 2> key) {
  const PhiloxCounter out =
      philox4x32_10({{counter[0], counter[1], counter[2], counter[3]}}, {{key[0], key[1]}});
  return {out.words[0], out.words[1], out.words[2], out.words[3]};
}

// The known answers that accompany the paper (Random123, kat_vectors).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(run({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(run({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(run({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformIsTheUpperBitsOfTheFirstWord) {
  EXPECT_EQ(philox_uniform(0, 0), static_cast<float>(0x6627e8d5u >> 8) / 16777216.0f);
}

TEST(Philox, UniformStaysBelowOneAndUsesEveryKeyAndCounterBit) {
  std::set<float> seen;
  for (int bit = 0; bit < 64; ++bit) {
    seen.insert(philox_uniform(uint64_t{1} << bit, 0));
    seen.insert(philox_uniform(0, uint64_t{1} << bit));
  }
  EXPECT_GT(seen.size(), 126u);
  EXPECT_GE(*seen.begin(), 0.0f);
  EXPECT_LT(*seen.rbegin(), 1.0f);
  EXPECT_LT(static_cast<float>(0xffffffffu >> 8) * 0x1p-24f, 1.0f);
}

// 64 equal bins of 65536 draws: chi-square with 63 degrees of freedom; 103.4 is its 99.9 % point.
TEST(Philox, UniformAlongPositionsAndAlongSeeds) {
  for (const bool along_positions : {true, false}) {
    std::array<int, 64> bins{};
    for (uint64_t i = 0; i < 65536; ++i) {
      const float u = along_positions ? philox_uniform(17, i) : philox_uniform(i, 17);
      ++bins[static_cast<size_t>(u * 64.0f)];
    }
    double chi2 = 0;
    for (int count : bins) chi2 += (count - 1024.0) * (count - 1024.0) / 1024.0;
    EXPECT_LT(chi2, 103.4) << "along_positions " << along_positions;
  }
}

}  // namespace
}  // namespace headrace
