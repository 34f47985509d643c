#pragma once

// Finding places in the order "larger value, then lower token id" without sorting: a radix descent
// over the bits of the values, which sorts only the last few candidates. Linear in the number of
// candidates whatever their values are.

#include <cstddef>
#include <span>

#include "backend/cpu/kernels_sample.h"

namespace headrace {

/// Does `a` come before `b`?
inline bool comes_before(const Candidate& a, const Candidate& b) noexcept {
  return a.value > b.value || (a.value == b.value && a.token < b.token);
}

struct FoundCandidate {
  Candidate candidate;
  double reached;  ///< summed weight up to and including it
};

enum class Reach { kAtLeast, kBeyond };

/// The first candidate in order at which the sum of weights reaches `target` (>= or >); the last
/// one if none does. `candidates`: not empty, tokens ascending. `buffer`: as many, overwritten.
FoundCandidate find_by_weight(std::span<const Candidate> candidates, double target, Reach reach,
                              Candidate* buffer);

/// Keeps the first `count` candidates in order; returns how many are left, tokens ascending.
size_t keep_best(std::span<Candidate> candidates, size_t count, Candidate* buffer);

/// Sum of the weights, in double.
double total_weight(std::span<const Candidate> candidates);

}  // namespace headrace
