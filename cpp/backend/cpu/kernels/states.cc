#include "backend/cpu/kernels_states.h"

#include "backend/cpu/simd/activations.h"
#include "backend/cpu/simd/row_loops.h"
#include "backend/cpu/simd/simd.h"

// Compiled once per ISA.

namespace headrace::HEADRACE_ISA {
namespace {

/// Sums over i of S[i] * x[i] for N strips, where row(i, S) gives those of all strips: four chains
/// by i mod 4, added as a tree, so that what a column gets depends on no other column. REQUIRES:
/// count a multiple of 4.
template <int N, class Row>
HEADRACE_SIMD_INLINE void sum_rows(int64_t count, const float* x, const Row& row, F32 (&sums)[N]) {
  F32 chains[4][N];
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) chains[c][n] = zero();
  }
  for (int64_t i = 0; i < count; i += 4) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const F32 factor = set1(x[i + c]);
      F32 numbers[N];
      row(i + c, numbers);
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) chains[c][n] = fma(numbers[n], factor, chains[c][n]);
    }
  }
#pragma GCC unroll 2
  for (int n = 0; n < N; ++n) {
    sums[n] = add(add(chains[0][n], chains[1][n]), add(chains[2][n], chains[3][n]));
  }
}

/// What a strip adds for a row, and what it gives.
struct DeltaRule {
  static constexpr bool kReadsFirst = true;
  HEADRACE_SIMD_INLINE static F32 change(const StateTask&, F32 rate, F32 value, F32 read) {
    return mul(rate, sub(value, read));
  }
  HEADRACE_SIMD_INLINE static F32 result(const StateTask&, F32, F32 sum) { return sum; }
};

struct Scan {
  static constexpr bool kReadsFirst = false;
  HEADRACE_SIMD_INLINE static F32 change(const StateTask&, F32 rate, F32 value, F32) {
    return mul(rate, value);
  }
  HEADRACE_SIMD_INLINE static F32 result(const StateTask& task, F32 value, F32 sum) {
    return fma(set1(task.skip), value, sum);
  }
};

/// N strips: kLanes columns each from `column` on.
template <class Rule, int N>
struct Strips {
  const StateTask& task;
  int64_t column;

  HEADRACE_SIMD_INLINE int64_t place(int n) const {
    const int64_t first = column + n * kLanes;
    return first / kStateColumns * kStateColumns * task.key_dim + first % kStateColumns;
  }
  HEADRACE_SIMD_INLINE int lanes(int n) const {
    const int64_t left = task.columns - column - n * kLanes;
    return static_cast<int>(left < kLanes ? left : kLanes);
  }

  /// What a row reads and writes besides the state: rows lie far apart, often by a multiple of the
  /// caches' ways, and nothing reads them ahead.
  HEADRACE_SIMD_INLINE void fetch(int64_t row) {
    constexpr int64_t kLine = 16;
    for (int64_t i = 0; i < task.key_dim; i += kLine) {
      prefetch(task.keys + row * task.stride + i);
      prefetch(task.reads + row * task.stride + i);
    }
    for (int n = 0; n < N; ++n) {
      prefetch(task.values + row * task.stride + column + n * kLanes);
      prefetch(task.out + row * task.out_stride + column + n * kLanes);
    }
  }

