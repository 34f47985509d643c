#pragma once

// What rope_kv_write.cu's kernels work on, and the one for rows of whole vectors and a cache of the
// same 16-bit type.

#include "cuda/device/rope.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/rows/rope_kv_write.h"

namespace headrace::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;

struct HeadTask {
  int32_t head_dim;
  int32_t rotary_dim;
  bool interleaved;
  QkNorm norm;  // of q and k
  bool v_norm;
  float eps;
};

template <class T, class Cache>
struct WriteTask {
  T* qkv;
  int64_t stride;
  int32_t num_heads;
  HeadTask head;
  const void* q_norm;
  const void* k_norm;
  bool float_norms;  // their weights are float32, not T
  PositionFactor q_factor;
  const int32_t* positions;
  const float* table;
  int64_t table_stride;
  KvLayout layout;
  Cache* keys;
  Cache* values;
  uint32_t* key_scales;  // of codes; else null
  uint32_t* value_scales;
  const int64_t* slots;
};

/// What a row's queries are multiplied by: PositionFactor::at() in float32.
template <class T, class Cache>
__device__ float query_factor(const WriteTask<T, Cache>& task, int64_t row) {
  if (task.positions == nullptr) return 1.0f;
  const int32_t times = task.positions[row] / task.q_factor.original;
  return 1.0f + task.q_factor.beta * logf(1.0f + static_cast<float>(times));
}

// Rows of whole vectors, a cache of the same 16-bit type: a lane takes two vectors of a head, whose
// elements are pairs, and the same two of every few heads.

constexpr int kVector = 8;      // elements of one
constexpr int kHeadsAhead = 4;  // whose loads a lane starts together
constexpr int kMaxLanes = 16;   // of a head

/// Vectors that unit `u` of a head is: of rotated pairs, then of the rest.
struct UnitPlace {
  int32_t first, second;
};

__device__ inline UnitPlace unit_place(const HeadTask& task, int32_t u) {
  const int32_t rotated = task.rotary_dim / (2 * kVector);
  if (u < rotated && !task.interleaved) return {u, u + rotated};
  return {2 * u, 2 * u + 1};
}

struct UnitAngles {
  float cosine[kVector], sine[kVector];
};

/// Of the pairs that the unit is.
__device__ inline void load_angles(UnitAngles& to, const float* table, int32_t pairs, int32_t u) {
  HEADRACE_UNROLL
  for (int i = 0; i < kVector; i += 4) {
    const float4 c = *reinterpret_cast<const float4*>(table + u * kVector + i);
    const float4 s = *reinterpret_cast<const float4*>(table + pairs + u * kVector + i);
    const float cosines[] = {c.x, c.y, c.z, c.w}, sines[] = {s.x, s.y, s.z, s.w};
    HEADRACE_UNROLL
    for (int j = 0; j < 4; ++j) {
      to.cosine[i + j] = cosines[j];
      to.sine[i + j] = sines[j];
    }
  }
}

/// Weights of a norm, of the rows' type or float32; null: they are 1.
template <class T>
__device__ void load_weights(const T* from, float (&to)[kVector]) {
  if constexpr (std::is_same_v<T, float>) {
    HEADRACE_UNROLL
    for (int i = 0; i < kVector; i += 4) {
      const float4 w = *reinterpret_cast<const float4*>(from + i);
      to[i] = w.x;
      to[i + 1] = w.y;
      to[i + 2] = w.z;
      to[i + 3] = w.w;
    }
  } else {
    const Vector<T> weights = load_vector(from);
    HEADRACE_UNROLL
    for (int i = 0; i < kVector; ++i) to[i] = to_float(weights.at[i]);
  }
}

/// Normalises a unit's elements, if `wanted`. By all lanes of a head together.
template <class Norm, int kLanes>
__device__ void normalise(float (&x)[2][kVector], const HeadTask& task, bool wanted,
                          const Norm* norm, const UnitPlace& at) {
  float squares = 0.0f;
  HEADRACE_UNROLL
  for (int i = 0; i < 2 * kVector; ++i) {
    squares = fmaf(x[i / kVector][i % kVector], x[i / kVector][i % kVector], squares);
  }
  HEADRACE_UNROLL
  for (int step = kLanes / 2; step > 0; step /= 2) {
    squares += __shfl_xor_sync(kAllLanes, squares, step);
  }
  if (!wanted) return;
  const float factor = 1.0f / sqrtf(squares / static_cast<float>(task.head_dim) + task.eps);
  float weights[2][kVector];
  if (norm != nullptr) {
    load_weights(norm + at.first * kVector, weights[0]);
    load_weights(norm + at.second * kVector, weights[1]);
  }
  HEADRACE_UNROLL
  for (int i = 0; i < 2 * kVector; ++i) {
    float& value = x[i / kVector][i % kVector];
    value *= factor;
    if (norm != nullptr) value *= weights[i / kVector][i % kVector];
  }
}

/// Turns a unit's pairs: one element of each vector, or neighbours.
__device__ inline void rotate(float (&x)[2][kVector], const UnitAngles& angles, bool interleaved) {
  HEADRACE_UNROLL
  for (int i = 0; i < kVector; ++i) {
    float& a = interleaved ? x[i / 4][i % 4 * 2] : x[0][i];
    float& b = interleaved ? x[i / 4][i % 4 * 2 + 1] : x[1][i];
    const RotatedPair turned = rope_rotate(a, b, {angles.cosine[i], angles.sine[i]});
    a = turned.first;
    b = turned.second;
  }
}

/// There are no norms.
struct NoNorm {};

