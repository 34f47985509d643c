#pragma once

// What the attention kernels share: who works on what, where keys are, what becomes of a result.

#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/attention/attention_fold.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/with_codes.cuh"

namespace headrace::cuda {

template <class T, class Cache>
struct AttentionTask {
  const T* q;
  int64_t q_stride;
  T* out;
  int64_t out_stride;
  const Cache* keys;
  const Cache* values;
  const uint32_t* key_scales;  // of codes; else null
  const uint32_t* value_scales;
  KvLayout layout;
  AttentionShape shape;
  float scale;         // of scores in units of log2
  SoftCap cap;         // of them in these units
  const float* sinks;  // [nq] or null
  const int32_t* block_tables;
  int64_t table_stride;
  const AttentionItem* items;
  const int32_t* count;
  float* partials;
  int32_t* counters;
};

/// A cap of scores in units of log2.
inline SoftCap soft_cap_of(float cap) {
  if (cap <= 0.0f) return {};
  return {cap * kLog2E, 1.0f / (cap * kLog2E)};
}

template <class T, class Cache>
AttentionTask<T, Cache> attention_task(const AttentionArgs& args,
                                       const WorkList<AttentionItem>& list) {
  return {static_cast<const T*>(args.q.data),
          args.q.stride,
          static_cast<T*>(args.out.data),
          args.out.stride,
          static_cast<const Cache*>(args.keys),
          static_cast<const Cache*>(args.values),
          static_cast<const uint32_t*>(args.key_scales),
          static_cast<const uint32_t*>(args.value_scales),
          args.layout,
          args.shape,
          args.scale * kLog2E,
          soft_cap_of(args.soft_cap),
          args.sinks,
          args.block_tables,
          args.table_stride,
          list.items,
          list.count,
          args.partials,
          args.counters};
}

/// Floats of one row of a partial result: the sums, the maximum, three unused, the lanes' totals.
__host__ __device__ constexpr int64_t partial_stride(int32_t head_dim) { return head_dim + 8; }

/// Row 0 of what a KV head and part of a partial result is.
__host__ __device__ inline int64_t partial_offset(const AttentionShape& shape, int32_t partial,
                                                  int32_t kv_head, int32_t part) {
  const int64_t unit = (int64_t{partial} * shape.num_kv_heads + kv_head) * shape.parts() + part;
  return unit * kShortRows * partial_stride(shape.head_dim);
}

/// What weights are made of the score of. A capped one is in units of log2 already.
template <class T, class Cache>
__device__ float weight_scale(const AttentionTask<T, Cache>& task) {
  return task.cap.is_on() ? 1.0f : task.scale;
}

/// An item of the list for one KV head and one part of its query heads. Row `m` of the piece is
/// token m / part_heads, head m % part_heads.
struct AttentionPiece {
  AttentionItem item;
  int32_t kv_head, part;

