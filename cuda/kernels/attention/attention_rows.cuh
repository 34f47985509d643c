#pragma once

// Rows of keys and values on their way into shared memory by the threads' own copies, for kernels
// that run on every tensor core (mma.sync).

#include "cuda/device/cp_async.cuh"
#include "cuda/device/last_block.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/kernels/attention/attention_kernels.cuh"

namespace headrace::cuda {

/// lane_id(), but new to the compiler, which would keep all that follows from it, and is the same
/// from tile to tile, in registers.
__device__ inline int fresh_lane_id() {
  int lane = lane_id();
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(lane));
  __builtin_assume(lane >= 0 && lane < kWarp);
#endif
  return lane;
}

/// Where the keys of a split are, found once for all their copies: lane l knows keys 8l to 8l + 7,
/// which lie side by side in a block of the cache; where the piece sees none of them, it names
/// others.
struct SplitRows {
  KeyRange seen;       ///< by some row of the piece; from the split's first key on
  uint32_t row;        ///< of the layer's rows, where key 8 * lane is
  uint32_t scale = 0;  ///< likewise, of a cache of codes
};

inline constexpr int kResolvedKeys = 8;
static_assert(kWarp * kResolvedKeys == kSplitKeys);

/// By a whole warp. kAhead: ahead of wait_for_previous().
template <bool kAhead = false, class T, class Cache>
__device__ SplitRows split_rows(const AttentionTask<T, Cache>& task, const AttentionPiece& piece,
                                int32_t split) {
  const int32_t base = split * kSplitKeys, size = task.layout.block_size;
  const KeyRange seen = keys_of(piece.item, task.shape);
  SplitRows rows{{greatest(seen.first - base, 0), least(seen.end - base, kSplitKeys)}, 0};
  const int32_t key = lane_id() * kResolvedKeys;
  if (key + kResolvedKeys > rows.seen.first && key < rows.seen.end) {
    const int32_t* table = task.block_tables + piece.item.sequence * task.table_stride;
    const int32_t block = (base + key) / size;
    const int32_t number = kAhead ? load_other(table + block) : table[block];
    const auto place = static_cast<uint32_t>(piece.kv_head * size + (base + key - block * size));
    const auto from = static_cast<uint32_t>(number);
    rows.row = from * static_cast<uint32_t>(task.layout.block_stride) + place;
    if constexpr (CodeTraits<Cache>::kCodes) {
      rows.scale = from * static_cast<uint32_t>(task.layout.scale_stride) + place;
    }
  }
  return rows;
}

/// Rows of `kColumns` vectors of 16 bytes in shared memory, so placed that 8 rows' vectors of one
/// column, from a multiple of 8 on, meet every bank once.
template <int kColumns>
struct RowPlaces {
  static constexpr bool kSwizzles = (kColumns & (kColumns - 1)) == 0 || kColumns % 8 == 0;
  static constexpr int kStride = kSwizzles ? kColumns : kColumns | 1;
  static constexpr int kTurns = kColumns < 8 ? kColumns : 8;
  static constexpr int kRowsPerTurn = 8 / kTurns;

  /// What a row's columns are turned by.
  __device__ static constexpr int turn(int row) {
    return kSwizzles ? row / kRowsPerTurn % kTurns : 0;
  }
  __device__ static int at(int row, int column) {
    return (row * kStride + (column ^ turn(row))) * 16;
  }
};

/// Starts copies of kRows rows from the split's key `key` on, columns [column, column + kColumns)
/// of kAll, by a whole warp; zeros where the piece sees no key.
template <int kRows, int kColumns, int kAll, class T>
__device__ void copy_rows(const T* cache, const SplitRows& rows, int key, int column, char* to) {
  constexpr int kVectors = kRows * kColumns;
  static_assert(kRows % kResolvedKeys == 0);
  const auto* const bytes = reinterpret_cast<const char*>(cache);
  if (key >= rows.seen.end || key + kRows <= rows.seen.first) return;
  const int lane = fresh_lane_id();
  const auto seen = [&](int row) {
    const auto from_first = static_cast<uint32_t>(key + row - rows.seen.first);
    return from_first < static_cast<uint32_t>(rows.seen.end - rows.seen.first);
  };
  using Places = RowPlaces<kColumns>;
  if constexpr (kWarp % kColumns == 0 && kAll % kColumns == 0) {
    // Steps are of whole rows: what differs between them is known, but for the keys' blocks.
    constexpr int kStep = kWarp / kColumns, kSteps = greatest(kResolvedKeys / kStep, 1);
    const int first = lane / kColumns, own = lane % kColumns, place = Places::at(first, own);
    HEADRACE_UNROLL
    for (int i = 0; i < kRows / (kStep * kSteps); ++i) {
      const int row = i * kStep * kSteps, at = key + row + first;
      const uint32_t from = __shfl_sync(kAllLanes, rows.row, at / kResolvedKeys) +
                            static_cast<uint32_t>(at % kResolvedKeys);
      const char* start = bytes + int64_t{from} * (kAll * 16) + (column + own) * 16;
      HEADRACE_UNROLL
      for (int j = 0; j < kSteps; ++j) {
        const int next = row + j * kStep;
        copy_async_16(to + (place ^ Places::turn(next) * 16) + next * Places::kStride * 16,
                      start + j * kStep * kAll * 16, seen(next + first) ? 16 : 0);
      }
    }
  } else {
    HEADRACE_UNROLL
    for (int i = 0; i < divide_up(kVectors, kWarp); ++i) {
      const int vector = i * kWarp + lane;
      const int row = vector / kColumns, own = vector % kColumns, at = key + row;
      const uint32_t from = __shfl_sync(kAllLanes, rows.row, at / kResolvedKeys) +
                            static_cast<uint32_t>(at % kResolvedKeys);
      if (kAll % kColumns != 0 && column + own >= kAll) continue;
      if (kVectors % kWarp != 0 && vector >= kVectors) continue;
      copy_async_16(to + Places::at(row, own),
                    bytes + int64_t{from} * (kAll * 16) + (column + own) * 16, seen(row) ? 16 : 0);
    }
  }
}

