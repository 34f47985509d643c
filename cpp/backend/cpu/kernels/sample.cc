#include "backend/cpu/kernels_sample.h"

#include "backend/cpu/simd/simd.h"

// Compiled once per ISA.

namespace headrace::HEADRACE_ISA {
namespace {

constexpr float kNever = -__builtin_inff();

/// The vector at x + i; -inf beyond n.
HEADRACE_SIMD_INLINE F32 load_or_never(const float* x, int64_t i, int64_t n) {
  if (i + kLanes <= n) return load(x + i);
  float lanes[kLanes];
  for (int j = 0; j < kLanes; ++j) lanes[j] = i + j < n ? x[i + j] : kNever;
  return load(lanes);
}

HEADRACE_SIMD_INLINE void store_below(float* x, int64_t i, int64_t n, F32 v) {
  if (i + kLanes <= n) {
    store(x + i, v);
  } else {
    store_part(x + i, v, static_cast<int>(n - i));
  }
}

/// exp(x - max), 1 at the maximum even if that is infinite.
HEADRACE_SIMD_INLINE F32 weight_of(F32 x, F32 max_value) {
  return exp(select_greater(max_value, x, sub(x, max_value), zero()));
}

void forbid(float* x, int64_t n, const uint32_t* allowed) {
  for (int64_t word = 0; word * 32 < n; ++word) {
    const uint32_t bits = allowed[word];
    if (bits == 0xffffffffu) continue;
    const int64_t begin = word * 32, end = begin + 32 < n ? begin + 32 : n;
    for (int64_t i = begin; i < end; ++i) {
      if (((bits >> (i % 32)) & 1u) == 0) x[i] = kNever;
    }
  }
}

/// out = change(x), vector by vector; returns the maximum.
template <class Change>
HEADRACE_SIMD_INLINE float transform(const float* x, int64_t n, float* out, const Change& change) {
  F32 top = set1(kNever);
  for (int64_t i = 0; i < n; i += kLanes) {
    const F32 y = change(load_or_never(x, i, n));
    store_below(out, i, n, y);
    top = max(y, top);
  }
  return reduce_max(top);
}

float maximum(const float* x, int64_t n) {
  F32 top = set1(kNever);
  for (int64_t i = 0; i < n; i += kLanes) top = max(load_or_never(x, i, n), top);
  return reduce_max(top);
}

PreparedLogits prepare(const float* x, int64_t n, const uint32_t* allowed, float* out) {
  constexpr float kInfinity = __builtin_inff();
  constexpr uint32_t kAll = static_cast<uint32_t>((uint64_t{1} << kLanes) - 1);
  uint32_t below = kAll;  // lanes where all was: NaN is below nothing
  const float top = transform(x, n, out, [&below](F32 v) {
    below &= greater_mask(set1(kInfinity), v);
    return max(v, set1(kNever));
  });
  const float raw_top = below == kAll ? top : kInfinity;
  if (allowed == nullptr) return {top, raw_top};
  forbid(out, n, allowed);
  return {maximum(out, n), raw_top};
}

float divide(float* x, int64_t n, float divisor) {
  const F32 by = set1(divisor);
  return transform(x, n, x, [by](F32 v) { return div(v, by); });
}

/// Each lane carries its rounding errors along (Knuth's two-sum).
double exp_sum(const float* x, int64_t n, float max_value) {
  F32 sum = zero(), error = zero();
  for (int64_t i = 0; i < n; i += kLanes) {
    const F32 weight = weight_of(load_or_never(x, i, n), set1(max_value));
    const F32 next = add(sum, weight);
    const F32 added = sub(next, sum);
    error = add(error, add(sub(sum, sub(next, added)), sub(weight, added)));
    sum = next;
  }
  float sums[kLanes], errors[kLanes];
  store(sums, sum);
  store(errors, error);
  double total = 0.0;
  for (int i = 0; i < kLanes; ++i) {
    total += static_cast<double>(sums[i]) + static_cast<double>(errors[i]);
  }
  return total;
}

int64_t count_greater(const float* x, int64_t n, float value) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i += kLanes) {
    count += __builtin_popcount(greater_mask(load_or_never(x, i, n), set1(value)));
  }
  return count;
}

int64_t find_at_least(const float* x, int64_t n, float value) {
  constexpr uint32_t kAll = static_cast<uint32_t>((uint64_t{1} << kLanes) - 1);
  for (int64_t i = 0; i < n; i += kLanes) {
    const uint32_t found = ~greater_mask(set1(value), load_or_never(x, i, n)) & kAll;
    if (found == 0) continue;
    const int64_t index = i + __builtin_ctz(found);
    return index < n ? index : n;
  }
  return n;
}

int64_t collect(const float* x, int64_t n, float threshold, float max_value, int32_t first_token,
                Candidate* out) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i += kLanes) {
    const F32 value = load_or_never(x, i, n);
    uint32_t found = greater_mask(value, set1(threshold));
    if (found == 0) continue;
    float values[kLanes], weights[kLanes];
    store(values, value);
    store(weights, weight_of(value, set1(max_value)));
    for (; found != 0; found &= found - 1) {
      const int lane = __builtin_ctz(found);
      out[count++] = {values[lane], weights[lane], first_token + static_cast<int32_t>(i) + lane};
    }
  }
  return count;
}

}  // namespace

extern const SampleKernels kSampleKernels;
const SampleKernels kSampleKernels = {prepare,       divide,        maximum, exp_sum,
                                      count_greater, find_at_least, collect};

}  // namespace headrace::HEADRACE_ISA
