#pragma once

// Attention over a cache of codes (kernels/kv_layout.h) by tensor cores, mma.sync alone: what short
// and long pieces share, so that they agree to the bit. Codes become float16 in registers, exactly
// (device/kv_codes.cuh), behind ldmatrix; scales come in behind the products, once for a key:
//
//   scores   queries are float16 too, times a power of two of their row so that the largest is in
//            [2^14, 2^15): exact but for what is 2^28 times smaller. A score is the key's step
//            times the products' sum, plus its low (int8: less 128 steps) times the query's sum.
//   values   a weight is to be times the value's step, which the exponent does: log2(step) is added
//            to the score. What is summed up for the total is the weight over the step. So a weight
//            is at most 1, and float16 loses nothing to speak of, whatever the steps are. The
//            values' lows (int8: 128 steps, of the weights as float16) are a sum of their own,
//            `zeros`, that all columns share.
//
// Scores are in units of log2 then, with a scale of 1 for what attention_fold.cuh does to them.

#include "cuda/kernels/attention/attention_rows.cuh"

namespace headrace::cuda {

__device__ inline float log2_approximate(float x) {
#if defined(__CUDA_ARCH__)
  float out;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return log2f(x);
#endif
}

__device__ inline float reciprocal_approximate(float x) {
#if defined(__CUDA_ARCH__)
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return 1.0f / x;
#endif
}

/// Of 16 bytes of a row.
template <class Code>
struct CodeVector {
  static constexpr int kColumns = 16 * CodeTraits<Code>::kPerByte;
  static constexpr int kSteps = CodeTraits<Code>::kPerByte;  // products over the head
  static constexpr int kChunks = 2 * kSteps;                 // products over 8 columns of values
  static constexpr int kLaneColumns = kColumns / 4;          // neighbours: a lane's of the sums
};

/// Columns of 16 bytes of a cache's row.
template <class Cache>
__host__ __device__ constexpr int code_columns() {
  if constexpr (CodeTraits<Cache>::kCodes) {
    return CodeVector<Cache>::kColumns;
  } else {
    return 8;
  }
}

/// 8 bytes, aligned, of a row of queries.
template <class T>
__device__ void load_four(const T* from, T (&to)[4]) {
  static_assert(sizeof to == 8);
  const uint2 raw = *reinterpret_cast<const uint2*>(from);
  __builtin_memcpy(to, &raw, sizeof to);
}

/// What the queries of a lane's two rows are multiplied by, and what the scores are made of.
template <class Code>
struct CodeQueries {
  float factor[2];  // powers of two
  float unit[2];    // of the products' sums
  float sum[2];     // of the queries; of int8 times -128

  template <int kHeadDim, class T>
  __device__ void load(const AttentionTask<T, Code>& task, const AttentionPiece& piece,
                       const LaneRows& rows) {
    constexpr int kLane = kHeadDim / 4;
    static_assert(kLane % 4 == 0);
    for (int i = 0; i < 2; ++i) {
      const T* const from = query_row<kHeadDim>(task, piece, rows, i) + kLane * lane_place().q;
      float largest = 0.0f, total = 0.0f;
      HEADRACE_NO_UNROLL
      for (int j = 0; j < kLane && rows.exists[i]; j += 4) {
        T four[4];
        load_four(from + j, four);
        HEADRACE_UNROLL
        for (const T& element : four) {
          const float x = to_float(element);
          largest = fmaxf(largest, fabsf(x));
          total += x;
        }
      }
      for (int lane = 1; lane <= 2; lane *= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, lane));
        total += __shfl_xor_sync(kAllLanes, total, lane);
      }
      const uint32_t exponent = least(268u - (bits_of_float(largest) >> 23), 253u);
      factor[i] = float_of_bits(exponent << 23);
      unit[i] = float_of_bits((254u - exponent) << 23) * code_unit<Code>();
      sum[i] = CodeTraits<Code>::kHasLow ? total : -CodeTraits<Code>::kZero * total;
    }
  }

  template <int kHeadDim, class T>
  __device__ static const T* query_row(const AttentionTask<T, Code>& task,
                                       const AttentionPiece& piece, const LaneRows& rows, int i) {
    return task.q + (piece.item.row + piece.token(task.shape, rows.m[i])) * task.q_stride +
           int64_t{piece.head(task.shape, rows.m[i])} * kHeadDim;
  }
};