  /// One row; `load_state(i, S)` gives what is in row i of the strips.
  template <class Load>
  HEADRACE_SIMD_INLINE void go_over(int64_t row, float* const (&to)[N], const Load& load_state) {
    const float* const keys = task.keys + row * task.stride;
    const F32 decay = set1(task.decays[row * task.gate_stride]);
    const F32 rate = set1(task.rates[row * task.gate_stride]);
    F32 values[N], change[N], sums[N];
    if constexpr (Rule::kReadsFirst) sum_rows(task.key_dim, keys, load_state, sums);
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) {
      values[n] = load_up_to(task.values + row * task.stride + column + n * kLanes, lanes(n));
      const F32 read = Rule::kReadsFirst ? mul(decay, sums[n]) : zero();
      change[n] = Rule::change(task, rate, values[n], read);
    }
    // Loads of all strips come before the stores: a fifth faster where strips lie a multiple of
    // 4 KiB apart, so that a load's last 12 address bits are those of a store just before it.
    const auto update = [&](int64_t i, F32(&next)[N]) {
      const F32 key = set1(keys[i]);
      load_state(i, next);
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) next[n] = fma(key, change[n], mul(decay, next[n]));
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) store(to[n] + i * kStateColumns, next[n]);
    };
    sum_rows(task.key_dim, task.reads + row * task.stride, update, sums);
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) {
      store_up_to(task.out + row * task.out_stride + column + n * kLanes,
                  Rule::result(task, values[n], sums[n]), lanes(n));
    }
  }

  void run() {
    float* to[N];
    const float* from[N];
    for (int n = 0; n < N; ++n) {
      to[n] = task.to + place(n);
      from[n] = task.from + (task.from == nullptr ? 0 : place(n));
    }
    const auto go_on = [&](int64_t row, const auto& before) {
      if (row + 1 < task.rows) fetch(row + 1);
      go_over(row, to, [&before](int64_t i, F32(&numbers)[N]) {
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) numbers[n] = load(before[n] + i * kStateColumns);
      });
    };
    if (task.from == nullptr) {
      go_over(0, to, [](int64_t, F32(&numbers)[N]) {
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) numbers[n] = zero();
      });
    } else {
      go_on(0, from);
    }
    for (int64_t row = 1; row < task.rows; ++row) go_on(row, to);
  }
};

/// Two strips at once share the broadcasts of keys and queries, and have enough sums between them
/// for no multiply-add to wait for another. But a single row takes what it needs from memory, which
/// is read ahead only where it is read from start to end: one block at a time.
template <class Rule>
void go_over_columns(const StateTask& task) {
  int64_t column = 0;
  if (task.rows > 1 || kLanes < kStateColumns) {
    for (; column + kLanes < task.columns; column += 2 * kLanes) {
      Strips<Rule, 2>{task, column}.run();
    }
  }
  for (; column < task.columns; column += kLanes) Strips<Rule, 1>{task, column}.run();
}

void causal_conv(const ConvTask& task) {
  const float* rows[kMostTaps];
  for (int64_t row = 0; row < task.rows; ++row) {
    for (int32_t j = 0; j < task.kernel; ++j) {
      const int64_t at = row + 1 - task.kernel + j;
      rows[j] = at < 0 ? task.window + (at + task.kernel - 1) * task.window_stride
                       : task.x + at * task.x_stride;
    }
    float* const out = task.out + row * task.out_stride;
    for_vectors(task.channels, [&](int64_t i, int count) {
      F32 sum = mul(load_up_to(task.taps + i, count), load_up_to(rows[0] + i, count));
      for (int32_t j = 1; j < task.kernel; ++j) {
        const F32 tap = load_up_to(task.taps + j * task.tap_stride + i, count);
        sum = fma(tap, load_up_to(rows[j] + i, count), sum);
      }
      if (task.bias != nullptr) sum = add(sum, load_up_to(task.bias + i, count));
      store_up_to(out + i, task.silu ? silu(sum) : sum, count);
    });
  }
}

void l2_norm(float* x, float scale, int64_t n) {
  const float squares = sum_of(n, [x](int64_t i, int count, F32 acc) {
    const F32 v = load_up_to(x + i, count);
    return fma(v, v, acc);
  });
  const F32 factor = div(set1(scale), sqrt(add(set1(squares), set1(1e-6f))));
  for_vectors(n, [&](int64_t i, int count) {
    store_up_to(x + i, mul(load_up_to(x + i, count), factor), count);
  });
}

void decays(const float* dt, const float* bias, const float* a_log, float min_time, float max_time,
            int64_t n, float* decays, float* times) {
  for_vectors(n, [&](int64_t i, int count) {
    const F32 opened = softplus(add(load_up_to(dt + i, count), load_up_to(bias + i, count)));
    const F32 time = min(set1(max_time), max(set1(min_time), opened));
    store_up_to(times + i, time, count);
    const F32 rate = exp(load_up_to(a_log + i, count));
    store_up_to(decays + i, exp(sub(zero(), mul(rate, time))), count);
  });
}

void sigmoid(const float* x, int64_t n, float* out) {
  for_vectors(n, [&](int64_t i, int count) {
    store_up_to(out + i, times_sigmoid(set1(1.0f), load_up_to(x + i, count)), count);
  });
}

}  // namespace

extern const StateKernels kStateKernels;
const StateKernels kStateKernels = {
    go_over_columns<DeltaRule>, go_over_columns<Scan>, causal_conv, l2_norm, decays, sigmoid};

}  // namespace headrace::HEADRACE_ISA
