#include "cuda/device/reduce.cuh"
#include "cuda/device/select.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/route/route_kernels.h"

namespace headrace::cuda {
namespace {

constexpr int kWarps = 4;  // a row each

struct ChooseTask {
  RouterSpec spec;
  const float* logits;
  const float* correction;
  const float* factors;
  int64_t rows;
  int32_t* ids;
  int64_t ids_stride;
  float* weights;
  int64_t weights_stride;
};

/// What a warp works on in shared memory.
struct RowMemory {
  OrderCode* codes;   // [E]: of c, 0: not to be chosen
  OrderCode* groups;  // [num_groups]: of their scores
  float* scores;      // [E]
  int32_t* chosen;    // [kMaxTopExperts]

  static __host__ __device__ int64_t bytes(const RouterSpec& spec) {
    const int64_t codes = int64_t{spec.num_experts} + spec.num_groups;
    const int64_t all = codes * static_cast<int64_t>(sizeof(OrderCode)) +
                        (int64_t{spec.num_experts} + kMaxTopExperts) * 4;
    return divide_up<int64_t>(all, 16) * 16;
  }
  __device__ RowMemory(char* memory, const RouterSpec& spec)
      : codes(reinterpret_cast<OrderCode*>(memory)),
        groups(codes + spec.num_experts),
        scores(reinterpret_cast<float*>(groups + spec.num_groups)),
        chosen(reinterpret_cast<int32_t*>(scores + spec.num_experts)) {}
};

__device__ inline float lowest() { return -INFINITY; }

__device__ inline OrderCode code_of(float value, int number) {
  return order_code(value != value ? lowest() : value, number);
}

/// x[0, count) = their softmax. The largest is taken off first; NaN makes all of them NaN.
__device__ inline void softmax(float* x, int count) {
  float top = lowest();
  for (int i = lane_id(); i < count; i += kWarp) top = greatest(x[i], top);
  top = warp_reduce(top, Largest{});
  float sum = 0.0f;
  HEADRACE_NO_UNROLL
  for (int i = lane_id(); i < count; i += kWarp) {
    x[i] = expf(x[i] - top);
    sum += x[i];
  }
  sum = warp_reduce(sum, Sum{});
  HEADRACE_NO_UNROLL
  for (int i = lane_id(); i < count; i += kWarp) x[i] /= sum;
}

__device__ inline void score(const RouterSpec& spec, float* x) {
  if (spec.score == RouterSpec::Score::kSoftmax) return softmax(x, spec.num_experts);
  if (spec.score == RouterSpec::Score::kSoftmaxAfterTopK) return;
  HEADRACE_NO_UNROLL
  for (int i = lane_id(); i < spec.num_experts; i += kWarp) x[i] = 1.0f / (1.0f + expf(-x[i]));
}

/// Takes the best of codes[0, count): its number. Every lane gets it.
__device__ inline int32_t take_best(OrderCode* codes, int count) {
  OrderCode best = 0;
  for (int i = lane_id(); i < count; i += kWarp) best = greatest(best, codes[i]);
  best = warp_reduce(best, Largest{});
  const int32_t number = token_of(best);
  if (number % kWarp == lane_id()) codes[number] = 0;
  return number;
}

/// The sum of a group's two largest c, or its largest alone.
__device__ inline float score_of_group(const RouterSpec& spec, const OrderCode* codes, int size) {
  float best = value_of(codes[0]), second = lowest();
  for (int i = 1; i < size; ++i) {
    const float c = value_of(codes[i]);
    second = greatest(second, least(best, c));
    best = greatest(best, c);
  }
  return size == 1 || spec.by_best ? best : best + second;
}

/// Experts of other groups are not to be chosen.
__device__ inline void keep_best_groups(const RouterSpec& spec, const RowMemory& row) {
  const int size = spec.num_experts / spec.num_groups;
  for (int g = lane_id(); g < spec.num_groups; g += kWarp) {
    row.groups[g] = code_of(score_of_group(spec, row.codes + g * size, size), g);
  }
  __syncwarp();
  for (int i = 0; i < spec.top_groups; ++i) take_best(row.groups, spec.num_groups);
  __syncwarp();
  for (int i = lane_id(); i < spec.num_experts; i += kWarp) {
    if (row.groups[i / size] != 0) row.codes[i] = 0;
  }
  __syncwarp();
}

/// row.chosen = numbers in ascending order.
__device__ inline void choose(const RouterSpec& spec, const RowMemory& row) {
  constexpr int kNumbersEach = kMaxTopExperts / kWarp;
  int32_t own[kNumbersEach] = {};
  for (int i = 0; i < spec.top_k; ++i) {
    const int32_t number = take_best(row.codes, spec.num_experts);
    HEADRACE_UNROLL
    for (int j = 0; j < kNumbersEach; ++j) {
      if (i == j * kWarp + lane_id()) own[j] = number;
    }
    if (lane_id() == 0) row.chosen[i] = number;
  }
  __syncwarp();
  int places[kNumbersEach] = {};
  HEADRACE_UNROLL
  for (int j = 0; j < kNumbersEach; ++j) {
    if (j * kWarp + lane_id() >= spec.top_k) continue;
    for (int i = 0; i < spec.top_k; ++i) places[j] += row.chosen[i] < own[j] ? 1 : 0;
  }
  __syncwarp();
  HEADRACE_UNROLL
  for (int j = 0; j < kNumbersEach; ++j) {
    if (j * kWarp + lane_id() < spec.top_k) row.chosen[places[j]] = own[j];
  }
  __syncwarp();
}

/// Weights of those chosen, from their scores. `factors`: RouterSpec's, or null.
__device__ inline void weigh(const RouterSpec& spec, const float* factors, const int32_t* chosen,
                             float* weights) {
  if (spec.score == RouterSpec::Score::kSoftmaxAfterTopK) softmax(weights, spec.top_k);
  float divisor = 1.0f;
  if (spec.normalize) {
    float sum = 0.0f;
    for (int i = lane_id(); i < spec.top_k; i += kWarp) sum += weights[i];
    sum = warp_reduce(sum, Sum{});
    divisor = (sum < spec.norm_min ? spec.norm_min : sum) + spec.norm_eps;
  }
  HEADRACE_NO_UNROLL
  for (int i = lane_id(); i < spec.top_k; i += kWarp) {
    const float weight = (spec.normalize ? weights[i] / divisor : weights[i]) * spec.scale;
    weights[i] = factors == nullptr ? weight : weight * factors[chosen[i]];
  }
}

__global__ void __launch_bounds__(kWarps* kWarp) route_choose_kernel(ChooseTask task) {
  const RouterSpec& spec = task.spec;
  const RowMemory row(shared_memory() + warp_id() * RowMemory::bytes(spec), spec);
  const int64_t number = int64_t{blockIdx.x} * kWarps + warp_id();
  start_next();
  wait_for_previous();
  if (number >= task.rows) return;
  const float* logits = task.logits + number * spec.num_experts;
  for (int i = lane_id(); i < spec.num_experts; i += kWarp) row.scores[i] = logits[i];
  score(spec, row.scores);  // a lane's own
  for (int i = lane_id(); i < spec.num_experts; i += kWarp) {
    const float added = task.correction == nullptr ? 0.0f : task.correction[i];
    row.codes[i] = code_of(row.scores[i] + added, i);
  }
  __syncwarp();
  if (spec.num_groups > 1) keep_best_groups(spec, row);
  choose(spec, row);
  float* weights = task.weights + number * task.weights_stride;
  for (int i = lane_id(); i < spec.top_k; i += kWarp) {
    task.ids[number * task.ids_stride + i] = row.chosen[i];
    weights[i] = row.scores[row.chosen[i]];
  }
  weigh(spec, task.factors, row.chosen, weights);  // a lane's own
}

}  // namespace

void route_choose(const RouteArgs& args, Stream stream) {
  const ChooseTask task{.spec = args.spec,
                        .logits = args.logits,
                        .correction = args.correction,
                        .factors = static_cast<const float*>(args.spec.factors.data),
                        .rows = args.x.rows,
                        .ids = args.ids,
                        .ids_stride = args.ids_stride,
                        .weights = args.weights,
                        .weights_stride = args.weights_stride};
  const LaunchShape shape{.grid = {grid_size(divide_up<int64_t>(args.x.rows, kWarps))},
                          .threads = kWarps * kWarp,
                          .shared_bytes = static_cast<size_t>(kWarps * RowMemory::bytes(args.spec)),
                          .overlaps = true};
  launch("route_choose", route_choose_kernel, shape, stream, task);
}

}  // namespace headrace::cuda
