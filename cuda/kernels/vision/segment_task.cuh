#pragma once

#include "cuda/kernels/attention/attention_kernels.cuh"
#include "cuda/kernels/vision/segment_kernels.h"

namespace headrace::cuda {

template <class T>
struct SegmentTask {
  const T* q;
  const T* k;
  const T* v;
  T* out;
  int64_t q_stride, k_stride, v_stride, out_stride;
  int64_t first, rows;
  int32_t head_dim;
  float scale;  // of scores in units of log2
  const SegmentItem* items;
};

template <class T>
SegmentTask<T> segment_task(const SegmentAttentionArgs& args) {
  return {static_cast<const T*>(args.q.data),
          static_cast<const T*>(args.k.data),
          static_cast<const T*>(args.v.data),
          static_cast<T*>(args.out.data),
          args.q.stride,
          args.k.stride,
          args.v.stride,
          args.out.stride,
          args.first,
          args.q.rows,
          args.head_dim,
          args.scale * kLog2E,
          args.items};
}

/// Rows of an item that are computed: [first, first + count) of q.
struct ItemRows {
  int64_t first;
  int32_t count;
};

template <class T>
__device__ ItemRows rows_of(const SegmentTask<T>& task, const SegmentItem& item) {
  const int64_t first = greatest<int64_t>(item.row, task.first);
  const int64_t end = least<int64_t>(item.end_row, task.first + task.rows);
  return {first - task.first, static_cast<int32_t>(greatest<int64_t>(end - first, 0))};
}

}  // namespace headrace::cuda