  __device__ int32_t token(const AttentionShape& shape, int32_t m) const {
    return m / shape.part_heads();
  }
  __device__ int32_t head(const AttentionShape& shape, int32_t m) const {
    return kv_head * shape.group() + part * shape.part_heads() + m % shape.part_heads();
  }
  __device__ bool exists(const AttentionShape& shape, int32_t m) const {
    return token(shape, m) < item.num_rows &&
           part * shape.part_heads() + m % shape.part_heads() < shape.group();
  }
};

/// What row m's sums are multiplied by at last, when all splits are in: 1 / total, with the head's
/// sink in the total. `max`: what the weights were taken against.
template <class T, class Cache>
__device__ float output_factor(const AttentionTask<T, Cache>& task, const AttentionPiece& piece,
                               int32_t m, float total, float max) {
  if (task.sinks == nullptr) return 1.0f / total;
  const float sink = task.sinks[piece.head(task.shape, m)] * kLog2E;
  const float base = base_of(fmaxf(max, sink)), keep = factor_of(max, base);
  return keep / fmaf(total, keep, factor_of(sink, base));
}

/// Calls f(piece) for the block's share of the list: piece_of_round() and piece_at().
template <class T, class Cache, class F>
__device__ void for_each_piece(const AttentionTask<T, Cache>& task, F&& f) {
  const auto parts = static_cast<uint32_t>(task.shape.parts());
  const uint32_t units = static_cast<uint32_t>(task.shape.num_kv_heads) * parts;
  const uint32_t count = static_cast<uint32_t>(*task.count) * units;
  HEADRACE_NO_UNROLL
  for (uint32_t round = 0; round * gridDim.x < count; ++round) {
    const uint32_t p = piece_of_round(round, blockIdx.x, gridDim.x);
    if (p >= count) continue;
    const PieceAt piece = piece_at(task.items, p, units);
    f(AttentionPiece{task.items[piece.item], static_cast<int32_t>(piece.unit / parts),
                     static_cast<int32_t>(piece.unit % parts)});
  }
}

struct KeyRange {
  int32_t first, end;
};

/// Keys that the row at `position` of an item sees.
__device__ inline KeyRange row_keys(const AttentionItem& item, const AttentionShape& shape,
                                    int32_t position) {
  return {first_key(position, shape.window), end_key(item, position, shape)};
}

/// Keys that some row of an item sees.
__device__ inline KeyRange keys_of(const AttentionItem& item, const AttentionShape& shape) {
  return {row_keys(item, shape, item.position).first,
          row_keys(item, shape, item.position + item.num_rows - 1).end};
}

/// Blocks of a grid that walks a work list.
inline unsigned work_grid(int64_t items, const AttentionShape& shape, int32_t multiprocessors,
                          int per_multiprocessor) {
  return grid_size(least(items * shape.num_kv_heads * shape.parts(),
                         int64_t{multiprocessors} * per_multiprocessor));
}

/// Calls f(Int<head_dim>{}) for those that tensor cores take.
template <class F>
void with_mma_head_dim(int32_t head_dim, F&& f) {
  switch (head_dim) {
    case 64:
      return f(Int<64>{});
    case 80:
      return f(Int<80>{});
    case 96:
      return f(Int<96>{});
    case 128:
      return f(Int<128>{});
    case 256:
      return f(Int<256>{});
    default:
      HEADRACE_CHECK(false, head_dim);
  }
}

inline AttentionKind kind_of(const AttentionArgs& args) {
  return {args.dtype, args.cache_dtype, args.shape.head_dim, args.layout.block_size,
          args.scale, args.soft_cap,    args.latent};
}

/// Tensor cores: 16-bit elements, a cache of them or of codes, head_dim 64, 80, 96, 128 or 256 or a
/// latent row, rows aligned to 16 bytes, blocks of a multiple of 8 keys, a positive scale.
bool can_use_mma(const AttentionArgs& args);
void attention_mma_short(const AttentionArgs& args, Stream stream);
void attention_mma_long(const AttentionArgs& args, Stream stream);
/// Of caches of codes, CodeI8, CodeF8 or CodeU4 (kernels/attention_codes).
template <class Code>
void attention_codes_short(const AttentionArgs& args, Stream stream);
template <class Code>
void attention_codes_long(const AttentionArgs& args, Stream stream);

/// Long pieces. REQUIRES: wgmma_can_attend().
void attention_wgmma(const AttentionArgs& args, Stream stream);

/// Whether tensor cores have a kernel for latent rows of this size.
bool latent_can_attend(int32_t row_dim);
/// All pieces over latent rows: short and long ones have kShortRows rows.
void attention_latent(const AttentionArgs& args, Stream stream);

/// Any dtypes, any head_dim up to 640 that 4 divides; float32 arithmetic, in an order of its own.
void attention_generic(const AttentionArgs& args, Stream stream);

}  // namespace headrace::cuda