/// Step `step` of the rows' queries as a product's left operand, to match key_pairs().
template <int kHeadDim, class T, class Code>
__device__ void code_query(const AttentionTask<T, Code>& task, const AttentionPiece& piece,
                           const LaneRows& rows, const CodeQueries<Code>& queries, int step,
                           uint32_t (&to)[4]) {
  using Vector = CodeVector<Code>;
  const int first =
      step / Vector::kSteps * Vector::kColumns + Vector::kLaneColumns * lane_place().q;
  const int second = step % Vector::kSteps * 2;
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    const T* const from = queries.template query_row<kHeadDim>(task, piece, rows, i) + first;
    const bool exists = rows.exists[i] && first < kHeadDim;
    const float factor = queries.factor[i];
    const auto at = [&](int j) { return exists ? to_float(from[j]) * factor : 0.0f; };
    if constexpr (std::is_same_v<Code, CodeI8>) {
      to[i] = pack_pair<F16>(at(0), at(2));
      to[i + 2] = pack_pair<F16>(at(1), at(3));
    } else if constexpr (std::is_same_v<Code, CodeF8>) {
      to[i] = pack_pair<F16>(at(0), at(1));
      to[i + 2] = pack_pair<F16>(at(2), at(3));
    } else {
      to[i] = pack_pair<F16>(at(second), at(second + 4));
      to[i + 2] = pack_pair<F16>(at(second + 1) * 0.0625f, at(second + 5) * 0.0625f);
    }
  }
}

/// Scales of a tile's keys and values in shared memory.
struct TileScales {
  uint32_t keys[kTileKeys], values[kTileKeys];
};

/// Starts copies of a tile's scales, by a whole warp: each lane has four keys or four values.
template <class T, class Code>
__device__ void copy_scales(const AttentionTask<T, Code>& task, const SplitRows& rows, int tile,
                            TileScales& to) {
  const int lane = lane_id(), first = lane % 16 * 4, key = tile * kTileKeys + first;
  const uint32_t row = __shfl_sync(kAllLanes, rows.scale, key / kResolvedKeys) +
                       static_cast<uint32_t>(key % kResolvedKeys);
  copy_async_16(lane < 16 ? to.keys + first : to.values + first,
                (lane < 16 ? task.key_scales : task.value_scales) + row, 16);
}

/// What no row of the piece sees gets scales that are numbers: its weights are 0. `seen`: from the
/// tile's first key on. By the lanes that have copied them, before others look.
template <class Code>
__device__ void clear_unseen_scales(KeyRange seen, TileScales& scales) {
  if (seen.first <= 0 && seen.end >= kTileKeys) return;
  uint32_t* const own = lane_id() < 16 ? scales.keys : scales.values;
  const int first = lane_id() % 16 * 4;
  for (int key = first; key < first + 4; ++key) {
    if (key < seen.first || key >= seen.end) own[key] = CodeTraits<Code>::kPlainScale;
  }
}

/// Two neighbouring keys' scales.
template <class Code>
struct ScalePlaces {
  KvScale at[2];

  __device__ ScalePlaces(const uint32_t* scales, int j) {
    const uint2 pair = *reinterpret_cast<const uint2*>(scales + 8 * j + 2 * lane_place().q);
    at[0] = kv_scale<Code>(pair.x);
    at[1] = kv_scale<Code>(pair.y);
  }
};

