#pragma once

// Attention within segments, the kernels of one ISA. Only types from C headers here, see
// kernels_linear.h.
//
// A lane is a query: scores, probabilities and sums of a block of queries lie query by query, so
// that keys and values are read as they come, one number for all lanes, and no sum, no maximum
// runs across lanes. What makes a row's bits independent of its company, of how queries are cut
// into tasks and of the number of threads:
//
// * a score is one lane that visits the head's dimensions in ascending order, by pairs where
//   products are of bf16;
// * keys are taken in tiles of kSegmentTileKeys from the segment's start, with an online softmax
//   from tile to tile; probabilities are relative to the maximum of the row's first tile, or of a
//   later one that exceeds it by a factor of more than 2^8;
// * an output element and the sum of the probabilities are one lane each that add in ascending
//   order of the keys, by pairs for outputs where products are of bf16.

#include <stdint.h>

namespace headrace {

constexpr int kSegmentTileKeys = 64;   ///< keys per step of the online softmax
constexpr int kSegmentTaskRows = 256;  ///< most queries of one task
constexpr int kSegmentHeadDim = 128;   ///< the largest

/// A tile of one head's keys and values, to be laid out as the products want them.
struct SegmentTile {
  const float* keys;
  int64_t key_stride;  ///< from one row to the next
  const float* values;
  int64_t value_stride;
  int32_t num_keys;  ///< 1 to kSegmentTileKeys
  int32_t head_dim;  ///< a multiple of 8
  float* out;        ///< SegmentProducts::tile_floats(head_dim), 64-byte aligned
};

/// One head of neighbouring queries of a segment, over all its keys.
struct SegmentTask {
  const float* queries;
  int64_t query_stride;
  int32_t num_queries;  ///< 1 to kSegmentTaskRows
  const float* keys;    ///< the segment's first one
  int64_t key_stride;
  const float* values;
  int64_t value_stride;
  int32_t num_keys;  ///< of the segment, >= 1
  int32_t head_dim;
  float scale;
  const float* tiles;  ///< of the segment, packed; null: the task packs them itself
  float* scratch;      ///< segment_scratch_floats(), 64-byte aligned
  float* out;          ///< may be the queries
  int64_t out_stride;
};

// Static, so that no ISA's copy is seen by the linker.

/// Words (of 4 bytes) from a row of a tile to the next one: an odd number of cache lines, so that
/// rows fall into different sets of the first-level cache.
static inline int32_t segment_row_floats(int32_t words) { return ((words + 15) / 16 | 1) * 16; }
/// Queries and sums of a task with a reference and a total each, a tile, scores.
static inline int64_t segment_scratch_floats() {
  return 2 * kSegmentTaskRows * (kSegmentHeadDim + 1) +
         kSegmentTileKeys * (2 * segment_row_floats(kSegmentHeadDim) + 32);
}

/// Kernels for one arithmetic of the products.
struct SegmentProducts {
  /// Of a packed tile, a multiple of 16.
  int64_t (*tile_floats)(int32_t head_dim);
  void (*pack)(const SegmentTile& tile);
  void (*attend)(const SegmentTask& task);
};

struct SegmentKernels {
  SegmentProducts f32;
  SegmentProducts bf16;  ///< float32 where there is no bf16 dot product
};

}  // namespace headrace
