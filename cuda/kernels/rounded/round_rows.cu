#include "cuda/kernels/rounded/round_rows.h"

#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/rounded/row_codes.cuh"

namespace headrace::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kLaneElements = kQuantUnit / kWarp;

template <class T>
struct RoundTask {
  const T* x;
  int64_t x_stride, k, units;
  RowCodes out;
  const int32_t* used_rows;
};

/// A lane's elements of a unit, zeros behind k.
template <class T>
struct LaneRow {
  float at[kLaneElements];

  __device__ LaneRow(const T* row, int64_t unit, int64_t k) {
    const int64_t first = unit * kQuantUnit + lane_id() * kLaneElements;
    HEADRACE_UNROLL
    for (int i = 0; i < kLaneElements; ++i) {
      at[i] = first + i < k ? to_float(row[first + i]) : 0.0f;
    }
  }

  /// The largest size; infinity if a number isn't finite.
  __device__ float top() const {
    float out = 0.0f;
    HEADRACE_UNROLL
    for (int i = 0; i < kLaneElements; ++i) out = greatest(out, finite_size(at[i]));
    return out;
  }
};

template <class T>
__device__ void put_codes(const RoundTask<T>& task, const LaneRow<T>& own, const RowScale& scale,
                          uint8_t* to) {
  uint32_t codes = 0;
  HEADRACE_UNROLL
  for (int i = 0; i < kLaneElements; ++i) codes |= task.out.code_of(own.at[i], scale) << 8 * i;
  reinterpret_cast<uint32_t*>(to)[lane_id()] = codes;
}

/// A block has a row, a warp its units in turns.
template <class T>
__global__ void round_rows_kernel(RoundTask<T> task) {
  __shared__ float scratch[kWarps];
  start_next();
  wait_for_previous();
  const int64_t row = blockIdx.x;
  if (task.used_rows != nullptr && row >= *task.used_rows) return;
  const T* x = task.x + row * task.x_stride;
  uint8_t* codes = task.out.codes + row * task.out.stride;
  const float most = task.out.most();
  if (task.out.by_unit) {
    for (int64_t unit = warp_id(); unit < task.units; unit += kWarps) {
      const LaneRow<T> own(x, unit, task.k);
      const RowScale scale(warp_reduce(own.top(), Largest{}), most);
      put_codes(task, own, scale, codes + unit * kQuantUnit);
      if (lane_id() == 0) task.out.scales[unit * task.out.scale_stride + row] = scale.scale;
    }
    return;
  }
  float top = 0.0f;
  for (int64_t unit = warp_id(); unit < task.units; unit += kWarps) {
    top = greatest(top, LaneRow<T>(x, unit, task.k).top());
  }
  const RowScale scale(block_reduce(top, Largest{}, scratch), most);
  for (int64_t unit = warp_id(); unit < task.units; unit += kWarps) {
    put_codes(task, LaneRow<T>(x, unit, task.k), scale, codes + unit * kQuantUnit);
  }
  if (threadIdx.x == 0) task.out.scales[row] = scale.scale;
}

}  // namespace

void round_rows(const RoundRowsArgs& args, Stream stream) {
  HEADRACE_CHECK(rounds_rows(args.layout.format) && args.x.cols == args.layout.matrix.k,
                 args.x.cols);
  if (args.x.rows == 0) return;
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    const RoundTask<T> task{.x = static_cast<const T*>(args.x.data),
                            .x_stride = args.x.stride,
                            .k = args.x.cols,
                            .units = args.layout.units(),
                            .out = {args.layout, args.x.rows, args.out},
                            .used_rows = args.used_rows};
    launch("round_rows", round_rows_kernel<T>,
           {.grid = {grid_size(args.x.rows)}, .threads = kThreads, .overlaps = true}, stream, task);
  });
}

}  // namespace headrace::cuda
