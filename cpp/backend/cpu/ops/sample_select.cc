#include "backend/cpu/ops/sample_select.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "base/check.h"

namespace headrace {
namespace {

constexpr size_t kSortLimit = 256;

/// Larger for larger values; equal for the two zeros.
uint32_t key_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// Digits of the key, most significant first.
struct Digit {
  int shift;
  uint32_t mask;
  uint32_t of(float value) const { return (key_of(value) >> shift) & mask; }
};
constexpr Digit kDigits[] = {{21, 0x7ff}, {10, 0x7ff}, {0, 0x3ff}};

struct Bucket {
  double amount = 0.0;
  uint32_t count = 0;
};

/// find_by_weight with any amount per candidate.
template <class Amount>
FoundCandidate find(std::span<const Candidate> candidates, double target, Reach reach,
                    const Amount& amount, Candidate* buffer) {
  HEADRACE_CHECK(!candidates.empty());
  const auto reaches = [&](double sum) {
    return reach == Reach::kAtLeast ? sum >= target : sum > target;
  };
  double before = 0.0;  // of all candidates that come before the active ones
  std::span<const Candidate> active = candidates;
  for (const Digit& digit : kDigits) {
    if (active.size() <= kSortLimit) break;
    std::array<Bucket, 2048> buckets{};
    for (const Candidate& c : active) {
      Bucket& bucket = buckets[digit.of(c.value)];
      bucket.amount += amount(c);
      ++bucket.count;
    }
    uint32_t chosen = 0;
    double before_chosen = before, sum = before;
    for (uint32_t b = digit.mask + 1; b-- > 0;) {
      if (buckets[b].count == 0) continue;
      chosen = b;
      before_chosen = sum;
      sum += buckets[b].amount;
      if (reaches(sum)) break;
    }
    before = before_chosen;
    const auto end = std::copy_if(active.begin(), active.end(), buffer,
                                  [&](const Candidate& c) { return digit.of(c.value) == chosen; });
    active = {buffer, end};
  }
  // More than kSortLimit left: all values are equal, and tokens ascend already.
  if (active.size() <= kSortLimit) {
    if (active.data() != buffer) std::copy(active.begin(), active.end(), buffer);
    std::sort(buffer, buffer + active.size(), comes_before);
    active = {buffer, active.size()};
  }
  double sum = before;
  for (const Candidate& c : active) {
    sum += amount(c);
    if (reaches(sum)) return {c, sum};
  }
  return {active.back(), sum};
}

}  // namespace

FoundCandidate find_by_weight(std::span<const Candidate> candidates, double target, Reach reach,
                              Candidate* buffer) {
  return find(
      candidates, target, reach, [](const Candidate& c) { return static_cast<double>(c.weight); },
      buffer);
}

size_t keep_best(std::span<Candidate> candidates, size_t count, Candidate* buffer) {
  if (candidates.size() <= count) return candidates.size();
  if (count == 0) return 0;
  const Candidate last = find(
                             candidates, static_cast<double>(count), Reach::kAtLeast,
                             [](const Candidate&) { return 1.0; }, buffer)
                             .candidate;
  const auto end = std::remove_if(candidates.begin(), candidates.end(),
                                  [&](const Candidate& c) { return comes_before(last, c); });
  return static_cast<size_t>(end - candidates.begin());
}

double total_weight(std::span<const Candidate> candidates) {
  double sum = 0.0;
  for (const Candidate& c : candidates) sum += static_cast<double>(c.weight);
  return sum;
}

}  // namespace headrace
