#pragma once

// Kernels of one ISA that read and write the KV cache. Only types from C headers here, see
// kernels_linear.h.
//
// Attention is softmax(scale * q . K^T) . V. How its products are worked out depends on the cache:
//
// * float32 and float16, and bfloat16 where the ISA has no bf16 dot product: keys and values are
//   widened; queries, probabilities and sums are float32;
// * bfloat16 with dot products: queries and probabilities are rounded to bf16; the sums are float32
//   over pairs (of dimensions for scores, of keys for values);
// * int8 and uint4: queries are rounded to int16 with a scale per head, probabilities (times the
//   scale of the key's value) to int16 with a scale per tile; their sums are exact integers.
//
// What makes a row's bits independent of its company, of chunking, of the block size and of the
// number of threads:
//
// * a score is one lane that visits the head's dimensions in ascending order;
// * keys are taken in tiles of kTileTokens, tile i being positions [64 i, 64 (i + 1)), with an
//   online softmax from tile to tile; a row sees only its own first and last key;
// * probabilities are relative to the maximum of the row's first tile in the split, or of a later
//   one that exceeds it by a factor of more than 2^8;
// * a split's probabilities are summed vector by vector in order, then by the tree of reduce_add;
//   unseen keys count as 0;
// * an output element is one lane that adds p * v in ascending order of the keys the row sees; of a
//   pair of which it sees one key it adds that one;
// * every kSplitTokens positions the online softmax starts afresh, and the splits' results are
//   merged in index order. Who computes a split, and when, changes nothing;
// * a sink is added to the sum of all splits, at last.

#include <stdint.h>

