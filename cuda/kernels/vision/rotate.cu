#include "cuda/kernels/vision/rotate.h"

#include "cuda/device/rope.cuh"
#include "cuda/kernels/launch.cuh"

namespace headrace::cuda {
namespace {

struct RotateTask {
  int64_t x_stride, table_stride;
  int32_t heads, pairs;
};

/// One row a block. kSize pairs a step: 16 bytes of each half, or one pair.
template <class T, int kSize>
__global__ void __launch_bounds__(128) rotate_kernel(T* x, const float* table, RotateTask task) {
  start_next();
  wait_for_previous();
  T* row = x + blockIdx.x * task.x_stride;
  const float* cosines = table + blockIdx.x * task.table_stride;
  const float* sines = cosines + task.pairs;
  const int32_t steps = task.pairs / kSize;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < task.heads * steps;
       i += static_cast<int32_t>(blockDim.x)) {
    const int32_t head = i / steps, pair = i % steps * kSize;
    T* low = row + int64_t{head} * 2 * task.pairs + pair;
    T* high = low + task.pairs;
    T a[kSize], b[kSize];
    if constexpr (kSize > 1) {
      const Vector<T> first = load_vector(low), second = load_vector(high);
      for (int j = 0; j < kSize; ++j) a[j] = first.at[j], b[j] = second.at[j];
    } else {
      a[0] = *low, b[0] = *high;
    }
    Vector<T> turned[2];
    HEADRACE_UNROLL
    for (int j = 0; j < kSize; ++j) {
      const RotatedPair out =
          rope_rotate(to_float(a[j]), to_float(b[j]), {cosines[pair + j], sines[pair + j]});
      turned[0].at[j] = from_float<T>(out.first);
      turned[1].at[j] = from_float<T>(out.second);
    }
    if constexpr (kSize > 1) {
      store_vector(low, turned[0]);
      store_vector(high, turned[1]);
    } else {
      *low = turned[0].at[0], *high = turned[1].at[0];
    }
  }
}

template <class T, int kSize>
void run(const RotateArgs& args, Stream stream) {
  launch("rotate", rotate_kernel<T, kSize>,
         {.grid = {grid_size(args.x.rows)}, .threads = 128, .overlaps = true}, stream,
         static_cast<T*>(args.x.data), args.table,
         RotateTask{args.x.stride, args.table_stride, args.heads, args.head_dim / 2});
}

}  // namespace

void rotate(const RotateArgs& args, Stream stream) {
  HEADRACE_CHECK(args.heads >= 1 && args.head_dim >= 2 && args.head_dim % 2 == 0 &&
                     args.x.cols == int64_t{args.heads} * args.head_dim,
                 args.heads, " of ", args.head_dim);
  if (args.x.rows == 0) return;
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    // Both halves of every head begin at multiples of 16 bytes.
    if (is_vectorizable(static_cast<const T*>(args.x.data), args.x.stride, args.head_dim / 2)) {
      run<T, Vector<T>::kSize>(args, stream);
    } else {
      run<T, 1>(args, stream);
    }
  });
}

}  // namespace headrace::cuda
