#include "cuda/kernels/rows/rope_kv_write.h"

#include "cuda/device/kv_codes.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/rope.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/with_codes.cuh"

namespace headrace::cuda {
namespace {

constexpr int kMaxHeadDim = 256;
constexpr int kMaxPairs = kMaxHeadDim / 2 / kWarp;  // of elements, that a lane holds
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;

struct HeadTask {
  int32_t head_dim;
  int32_t rotary_dim;
  bool interleaved;
  float eps;
};

template <class T, class Cache>
struct WriteTask {
  T* qkv;
  int64_t stride;
  int32_t num_heads;
  HeadTask head;
  const T* q_norm;
  const T* k_norm;
  const float* table;
  int64_t table_stride;
  KvLayout layout;
  Cache* keys;
  Cache* values;
  uint32_t* key_scales;  // of codes; else null
  uint32_t* value_scales;
  const int64_t* slots;
};

// Rows of whole vectors, a cache of the same 16-bit type: a lane takes two vectors of a head, whose
// elements are pairs, and the same two of every few heads.

constexpr int kVector = 8;      // elements of one
constexpr int kHeadsAhead = 4;  // whose loads a lane starts together

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

/// Normalises a unit's elements: `norm` null leaves them alone. By all lanes of a head together.
template <class T, int kLanes>
__device__ void normalise(float (&x)[2][kVector], const HeadTask& task, const T* norm,
                          const UnitPlace& at, bool exists) {
  float squares = 0.0f;
  HEADRACE_UNROLL
  for (int i = 0; i < 2 * kVector; ++i) {
    squares = fmaf(x[i / kVector][i % kVector], x[i / kVector][i % kVector], squares);
  }
  HEADRACE_UNROLL
  for (int step = kLanes / 2; step > 0; step /= 2) {
    squares += __shfl_xor_sync(kAllLanes, squares, step);
  }
  if (norm == nullptr || !exists) return;
  const float factor = 1.0f / sqrtf(squares / static_cast<float>(task.head_dim) + task.eps);
  const Vector<T> weights[2] = {load_vector(norm + at.first * kVector),
                                load_vector(norm + at.second * kVector)};
  HEADRACE_UNROLL
  for (int i = 0; i < 2 * kVector; ++i) {
    float& value = x[i / kVector][i % kVector];
    value = value * factor * to_float(weights[i / kVector].at[i % kVector]);
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

/// A block takes a row; groups of kLanes lanes take heads in turn: q's, k's and v's.
template <class T, int kLanes, bool kInterleaved, bool kNorms>
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
      if constexpr (kNorms) {
        const T* norm = h < task.num_heads ? task.q_norm : is_value ? nullptr : task.k_norm;
        normalise<T, kLanes>(numbers, task.head, norm, at, exists);
      }
      if (h >= heads || !exists) continue;
      if (turns && !is_value) rotate(numbers, angles, kInterleaved);
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

// Anything else: a warp takes a head, element by element.

/// Elements that lane pair `p` of a head are: rotated pairs first, then the rest side by side.
struct PairPlace {
  int32_t first, second;
};

__device__ inline PairPlace pair_place(const HeadTask& task, int32_t p) {
  const int32_t pairs = task.rotary_dim / 2;
  if (p < pairs && !task.interleaved) return {p, p + pairs};
  return {2 * p, 2 * p + 1};
}

/// Normalises and rotates one head, a warp's work, and gives each pair to store(place, values).
template <class T, class Store>
__device__ void prepare_head(const T* x, const T* norm, const float* table, const HeadTask& task,
                             const Store& store) {
  const int32_t pairs = task.head_dim / 2;
  float first[kMaxPairs] = {}, second[kMaxPairs] = {};
  float squares = 0.0f;
  HEADRACE_UNROLL
  for (int i = 0; i < kMaxPairs; ++i) {
    const int32_t p = lane_id() + i * kWarp;
    if (p >= pairs) continue;
    const PairPlace at = pair_place(task, p);
    first[i] = to_float(x[at.first]);
    second[i] = to_float(x[at.second]);
    squares = fmaf(first[i], first[i], squares);
    squares = fmaf(second[i], second[i], squares);
  }
  float factor = 1.0f;
  if (norm != nullptr) {
    squares = warp_reduce(squares, Sum{});
    factor = 1.0f / sqrtf(squares / static_cast<float>(task.head_dim) + task.eps);
  }
  HEADRACE_UNROLL
  for (int i = 0; i < kMaxPairs; ++i) {
    const int32_t p = lane_id() + i * kWarp;
    if (p >= pairs) continue;
    const PairPlace at = pair_place(task, p);
    RotatedPair pair{first[i], second[i]};
    if (norm != nullptr) {
      pair.first = pair.first * factor * to_float(norm[at.first]);
      pair.second = pair.second * factor * to_float(norm[at.second]);
    }
    const int32_t rotated = task.rotary_dim / 2;
    if (p < rotated) pair = rope_rotate(pair.first, pair.second, {table[p], table[rotated + p]});
    store(at, pair);
  }
}

/// A block takes a row; its warps take q heads, k heads and v heads in turn.
template <class T, class Cache>
__global__ void rope_kv_write_kernel(WriteTask<T, Cache> task) {
  const int64_t row = blockIdx.x;
  const int32_t d = task.head.head_dim;
  const int32_t kv = task.layout.num_kv_heads;
  start_next();
  wait_for_previous();
  const int64_t slot = task.slots[row];
  const float* table = task.table + row * task.table_stride;
  T* const x = task.qkv + row * task.stride;
  for (int32_t h = warp_id(); h < task.num_heads + 2 * kv; h += kWarps) {
    T* head = x + int64_t{h} * d;
    if (h < task.num_heads) {
      prepare_head(head, task.q_norm, table, task.head, [&](PairPlace at, RotatedPair pair) {
        head[at.first] = from_float<T>(pair.first);
        head[at.second] = from_float<T>(pair.second);
      });
    } else if (h < task.num_heads + kv) {
      Cache* to = task.keys + task.layout.offset(slot, h - task.num_heads);
      prepare_head(head, task.k_norm, table, task.head, [&](PairPlace at, RotatedPair pair) {
        to[at.first] = from_float<Cache>(pair.first);
        to[at.second] = from_float<Cache>(pair.second);
      });
    } else {
      Cache* to = task.values + task.layout.offset(slot, h - task.num_heads - kv);
      for (int32_t i = lane_id(); i < d; i += kWarp) to[i] = from_float<Cache>(to_float(head[i]));
    }
  }
}

// Codes: a warp takes a head, whose float32 numbers lie in shared memory until their range is
// known.

/// A head of the cache: its codes, and 4 bytes of scales.
struct CodePlace {
  uint8_t* codes;
  uint32_t* scales;
};

/// Rounds numbers [d] to codes of `Code` as the reference does. By a whole warp.
template <class Code>
__device__ void write_codes(const float* numbers, int32_t d, const CodePlace& to) {
  constexpr int kWordCodes = 4 * CodeTraits<Code>::kPerByte;
  float high = -INFINITY, minus_low = -INFINITY;
  bool finite = true;
  for (int32_t i = lane_id(); i < d; i += kWarp) {
    high = greatest(high, numbers[i]);
    minus_low = greatest(minus_low, -numbers[i]);
    finite = finite && fabsf(numbers[i]) < INFINITY;
  }
  high = warp_reduce(high, Largest{});
  minus_low = warp_reduce(minus_low, Largest{});
  finite = !__any_sync(kAllLanes, !finite);
  const float largest = greatest(high, minus_low), nan = float_of_bits(0x7fc00000u);
  float low = 0.0f, step, inverse;
  uint32_t scales;
  if constexpr (CodeTraits<Code>::kHasLow) {
    const Bf16 rounded_low = from_float<Bf16>(-minus_low);
    low = to_float(rounded_low);
    Bf16 rounded = from_float<Bf16>((high - low) / 15.0f);
    const bool spread = to_float(rounded) > 1e-30f;
    if (!spread) rounded = from_float<Bf16>(1.0f);
    step = to_float(rounded);
    inverse = spread ? 1.0f / step : 0.0f;
    if (!finite) rounded = from_float<Bf16>(nan);
    scales = static_cast<uint32_t>(rounded.bits) | static_cast<uint32_t>(rounded_low.bits) << 16;
  } else {
    constexpr float kMost = std::is_same_v<Code, CodeF8> ? 448.0f : 127.0f;
    inverse = largest > 1e-30f ? kMost / largest : 0.0f;
    step = largest > 1e-30f ? largest / kMost : 1.0f;
    scales = bits_of_float(finite ? step : nan);
  }
  if (lane_id() == 0) *to.scales = scales;
  const auto code = [&](int32_t i) -> uint32_t {
    const float steps = i < d && finite ? (numbers[i] - low) * inverse : 0.0f;
    if constexpr (std::is_same_v<Code, CodeF8>) {
      return float_to_f8(steps);
    } else if constexpr (std::is_same_v<Code, CodeI8>) {
      return static_cast<uint32_t>(128 + static_cast<int32_t>(rintf(steps)));
    } else {
      return static_cast<uint32_t>(rintf(least(greatest(steps, 0.0f), 15.0f)));
    }
  };
  const int32_t filled = kWordCodes == 8 ? divide_up(d, 32) * 32 : d;
  for (int32_t i = lane_id() * kWordCodes; i < filled; i += kWarp * kWordCodes) {
    uint32_t word = 0;
    HEADRACE_UNROLL
    for (int j = 0; j < kWordCodes; ++j) word |= code(i + j) << (32 / kWordCodes * j);
    *reinterpret_cast<uint32_t*>(to.codes + i / CodeTraits<Code>::kPerByte) = word;
  }
}

/// A block takes a row; its warps take q heads, k heads and v heads in turn.
template <class T, class Code>
__global__ void rope_kv_write_codes(WriteTask<T, Code> task) {
  __shared__ float staged[kWarps][kMaxHeadDim];
  const int64_t row = blockIdx.x;
  const int32_t d = task.head.head_dim, kv = task.layout.num_kv_heads;
  const int32_t row_bytes = CodeTraits<Code>::kPerByte == 2 ? divide_up(d, 32) * 16 : d;
  start_next();
  wait_for_previous();
  const int64_t slot = task.slots[row];
  const float* table = task.table + row * task.table_stride;
  float* const numbers = staged[warp_id()];
  T* const x = task.qkv + row * task.stride;
  for (int32_t h = warp_id(); h < task.num_heads + 2 * kv; h += kWarps) {
    T* head = x + int64_t{h} * d;
    if (h < task.num_heads) {
      prepare_head(head, task.q_norm, table, task.head, [&](PairPlace at, RotatedPair pair) {
        head[at.first] = from_float<T>(pair.first);
        head[at.second] = from_float<T>(pair.second);
      });
      continue;
    }
    const bool is_value = h >= task.num_heads + kv;
    if (is_value) {
      for (int32_t i = lane_id(); i < d; i += kWarp) numbers[i] = to_float(head[i]);
    } else {
      prepare_head(head, task.k_norm, table, task.head, [&](PairPlace at, RotatedPair pair) {
        numbers[at.first] = pair.first;
        numbers[at.second] = pair.second;
      });
    }
    __syncwarp();
    const int64_t place = task.layout.row(slot, h - task.num_heads - (is_value ? kv : 0));
    auto* const codes = reinterpret_cast<uint8_t*>(is_value ? task.values : task.keys);
    write_codes<Code>(
        numbers, d,
        {codes + place * row_bytes, (is_value ? task.value_scales : task.key_scales) + place});
    __syncwarp();
  }
}

template <class T, class Cache>
bool can_use_vectors(const WriteTask<T, Cache>& task) {
  const auto aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  const int32_t unit = 2 * kVector;
  return task.head.head_dim % unit == 0 && task.head.rotary_dim % unit == 0 &&
         task.stride % kVector == 0 && task.table_stride % 4 == 0 && aligned(task.qkv) &&
         aligned(task.table) && aligned(task.keys) && aligned(task.values) &&
         aligned(task.q_norm) && aligned(task.k_norm);
}

/// Lanes of a head: a power of two.
template <class F>
void with_lanes(int32_t head_dim, F&& f) {
  const int32_t units = head_dim / (2 * kVector);
  if (units <= 4) return f(Int<4>{});
  if (units <= 8) return f(Int<8>{});
  return f(Int<16>{});
}

template <class T, class Cache>
void run(const RopeKvWriteArgs& args, Stream stream) {
  const WriteTask<T, Cache> task{
      .qkv = static_cast<T*>(args.qkv.data),
      .stride = args.qkv.stride,
      .num_heads = args.num_heads,
      .head = {args.layout.head_dim, args.rotary_dim, args.interleaved, args.norm_eps},
      .q_norm = static_cast<const T*>(args.q_norm),
      .k_norm = static_cast<const T*>(args.k_norm),
      .table = args.rope_table,
      .table_stride = args.rope_stride,
      .layout = args.layout,
      .keys = static_cast<Cache*>(args.keys),
      .values = static_cast<Cache*>(args.values),
      .key_scales = static_cast<uint32_t*>(args.key_scales),
      .value_scales = static_cast<uint32_t*>(args.value_scales),
      .slots = args.slots};
  const LaunchShape shape{
      .grid = {grid_size(args.qkv.rows)}, .threads = kThreads, .overlaps = true};
  if constexpr (std::is_same_v<T, Cache> && sizeof(T) == 2) {
    if (can_use_vectors(task)) {
      const bool norms = task.q_norm != nullptr || task.k_norm != nullptr;
      return with_lanes(args.layout.head_dim, [&](auto lanes) {
        with_bool(args.interleaved, [&](auto interleaved) {
          with_bool(norms, [&](auto has_norms) {
            launch("rope_kv_write",
                   rope_kv_write_vectors<T, decltype(lanes)::value, decltype(interleaved)::value,
                                         decltype(has_norms)::value>,
                   shape, stream, task);
          });
        });
      });
    }
  }
  if constexpr (CodeTraits<Cache>::kCodes) {
    launch("rope_kv_write", rope_kv_write_codes<T, Cache>, shape, stream, task);
  } else {
    launch("rope_kv_write", rope_kv_write_kernel<T, Cache>, shape, stream, task);
  }
}

}  // namespace

void rope_kv_write(const RopeKvWriteArgs& args, Stream stream) {
  const int32_t d = args.layout.head_dim;
  HEADRACE_CHECK(d >= 2 && d % 2 == 0 && d <= kMaxHeadDim, d);
  HEADRACE_CHECK(args.rotary_dim >= 0 && args.rotary_dim % 2 == 0 && args.rotary_dim <= d,
                 args.rotary_dim);
  if (args.qkv.rows == 0) return;
  const bool codes = kv_has_scales(args.cache_dtype);
  HEADRACE_CHECK(
      !codes || (d % 16 == 0 && args.key_scales != nullptr && args.value_scales != nullptr), d);
  with_element(args.dtype, [&](auto element) {
    const auto write = [&](auto cached) { run<decltype(element), decltype(cached)>(args, stream); };
    if (codes) {
      with_codes(args.cache_dtype, write);
    } else {
      with_element(args.cache_dtype, write);
    }
  });
}

}  // namespace headrace::cuda
