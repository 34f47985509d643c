// Sums of FP8 products as the emulation makes them, against what gpu_float8_probe got from a card.

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <string>

#include "benchmarks/cuda/float8/sum_cases.h"
#include "cuda/emulation/short_sums.h"

namespace headrace::bench {
namespace {

/// Of all bits of a set's sums, in order.
uint64_t hash_of(const SumSet& set) {
  uint64_t hash = 14695981039346656037u;
  for (const SumCase& one : set.cases) {
    float sum = one.start;
    for (int step = 0; step < set.steps; ++step) {
      const int first = step * emulation::kShortDepth;
      sum = emulation::add_short(one.a.data() + first, one.b.data() + first, sum);
    }
    hash = (hash ^ std::bit_cast<uint32_t>(sum)) * 1099511628211u;
  }
  return hash;
}

// wgmma m64n8k32 on an H100 80GB HBM3 (driver 580.159), 2026-11-27.
TEST(ShortSums, HaveTheBitsOfAnH100) {
  const std::map<std::string, uint64_t> measured = {
      {"two products", 0x77f20881b0734625u},
      {"cancelled products", 0x338c9e9d18936645u},
      {"groups", 0xab0c262759a1d225u},
      {"accumulator", 0x067ce8af75f0f625u},
      {"full accumulator", 0x32f0b92dcc0a696du},
      {"many small", 0xe06633fa6fe4b4b5u},
      {"many small, cancelled", 0xa47eb06e7f922cb5u},
      {"wide products", 0x744c32bdd0006a2du},
      {"cut products", 0x09e52448f7f6d7ddu},
      {"subnormal factors", 0xdd182e797dcecdb5u},
      {"chain of 2", 0xe9c0af464f185aa5u},
      {"chain of 4", 0xe9c0af464f185aa5u},
      {"any codes", 0x295bbfed7f36a325u},
      {"any codes, any start", 0x1d32ebb175114325u},
      {"codes below 2", 0x3a3fe341cf48db25u},
      {"codes below 2, any start", 0xb55ac5e1f7fe1325u},
      {"bells, any start", 0x8f5ab14cae8d6b25u},
      {"four products", 0xf0959e1d09464b25u},
      {"any codes, unit", 0xeb29ad562f034725u},
      {"codes below 2, unit", 0x81a078610be3df25u},
      {"bells, unit", 0x3fa32788f9f14b25u},
  };
  size_t sums = 0;
  for (const SumSet& set : sum_sets()) {
    EXPECT_EQ(hash_of(set), measured.at(set.name)) << set.name;
    sums += set.cases.size();
  }
  EXPECT_EQ(sums, 5958u);
}

}  // namespace
}  // namespace headrace::bench