/// See scale_scores(), where scores are capped or aren't.
template <int kRows, bool kCapped, class Code>
__device__ void scale_scores_of(const TileScales& scales, const CodeQueries<Code>& queries,
                                float scale, const SoftCap& cap, TileScores& scores) {
  HEADRACE_UNROLL
  for (int j = 0; j < kTileKeys / 8; ++j) {
    const ScalePlaces<Code> keys(scales.keys, j), values(scales.values, j);
    HEADRACE_UNROLL
    for (int c = 0; c < 2; ++c) {
      const float step = keys.at[c].step * scale, low = keys.at[c].low * scale;
      const float value_step = log2_approximate(values.at[c].step);
      const float value = kCapped ? 0.0f : value_step;
      HEADRACE_UNROLL
      for (int i = 0; i < kRows; ++i) {
        float& score = scores[j][2 * i + c];
        if constexpr (CodeTraits<Code>::kHasLow) {
          score = fmaf(score * queries.unit[i], step, fmaf(low, queries.sum[i], value));
        } else if constexpr (CodeTraits<Code>::kZero != 0.0f) {
          score = fmaf(fmaf(score, queries.unit[i], queries.sum[i]), step, value);
        } else {
          score = fmaf(score * queries.unit[i], step, value);
        }
        if constexpr (kCapped) score = cap_score(score, cap) + value_step;
      }
    }
  }
}

/// Sums of products to scores in units of log2, capped if `cap` is on, each with the logarithm of
/// its value's step. Of kRows of the lane's two rows: the second one of a few heads' decode isn't
/// there, and stays 0.
template <int kRows, class Code>
__device__ void scale_scores(const TileScales& scales, const CodeQueries<Code>& queries,
                             float scale, const SoftCap& cap, TileScores& scores) {
  if (cap.is_on()) {
    scale_scores_of<kRows, true>(scales, queries, scale, cap, scores);
  } else {
    scale_scores_of<kRows, false>(scales, queries, scale, cap, scores);
  }
}

/// Adds two weights as the product takes them: a value of 0 gets nothing of what rounding leaves.
__device__ inline void add_rounded(const float* weights, float (&to)[2]) {
  const uint32_t pair = pack_pair<F16>(weights[0], weights[1]);
  to[0] += to_float(F16{static_cast<uint16_t>(pair)});
  to[1] += to_float(F16{static_cast<uint16_t>(pair >> 16)});
}

/// A lane's part of a tile, for both of its rows.
struct CodeTotals {
  float total[2];  // of the weights
  float zero[2];   // of the values' lows times their weights
};

/// Scores to weights times the values' steps, of kRows rows. `base`: of each row.
template <class Code, int kRows>
__device__ CodeTotals soften_codes(const TileScales& scales, const float (&base)[2],
                                   TileScores& scores) {
  constexpr bool kHasLow = CodeTraits<Code>::kHasLow, kHasZero = CodeTraits<Code>::kZero != 0.0f;
  float totals[2][2] = {}, zeros[2][2] = {};
  HEADRACE_UNROLL
  for (int j = 0; j < kTileKeys / 8; ++j) {
    const ScalePlaces<Code> values(scales.values, j);
    HEADRACE_UNROLL
    for (int c = 0; c < 2; ++c) {
      const float inverse = reciprocal_approximate(values.at[c].step);
      const float low = values.at[c].low * inverse;
      HEADRACE_UNROLL
      for (int i = 0; i < kRows; ++i) {
        float& score = scores[j][2 * i + c];
        score = weight_of(score, 1.0f, base[i]);
        totals[i][c] = fmaf(score, inverse, totals[i][c]);
        if constexpr (kHasLow) zeros[i][c] = fmaf(score, low, zeros[i][c]);
      }
    }
    HEADRACE_UNROLL
    for (int i = 0; i < kRows && kHasZero; ++i) add_rounded(scores[j] + 2 * i, zeros[i]);
  }
  CodeTotals out;
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    out.total[i] = totals[i][0] + totals[i][1];
    out.zero[i] = kHasLow ? zeros[i][0] + zeros[i][1]
                          : -CodeTraits<Code>::kZero * (zeros[i][0] + zeros[i][1]);
  }
  return out;
}

