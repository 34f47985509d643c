#include "cuda/kernels/states/delta_rule.h"

#include "cuda/kernels/states/recurrence.cuh"

namespace headrace::cuda {
namespace {

template <class T>
struct DeltaRule {
  static constexpr bool kReads = true;
  RecurrenceShape shape;
  const T* qkv;
  T* out;
  const float* all_gates;  ///< decays, then betas
  int64_t gates_stride, key_columns;
  int32_t shared;  ///< value heads of a key head

  __device__ HeadRows<T> rows(int32_t head) const {
    const T* const queries = qkv + int64_t{head / shared} * shape.key_dim;
    const int64_t value = int64_t{head} * shape.value_dim;
    return {queries + key_columns, queries, qkv + 2 * key_columns + value, out + value};
  }
  __device__ RowGates gates(int64_t row, int32_t head) const {
    const float* const from = all_gates + row * gates_stride + head;
    return {from[0], from[shape.heads]};
  }
  __device__ float update(const RowGates& gates, float value, float read) const {
    return gates.factor * fmaf(-gates.decay, read, value);
  }
  __device__ float result(int32_t, float sum, float) const { return sum; }
};

}  // namespace

void delta_rule(const DeltaRuleArgs& args, Stream stream) {
  const DeltaSpec& spec = args.spec;
  HEADRACE_CHECK(args.qkv.cols == spec.qkv_columns() && args.gates.cols == 2 * spec.value_heads &&
                     args.out.cols == spec.value_columns(),
                 args.qkv.cols, " and ", args.gates.cols, " to ", args.out.cols);
  with_element(args.dtype, [&](auto element) {
    using T = decltype(element);
    const DeltaRule<T> rule{
        .shape = {spec.value_heads, spec.key_dim, spec.value_dim, args.qkv.stride, args.out.stride},
        .qkv = static_cast<const T*>(args.qkv.data),
        .out = static_cast<T*>(args.out.data),
        .all_gates = static_cast<const float*>(args.gates.data),
        .gates_stride = args.gates.stride,
        .key_columns = spec.key_columns(),
        .shared = spec.value_heads / spec.key_heads};
    run_recurrence("delta_rule", rule, args.step, args.states, stream);
  });
}

}  // namespace headrace::cuda
