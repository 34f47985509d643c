#pragma once

// Operands that show how a tensor core adds products of e4m3. Each set is made by rules alone, so
// that what reads the results can make the same operands again.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace headrace::bench {

inline constexpr int kMostSumSteps = 4;  ///< products of 32 k in a chain
inline constexpr int kMostSumCodes = 32 * kMostSumSteps;

/// start + the sum of a[k] . b[k].
struct SumCase {
  std::array<uint8_t, kMostSumCodes> a{}, b{};
  float start = 0;
};

struct SumSet {
  std::string name;
  int steps = 1;
  std::vector<SumCase> cases;
};

/// What each set is for stands beside its rule.
std::vector<SumSet> sum_sets();

}  // namespace headrace::bench