/// Products of 16 * kGroups keys of kVectors vectors each, which lie from `keys` on. `query`:
/// (step, uint32_t (&)[4]) gives what code_query() made.
template <class Code, int kVectors, class Places, int kGroups, class Query>
__device__ void score_codes(const char* keys, const Query& query, float (*scores)[4]) {
  constexpr int kSteps = CodeVector<Code>::kSteps;
  const int lane = fresh_lane_id(), matrix = lane / 8, row = lane % 8 + matrix / 2 * 8;
  const auto score_pair = [&](int pair) {
    const int vector =
        kVectors % 2 == 0 ? pair + matrix % 2 : least(pair + matrix % 2, kVectors - 1);
    uint32_t a[2 * kSteps][4];
    HEADRACE_UNROLL
    for (int s = 0; s < 2 * kSteps; ++s) {
      if (pair + s / kSteps < kVectors) query(pair * kSteps + s, a[s]);
    }
    HEADRACE_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      uint32_t words[4];
      load_matrices(words, keys + Places::at(16 * group + row, vector));
      HEADRACE_UNROLL
      for (int v = 0; v < 2 && pair + v < kVectors; ++v) {
        uint32_t first[kSteps][2], second[kSteps][2];
        key_pairs<Code>(words[v], first);
        key_pairs<Code>(words[2 + v], second);
        HEADRACE_UNROLL
        for (int s = 0; s < kSteps; ++s) {
          mma_16x8x16<F16>(scores[2 * group], a[v * kSteps + s], first[s]);
          mma_16x8x16<F16>(scores[2 * group + 1], a[v * kSteps + s], second[s]);
        }
      }
    }
  };
  if constexpr (kSteps * kVectors > 8 && kSteps > 1) {
    // All at once would take more registers than there are.
    HEADRACE_NO_UNROLL
    for (int pair = 0; pair < kVectors; pair += 2) score_pair(pair);
  } else {
    HEADRACE_UNROLL
    for (int pair = 0; pair < kVectors; pair += 2) score_pair(pair);
  }
}

/// sums += weights . values, of 32 keys and kVectors vectors from number `vector` on, of which
/// there are `vectors`. `row`: the lane's. `first`, `second`: weights of 16 keys each.
template <class Code, int kVectors, class Places>
__device__ void add_code_values(const char* values, int row, int vector, int vectors,
                                const uint32_t (&first)[4], const uint32_t (&second)[4],
                                float (*sums)[4]) {
  constexpr int kChunks = CodeVector<Code>::kChunks;
  HEADRACE_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    if (v >= vectors) continue;
    uint32_t words[4], pairs[4][kChunks];
    load_transposed(words, values + Places::at(row, vector + v));
    HEADRACE_UNROLL
    for (int i = 0; i < 4; ++i) value_pairs<Code>(words[i], pairs[i]);
    HEADRACE_UNROLL
    for (int c = 0; c < kChunks; ++c) {
      const uint32_t b[2] = {pairs[0][c], pairs[1][c]}, next[2] = {pairs[2][c], pairs[3][c]};
      mma_16x8x16<F16>(sums[v * kChunks + c], first, b);
      mma_16x8x16<F16>(sums[v * kChunks + c], second, next);
    }
  }
}

/// Behind a split: what a row's sums are with the values' lows. `zeros`: the lane's two.
template <class Code, int kChunks>
__device__ void finish_code_sums(const float (&zeros)[2], float (&sums)[kChunks][4]) {
  float zero[2] = {};
  if constexpr (CodeTraits<Code>::kHasLow || CodeTraits<Code>::kZero != 0.0f) {
    HEADRACE_UNROLL
    for (int i = 0; i < 2; ++i) {
      zero[i] = zeros[i] + __shfl_xor_sync(kAllLanes, zeros[i], 1);
      zero[i] += __shfl_xor_sync(kAllLanes, zero[i], 2);
    }
  }
  HEADRACE_UNROLL
  for (int n = 0; n < kChunks; ++n) {
    const float unit =
        code_unit<Code>() * (CodeTraits<Code>::kPerByte == 2 && n % 2 == 1 ? 0.0625f : 1.0f);
    HEADRACE_UNROLL
    for (int c = 0; c < 4; ++c) sums[n][c] = fmaf(sums[n][c], unit, zero[c / 2]);
  }
}

/// Number `j` of a lane's neighbouring columns in vector `v`: where it is among the sums of a row.
template <class Code>
__device__ constexpr int sum_chunk(int v, int j) {
  return v * CodeVector<Code>::kChunks + j % CodeVector<Code>::kChunks;
}
template <class Code>
__device__ constexpr int sum_place(int j) {
  return j / CodeVector<Code>::kChunks;
}

}  // namespace headrace::cuda
