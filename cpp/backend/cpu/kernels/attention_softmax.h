#pragma once

// Running softmaxes of a block's rows: over the keys of a tile, then over partial results. Scores
// are in units of log 2, so that a probability is a power of 2.

#include "backend/cpu/kernels/attention_tile.h"

namespace headrace::HEADRACE_ISA {
namespace {

constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kNever = -__builtin_inff();
/// How far a score may lie above the row's reference before what was summed is rescaled. A
/// probability is at most 2 to this power then; its relative error is the same.
constexpr float kSlack = 8.0f;

/// A softmax per row: probabilities are relative to a reference, which was some tile's maximum. A
/// row that has seen no key has reference -inf and total 0.
struct Partial {
  float* sums;        ///< [rows][head_dim]
  float* references;  ///< [rows]
  float* totals;      ///< [rows]
};

/// A split's, as its tiles come in.
struct Running {
  float* sums;
  float* references;
  float* lane_totals;  ///< [rows][kLanes]
};

Partial partial_at(float* data, int head_dim, int rows) {
  float* references = data + static_cast<int64_t>(rows) * head_dim;
  return {data, references, references + rows};
}

void clear(const Running& running, int head_dim, int rows) {
  for (int i = 0; i < rows * head_dim; i += kLanes) store(running.sums + i, zero());
  for (int r = 0; r < rows; ++r) {
    running.references[r] = kNever;
    store(running.lane_totals + r * kLanes, zero());
  }
}

bool is_empty(const Partial& partial, int row) {
  return partial.references[row] == kNever && partial.totals[row] == 0.0f;
}

float exp2_of(float x) {
  float lanes[kLanes];
  store(lanes, exp2(set1(x)));
  return lanes[0];
}

/// Caps the scores in lanes [first, end), whole vectors, of `rows` rows.
void cap_scores(float* scores, int rows, int first, int end, float cap) {
  const F32 inverse = set1(1.0f / cap), factor = set1(cap);
  for (int r = 0; r < rows; ++r, scores += kTileTokens) {
    for (int i = first; i < end; i += kLanes) {
      store(scores + i, mul(tanh(mul(load(scores + i), inverse)), factor));
    }
  }
}

/// Scores of the vector at `lane`; -inf for keys that the row does not see.
HEADRACE_SIMD_INLINE F32 visible_scores(const float* scores, int lane, Visible visible) {
  alignas(64) static const float kIota[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  F32 x = load(scores + lane);
  if (lane >= visible.first && lane + kLanes <= visible.end) return x;
  const F32 index = add(load(kIota), set1(static_cast<float>(lane)));
  const F32 first = set1(static_cast<float>(visible.first));
  const F32 end = set1(static_cast<float>(visible.end));
  x = select_greater(first, index, set1(kNever), x);
  return select_greater(end, index, x, set1(kNever));
}

/// A tile's scores as a row sees them. Most rows see all of it: those take no masks.
template <bool kWhole>
HEADRACE_SIMD_INLINE F32 seen_scores(const float* scores, int lane, Visible visible) {
  return kWhole ? load(scores + lane) : visible_scores(scores, lane, visible);
}

/// A row's reference becomes the maximum `top` of a tile.
inline void raise_reference(F32 top, const Running& running, int row, int head_dim) {
  const float maximum = reduce_max(top);
  const F32 factor = set1(exp2_of(running.references[row] - maximum));
  float* sums = running.sums + static_cast<int64_t>(row) * head_dim;
  for (int i = 0; i < head_dim; i += kLanes) store(sums + i, mul(load(sums + i), factor));
  float* totals = running.lane_totals + row * kLanes;
  store(totals, mul(load(totals), factor));
  running.references[row] = maximum;
}

/// Has the row's reference reach up to the tile's scores.
template <bool kWhole>
HEADRACE_SIMD_INLINE void follow_scores(const float* scores, Visible visible,
                                        const Running& running, int row, int head_dim) {
  const int begin = kWhole ? 0 : visible.first / kLanes * kLanes;
  const int end = kWhole ? kTileTokens : visible.end;
  F32 top = set1(kNever);
#pragma GCC unroll 4
  for (int i = begin; i < end; i += kLanes) {
    top = max(seen_scores<kWhole>(scores, i, visible), top);
  }
  if (greater_mask(top, set1(running.references[row] + kSlack)) != 0) {
    raise_reference(top, running, row, head_dim);
  }
}

/// Scores to probabilities relative to the row's reference, which are added to its totals.
template <bool kWhole>
HEADRACE_SIMD_INLINE void to_probabilities(float* scores, Visible visible, const Running& running,
                                           int row) {
  const int begin = kWhole ? 0 : visible.first / kLanes * kLanes;
  const int end = kWhole ? kTileTokens : visible.end;
  const F32 reference = set1(running.references[row]);
  float* totals = running.lane_totals + row * kLanes;
  F32 total = load(totals);
#pragma GCC unroll 4
  for (int i = begin; i < end; i += kLanes) {
    const F32 p = exp2(sub(seen_scores<kWhole>(scores, i, visible), reference));
    store(scores + i, p);
    total = add(total, p);
  }
  store(totals, total);
}

/// The tile of `rows` rows, whose scores lie kTileTokens apart. Two loops: the rows' comparisons,
/// each a long chain, overlap.
HEADRACE_SIMD_INLINE void update_softmax(float* scores, const Visible* visible, int rows,
                                         const Running& running, int head_dim) {
  const auto is_whole = [](Visible v) { return v.first == 0 && v.end == kTileTokens; };
  for (int r = 0; r < rows; ++r) {
    const float* row = scores + r * kTileTokens;
    if (is_whole(visible[r])) {
      follow_scores<true>(row, visible[r], running, r, head_dim);
    } else if (visible[r].first < visible[r].end) {
      follow_scores<false>(row, visible[r], running, r, head_dim);
    }
  }
  for (int r = 0; r < rows; ++r) {
    float* row = scores + r * kTileTokens;
    if (is_whole(visible[r])) {
      to_probabilities<true>(row, visible[r], running, r);
    } else if (visible[r].first < visible[r].end) {
      to_probabilities<false>(row, visible[r], running, r);
    }
  }
}

/// into = the softmax over the keys of both, `from`'s after `into`'s.
void merge_partial(const Partial& into, const Partial& from, int head_dim, int rows) {
  for (int r = 0; r < rows; ++r) {
    if (is_empty(from, r)) continue;
    float* a = into.sums + static_cast<int64_t>(r) * head_dim;
    const float* b = from.sums + static_cast<int64_t>(r) * head_dim;
    if (is_empty(into, r)) {
      for (int i = 0; i < head_dim; i += kLanes) store(a + i, load(b + i));
      into.references[r] = from.references[r];
      into.totals[r] = from.totals[r];
      continue;
    }
    const float top =
        into.references[r] > from.references[r] ? into.references[r] : from.references[r];
    const float factor_a = exp2_of(into.references[r] - top);
    const float factor_b = exp2_of(from.references[r] - top);
    for (int i = 0; i < head_dim; i += kLanes) {
      const F32 scaled = mul(load(a + i), set1(factor_a));
      store(a + i, fma(load(b + i), set1(factor_b), scaled));
    }
    into.totals[r] = into.totals[r] * factor_a + from.totals[r] * factor_b;
    into.references[r] = top;
  }
}

/// What a row's sums are multiplied by, with a sink beside its keys.
float factor_with_sink(float reference, float total, float sink) {
  const float score = sink * kLog2E;
  const float top = score > reference ? score : reference;
  const float factor = exp2_of(reference - top);
  return factor / (total * factor + exp2_of(score - top));
}

/// `sinks`: of the heads, or null.
void write_output(const Partial& partial, int head_dim, int num_positions, int num_heads,
                  const float* sinks, float* out, int64_t out_stride) {
  for (int r = 0; r < num_positions * num_heads; ++r) {
    const float total = partial.totals[r];
    const F32 inverse =
        sinks == nullptr
            ? div(set1(1.0f), set1(total))
            : set1(factor_with_sink(partial.references[r], total, sinks[r % num_heads]));
    const float* sums = partial.sums + static_cast<int64_t>(r) * head_dim;
    float* to = out + r / num_heads * out_stride + static_cast<int64_t>(r % num_heads) * head_dim;
    for (int i = 0; i < head_dim; i += kLanes) store(to + i, mul(load(sums + i), inverse));
  }
}

}  // namespace
}  // namespace headrace::HEADRACE_ISA