/// Two rows of a lane: g and g + 8 of its warp's 16.
struct LaneRows {
  int32_t m[2];
  bool exists[2];
  KeyRange keys[2];
};

/// `first`: of the warp's rows in the piece.
__device__ inline LaneRows lane_rows(const AttentionShape& shape, const AttentionPiece& piece,
                                     int first) {
  LaneRows rows;
  for (int i = 0; i < 2; ++i) {
    rows.m[i] = first + lane_place().g + 8 * i;
    rows.exists[i] = piece.exists(shape, rows.m[i]);
    const int32_t position = piece.item.position + piece.token(shape, rows.m[i]);
    rows.keys[i] = rows.exists[i] ? row_keys(piece.item, shape, position) : KeyRange{0, 0};
  }
  return rows;
}

/// Step `step` of the rows' queries as a product's left operand.
template <int kHeadDim, class T, class Cache>
__device__ void load_query(const AttentionTask<T, Cache>& task, const AttentionPiece& piece,
                           const LaneRows& rows, int step, uint32_t (&to)[4]) {
  HEADRACE_UNROLL
  for (int i = 0; i < 2; ++i) {
    const T* from = task.q + (piece.item.row + piece.token(task.shape, rows.m[i])) * task.q_stride +
                    int64_t{piece.head(task.shape, rows.m[i])} * kHeadDim + 16 * step +
                    2 * lane_place().q;
    to[i] = rows.exists[i] ? *reinterpret_cast<const uint32_t*>(from) : 0;
    to[i + 2] = rows.exists[i] ? *reinterpret_cast<const uint32_t*>(from + 8) : 0;
  }
}

/// A warp's scores or weights of 8 * kGroups keys: [8 keys][row i % 4 / 2, key 2q + i % 2].
template <int kGroups>
using Scores = float[kGroups][4];
using TileScores = Scores<kTileKeys / 8>;

/// Caps scores, which are in units of log2 then; no cap: leaves them alone.
template <int kGroups>
__device__ void cap_scores(const SoftCap& cap, float scale, Scores<kGroups>& scores) {
  if (!cap.is_on()) return;
  HEADRACE_UNROLL
  for (int j = 0; j < kGroups; ++j) {
    HEADRACE_UNROLL
    for (int c = 0; c < 4; ++c) scores[j][c] = cap_score(scores[j][c] * scale, cap);
  }
}

/// `keys`: that the lane's rows see. `base`: position of the first key.
template <int kGroups>
__device__ void mask_scores(const KeyRange (&keys)[2], int32_t base, Scores<kGroups>& scores) {
  HEADRACE_UNROLL
  for (int j = 0; j < kGroups; ++j) {
    HEADRACE_UNROLL
    for (int c = 0; c < 4; ++c) {
      const int32_t position = base + 8 * j + 2 * lane_place().q + c % 2;
      const KeyRange& seen = keys[c / 2];
      if (position < seen.first || position >= seen.end) scores[j][c] = kNoScore;
    }
  }
}

/// The largest of row i's.
template <int kGroups>
__device__ float largest_score(const Scores<kGroups>& scores, int i) {
  float max = scores[0][2 * i];
  HEADRACE_UNROLL
  for (int j = 1; j < 2 * kGroups; ++j) max = fmaxf(max, scores[j / 2][2 * i + j % 2]);
  max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 1));
  return fmaxf(max, __shfl_xor_sync(kAllLanes, max, 2));
}

/// Row i's scores to weights; the lane's total of them.
template <int kGroups>
__device__ float soften(Scores<kGroups>& scores, int i, float scale, float base) {
  float totals[2] = {};
  HEADRACE_UNROLL
  for (int j = 0; j < 2 * kGroups; ++j) {
    float& score = scores[j / 2][2 * i + j % 2];
    score = weight_of(score, scale, base);
    totals[j % 2] += score;
  }
  return totals[0] + totals[1];
}

/// Products of 16 keys: the weights of scores [2 * step] and [2 * step + 1].
template <class T, int kGroups>
__device__ void pack_weights(const Scores<kGroups>& weights, int step, uint32_t (&to)[4]) {
  HEADRACE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float* from = &weights[2 * step + i / 2][i % 2 * 2];
    to[i] = pack_pair<T>(from[0], from[1]);
  }
}

}  // namespace headrace::cuda
