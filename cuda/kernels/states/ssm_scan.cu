#include "cuda/kernels/states/ssm_scan.h"

#include "cuda/device/gates.cuh"
#include "cuda/kernels/states/recurrence.cuh"

namespace headrace::cuda {
namespace {

/// B is the key, C the query, x the value; a column has the state_dim numbers of one of x.
template <class T>
struct Scan {
  static constexpr bool kReads = false;
  RecurrenceShape shape;
  const T *xbc, *dt;
  T* out;
  const float *a_log, *dt_bias, *skip;
  int64_t dt_stride, x_columns, group_columns;
  int32_t shared;  ///< heads of a group
  float dt_min, dt_max;

  __device__ HeadRows<T> rows(int32_t head) const {
    const T* const b = xbc + x_columns + int64_t{head / shared} * shape.key_dim;
    const int64_t value = int64_t{head} * shape.value_dim;
    return {b, b + group_columns, xbc + value, out + value};
  }
  /// Comparisons keep NaN.
  __device__ RowGates gates(int64_t row, int32_t head) const {
    float t = softplus(to_float(dt[row * dt_stride + head]) + dt_bias[head]);
    t = t < dt_min ? dt_min : t;
    t = t > dt_max ? dt_max : t;
    return {expf(-expf(a_log[head]) * t), t};
  }
  __device__ float update(const RowGates& gates, float value, float) const {
    return gates.factor * value;
  }
  __device__ float result(int32_t head, float sum, float value) const {
    return fmaf(skip[head], value, sum);
  }
};

}  // namespace

void ssm_scan(const SsmScanArgs& args, Stream stream) {
  const ScanSpec& spec = args.spec;
  HEADRACE_CHECK(args.xbc.cols == spec.xbc_columns() && args.dt.cols == spec.heads &&
                     args.out.cols == spec.x_columns(),
                 args.xbc.cols, " and ", args.dt.cols, " to ", args.out.cols);
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    const Scan<T> rule{
        .shape = {spec.heads, spec.state_dim, spec.head_dim, args.xbc.stride, args.out.stride},
        .xbc = static_cast<const T*>(args.xbc.data),
        .dt = static_cast<const T*>(args.dt.data),
        .out = static_cast<T*>(args.out.data),
        .a_log = args.a_log,
        .dt_bias = args.dt_bias,
        .skip = args.skip,
        .dt_stride = args.dt.stride,
        .x_columns = spec.x_columns(),
        .group_columns = int64_t{spec.groups} * spec.state_dim,
        .shared = spec.heads / spec.groups,
        .dt_min = spec.dt_min,
        .dt_max = spec.dt_max};
    run_recurrence("ssm_scan", rule, args.step, args.states, stream);
  });
}

}  // namespace headrace::cuda