/// The same of number `h` of a row's heads, as the task says.
template <class Norm, int kLanes, class T>
__device__ void normalise_head(const WriteTask<T, T>& task, int32_t h, const UnitPlace& at,
                               bool exists, float (&x)[2][kVector]) {
  if constexpr (!std::is_same_v<Norm, NoNorm>) {
    const bool is_query = h < task.num_heads;
    const bool is_value = h >= task.num_heads + task.layout.num_kv_heads;
    const void* const norm = is_query ? task.q_norm : is_value ? nullptr : task.k_norm;
    const bool wanted = is_value ? task.head.v_norm : norm != nullptr;
    normalise<Norm, kLanes>(x, task.head, wanted && exists, static_cast<const Norm*>(norm), at);
  }
}

/// A block takes a row; groups of kLanes lanes take heads in turn: q's, k's and v's. Norm: of their
/// weights.
template <class T, int kLanes, bool kInterleaved, class Norm>
__global__ void __launch_bounds__(kThreads) rope_kv_write_vectors(WriteTask<T, T> task) {
  constexpr int kGroups = kThreads / kLanes;
  const int32_t d = task.head.head_dim, kv = task.layout.num_kv_heads;
  const int32_t heads = task.num_heads + 2 * kv;
  const int32_t u = static_cast<int32_t>(threadIdx.x) % kLanes;
  const bool exists = u < d / (2 * kVector);
  const int32_t unit = exists ? u : 0;
  const UnitPlace at = unit_place(task.head, unit);
  const bool turns = unit < task.head.rotary_dim / (2 * kVector);
  const int64_t row = blockIdx.x;
  start_next();
  wait_for_previous();
  T* const x = task.qkv + row * task.stride;
  const int64_t place = task.layout.offset(task.slots[row], 0);
  const float q_factor = query_factor(task, row);
  UnitAngles angles = {};
  if (turns) {
    load_angles(angles, task.table + row * task.table_stride, task.head.rotary_dim / 2, unit);
  }
  const int32_t group = static_cast<int32_t>(threadIdx.x) / kLanes;
  HEADRACE_NO_UNROLL
  for (int32_t base = 0; base < heads; base += kHeadsAhead * kGroups) {
    Vector<T> in[kHeadsAhead][2];
    HEADRACE_UNROLL
    for (int i = 0; i < kHeadsAhead; ++i) {
      const int32_t h = base + i * kGroups + group;
      const T* from = x + int64_t{h < heads ? h : 0} * d;
      in[i][0] = load_vector(from + at.first * kVector);
      in[i][1] = load_vector(from + at.second * kVector);
    }
    HEADRACE_UNROLL
    for (int i = 0; i < kHeadsAhead; ++i) {
      const int32_t h = base + i * kGroups + group;
      const bool is_value = h >= task.num_heads + kv;
      T* to = x + int64_t{h} * d;
      if (h >= task.num_heads) {
        const int32_t kv_head = h - task.num_heads - (is_value ? kv : 0);
        to = (is_value ? task.values : task.keys) + place +
             int64_t{kv_head} * task.layout.block_size * d;
      }
      float numbers[2][kVector];
      HEADRACE_UNROLL
      for (int j = 0; j < 2 * kVector; ++j) {
        numbers[j / kVector][j % kVector] =
            exists ? to_float(in[i][j / kVector].at[j % kVector]) : 0.0f;
      }
      const bool after = task.head.norm == QkNorm::kHeadAfterRope;
      if (!after) normalise_head<Norm, kLanes>(task, h, at, exists, numbers);
      if (turns && !is_value) rotate(numbers, angles, kInterleaved);
      if (after) normalise_head<Norm, kLanes>(task, h, at, exists, numbers);
      if (h >= heads || !exists) continue;
      if (h < task.num_heads) {
        HEADRACE_UNROLL
        for (int j = 0; j < 2 * kVector; ++j) numbers[j / kVector][j % kVector] *= q_factor;
      }
      Vector<T> out[2];
      HEADRACE_UNROLL
      for (int j = 0; j < 2 * kVector; ++j) {
        out[j / kVector].at[j % kVector] = from_float<T>(numbers[j / kVector][j % kVector]);
      }
      store_vector(to + at.first * kVector, out[0]);
      store_vector(to + at.second * kVector, out[1]);
    }
  }
}

template <class T, class Cache>
bool can_use_vectors(const WriteTask<T, Cache>& task) {
  const auto aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  const int32_t unit = 2 * kVector;
  return task.head.norm != QkNorm::kRow && task.head.head_dim <= kMaxLanes * unit &&
         task.head.head_dim % unit == 0 && task.head.rotary_dim % unit == 0 &&
         task.stride % kVector == 0 && task.table_stride % 4 == 0 && aligned(task.qkv) &&
         aligned(task.table) && aligned(task.keys) && aligned(task.values) &&
         aligned(task.q_norm) && aligned(task.k_norm);
}

/// Calls f(Norm{}): see rope_kv_write_vectors().
template <class T, class F>
void with_norm(const RopeKvWriteArgs& args, F&& f) {
  const bool weights = args.q_norm != nullptr || args.k_norm != nullptr;
  if (!weights && !args.v_norm) return f(NoNorm{});
  if (weights && args.float_norms) return f(float{});
  return f(T{});
}

/// Lanes of a head: a power of two.
template <class F>
void with_lanes(int32_t head_dim, F&& f) {
  const int32_t units = head_dim / (2 * kVector);
  if (units <= 4) return f(Int<4>{});
  if (units <= 8) return f(Int<8>{});
  return f(Int<kMaxLanes>{});
}

}  // namespace
}  // namespace headrace::cuda