namespace headrace {

constexpr int kKvLanes = 16;        ///< keys of this many tokens lie side by side
constexpr int kTileTokens = 64;     ///< keys per step of the online softmax
constexpr int kSplitTokens = 512;   ///< keys per independently computed partial result
constexpr int kMaxTaskRows = 32;    ///< query rows (positions x heads) of one attention task
constexpr int kMaxTaskHeads = 8;    ///< KV heads of one attention task
constexpr int kMaxJoinedGroup = 8;  ///< query heads of each of them, if there are several
constexpr int kMaxHeadDim = 512;
constexpr int kMaxLatent = 640;  ///< of a latent row
// A score of int8: words of a query times codes, as an int32.
static_assert(kMaxHeadDim * int64_t{32767} * 127 <= INT32_MAX);

constexpr int kScaleBytes = 4;  ///< what scales a token's key, or its value, of one head

/// One layer of a KV cache; see kv_cache.h for the layout. Strides and offsets in bytes.
struct KvLayerView {
  uint8_t* data;
  int64_t block_stride;
  int64_t head_stride;         ///< from one KV head's keys in a block to the next one's
  int64_t group_stride;        ///< from the keys of 16 tokens to those of the next 16
  int64_t value_offset;        ///< from a head's keys in a block to its values
  int64_t scale_offset;        ///< from a block to its keys' scales [kv_head][block_size]
  int64_t value_scale_offset;  ///< from those to the values' scales
  int32_t block_size;
  int32_t head_dim;
  bool latent;  ///< keys are the values, too
};

/// Normalises, rotates and stores one KV head of one row, and the query heads that use it.
struct KvWriteTask {
  int32_t head_dim;
  float* queries;  ///< [num_queries][head_dim], rotated in place
  float* key;      ///< [head_dim], rotated in place
  float* value;    ///< [head_dim], normalised in place
  int32_t num_queries;
  const float* q_norm;  ///< [head_dim] or null
  const float* k_norm;
  bool norms_rotated;  ///< these norms come after the rotation
  bool v_norm;         ///< a norm without a weight
  float norm_eps;
  float q_factor;        ///< of the queries, at last
  const float* cos_sin;  ///< [rotary_dim / 2] cosines, then sines
  int32_t rotary_dim;
  bool interleaved;
  const KvLayerView* cache;
  int64_t block;
  int32_t slot;  ///< in the block
  int32_t kv_head;
};

/// Stores one row's latent vector and the rotated part of its key, and turns the query heads' part.
struct LatentTask {
  int32_t rank, rope_dim;
  int32_t row_dim;  ///< round_up(rank + rope_dim, 16)
  float* row;       ///< [rank + rope_dim], contents lost
  const float* norm;
  float norm_eps;
  const float* cos_sin;  ///< [rope_dim / 2] cosines, then sines
  bool interleaved;
  int32_t num_heads;
  const float* queries;  ///< the first head's [rope_dim]
  int64_t query_step;    ///< to the next head's
  float* out;            ///< [num_heads][row_dim]; the first `rank` of each stay as they are
  const KvLayerView* cache;
  int64_t block;
  int32_t slot;  ///< in the block
};

/// Queries of consecutive positions and of query heads that share a KV head, or of one position and
/// the query heads of several KV heads, over whole splits.
struct AttentionTask {
  const float* queries;  ///< head 0 of the first position; heads are head_dim apart
  int64_t query_stride;  ///< from one position to the next
  int32_t num_positions;
  int32_t num_heads;     ///< num_positions * num_heads <= kMaxTaskRows
  int32_t num_kv_heads;  ///< at most kMaxTaskHeads; if several, with up to kMaxJoinedGroup heads
  int32_t first_position;
  int32_t end_position;  ///< of the keys that some row sees
  bool causal;           ///< a row sees none behind its own position; else all to the end
  int32_t seen;          ///< if causal: all rows see the keys up to there, too
  int32_t window;        ///< 0: none
  float scale;
  float soft_cap;  ///< of scores; 0: none
  /// Of the heads, or null. Not a part of partial results.
  const float* sinks;
  const KvLayerView* cache;
  const int32_t* blocks;  ///< the sequence's block table
  int32_t kv_head;        ///< the first
  int32_t first_split;
  int32_t end_split;
  float* scratch;  ///< attention_scratch_floats() of the cache, 64-byte aligned
  /// null: all splits are here: the result goes to `out`. Else each split's partial result goes
  /// to partials + (split - first_split) * partial_floats(head_dim, rows).
  float* partials;
  float* out;  ///< laid out as the queries are
  int64_t out_stride;
};

// Static, so that no ISA's copy of them is seen by the linker.

/// A partial result: sums of p * v [rows][head_dim], maxima of the scores [rows], sums of p [rows].
static inline int64_t partial_floats(int32_t head_dim, int32_t rows) {
  return static_cast<int64_t>(rows) * (head_dim + 2);
}

/// Queries and two numbers each, with room for a KV head's last register block.
static inline int64_t query_floats(int32_t head_dim) {
  return static_cast<int64_t>(kMaxTaskHeads * kMaxJoinedGroup) * (head_dim + 2);
}
/// Queries, two partial results, one tile of probabilities; of latent rows a tile of values.
static inline int64_t attention_scratch_floats(int32_t head_dim, bool latent) {
  return query_floats(head_dim) + kMaxTaskRows * kTileTokens +
         2 * partial_floats(head_dim, kMaxTaskRows) +
         (latent ? static_cast<int64_t>(kTileTokens) * head_dim : 0);
}

/// Merges rows of a task's partial results in index order into its output.
struct MergeTask {
  float* partials;  ///< [num_splits]; the first one is overwritten
  int32_t num_splits;
  int32_t partial_rows;  ///< of each partial result
  int32_t first_row;     ///< the head, if not 0: then there is one position
  int32_t num_positions;
  int32_t num_heads;
  int32_t head_dim;
  const float* sinks;  ///< of these heads, or null
  float* out;
  int64_t out_stride;
};

/// Kernels for one way of storing keys and values.
struct KvFormat {
  void (*write)(const KvWriteTask& task);
  void (*write_latent)(const LatentTask& task);  ///< null: the format has no latent rows
  void (*attend)(const AttentionTask& task);
};

struct AttentionKernels {
  KvFormat f32, bf16, f16, i8, f8, u4;
  /// A task's queries alone: there is no key, value or cache.
  void (*rotate_queries)(const KvWriteTask& task);
  void (*merge)(const MergeTask& task);
};

}  // namespace headrace
