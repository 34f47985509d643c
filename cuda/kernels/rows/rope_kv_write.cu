#include "cuda/kernels/rows/rope_kv_write.h"

#include "cuda/device/kv_codes.cuh"
#include "cuda/kernels/rows/rope_kv_vectors.cuh"
#include "cuda/kernels/rows/rope_pairs.cuh"
#include "cuda/kernels/with_codes.cuh"

namespace headrace::cuda {
namespace {

constexpr int kMaxHeadDim = 512;
constexpr int kMaxPairs = kMaxHeadDim / 2 / kWarp;  // of elements, that a lane holds

// Anything else: a warp takes a head, element by element.

__device__ inline PairPlace pair_place(const HeadTask& task, int32_t p) {
  return cuda::pair_place(task.rotary_dim, task.interleaved, p);
}

/// What a row's heads have in common.
struct RowState {
  const float* table;
  float q_factor;
  float q_norm, k_norm;  // what QkNorm::kRow multiplies q and k by, but for the weights
};

/// `scratch`: a float for each warp, in shared memory. By the whole block.
template <class T, class Cache>
__device__ RowState row_state(const WriteTask<T, Cache>& task, int64_t row, float* scratch) {
  RowState state{task.table + row * task.table_stride, query_factor(task, row), 0.0f, 0.0f};
  if (task.head.norm != QkNorm::kRow) return state;
  const T* const q = task.qkv + row * task.stride;
  const int32_t count = task.num_heads * task.head.head_dim;
  state.q_norm = inverse_rms(q, count, task.head.eps, scratch);
  state.k_norm =
      inverse_rms(q + count, task.layout.num_kv_heads * task.head.head_dim, task.head.eps, scratch);
  return state;
}

/// A head's pairs, a warp's: a lane has every 32nd.
struct HeadPairs {
  float first[kMaxPairs] = {}, second[kMaxPairs] = {};

  /// Calls f(p, first, second) for the lane's pairs, of which the head has `count`.
  template <class F>
  __device__ void for_each(int32_t count, F&& f) {
    HEADRACE_UNROLL
    for (int i = 0; i < kMaxPairs; ++i) {
      const int32_t p = lane_id() + i * kWarp;
      if (p < count) f(p, first[i], second[i]);
    }
  }
  /// By the whole warp.
  __device__ float inverse_rms(int32_t head_dim, float eps) const {
    float squares = 0.0f;
    HEADRACE_UNROLL
    for (int i = 0; i < kMaxPairs; ++i) {
      squares = fmaf(first[i], first[i], squares);
      squares = fmaf(second[i], second[i], squares);
    }
    squares = warp_reduce(squares, Sum{});
    return 1.0f / sqrtf(squares / static_cast<float>(head_dim) + eps);
  }
};

/// Head `h` of a row's q, k and v, a warp's work: norms, rotation and factor, and gives each pair
/// to store(place, values).
template <class T, class Cache, class Store>
__device__ void prepare_head(const WriteTask<T, Cache>& task, const RowState& row, const T* x,
                             int32_t h, const Store& store) {
  const int32_t kv = task.layout.num_kv_heads, d = task.head.head_dim;
  const bool is_query = h < task.num_heads, is_value = h >= task.num_heads + kv;
  HeadTask head = task.head;
  if (is_value) head.rotary_dim = 0;
  const int32_t pairs = d / 2, rotated = head.rotary_dim / 2;
  HeadPairs numbers;
  numbers.for_each(pairs, [&](int32_t p, float& first, float& second) {
    const PairPlace at = pair_place(head, p);
    first = to_float(x[at.first]);
    second = to_float(x[at.second]);
  });
  const void* norm = is_query ? task.q_norm : is_value ? nullptr : task.k_norm;
  const bool normalises = is_value ? head.v_norm : norm != nullptr;
  const int32_t own = head.norm == QkNorm::kRow ? (h - (is_query ? 0 : task.num_heads)) * d : 0;
  const auto weight = [&](int32_t i) {
    if (norm == nullptr) return 1.0f;
    if (task.float_norms) return static_cast<const float*>(norm)[own + i];
    return to_float(static_cast<const T*>(norm)[own + i]);
  };
  const auto normalise = [&] {
    const float factor = is_value || head.norm != QkNorm::kRow ? numbers.inverse_rms(d, head.eps)
                         : is_query                            ? row.q_norm
                                                               : row.k_norm;
    numbers.for_each(pairs, [&](int32_t p, float& first, float& second) {
      const PairPlace at = pair_place(head, p);
      first = first * factor * weight(at.first);
      second = second * factor * weight(at.second);
    });
  };
  const bool after = head.norm == QkNorm::kHeadAfterRope;
  if (normalises && !after) normalise();
  numbers.for_each(pairs, [&](int32_t p, float& first, float& second) {
    if (p >= rotated) return;
    const RotatedPair pair = rope_rotate(first, second, {row.table[p], row.table[rotated + p]});
    first = pair.first;
    second = pair.second;
  });
  if (normalises && after) normalise();
  const float factor = is_query ? row.q_factor : 1.0f;
  numbers.for_each(pairs, [&](int32_t p, float& first, float& second) {
    store(pair_place(head, p), RotatedPair{first * factor, second * factor});
  });
}

/// A block takes a row; its warps take q heads, k heads and v heads in turn.
template <class T, class Cache>
__global__ void rope_kv_write_kernel(WriteTask<T, Cache> task) {
  __shared__ float scratch[kWarps];
  const int64_t row = blockIdx.x;
  const int32_t d = task.head.head_dim;
  const int32_t kv = task.layout.num_kv_heads;
  start_next();
  wait_for_previous();
  const int64_t slot = task.slots[row];
  const RowState state = row_state(task, row, scratch);
  T* const x = task.qkv + row * task.stride;
  for (int32_t h = warp_id(); h < task.num_heads + 2 * kv; h += kWarps) {
    T* head = x + int64_t{h} * d;
    if (h < task.num_heads) {
      prepare_head(task, state, head, h, [&](PairPlace at, RotatedPair pair) {
        head[at.first] = from_float<T>(pair.first);
        head[at.second] = from_float<T>(pair.second);
      });
      continue;
    }
    const bool is_value = h >= task.num_heads + kv;
    Cache* to = (is_value ? task.values : task.keys) +
                task.layout.offset(slot, h - task.num_heads - (is_value ? kv : 0));
    prepare_head(task, state, head, h, [&](PairPlace at, RotatedPair pair) {
      to[at.first] = from_float<Cache>(pair.first);
      to[at.second] = from_float<Cache>(pair.second);
    });
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
  __shared__ float scratch[kWarps];
  const int64_t row = blockIdx.x;
  const int32_t d = task.head.head_dim, kv = task.layout.num_kv_heads;
  const int32_t row_bytes = CodeTraits<Code>::kPerByte == 2 ? divide_up(d, 32) * 16 : d;
  start_next();
  wait_for_previous();
  const int64_t slot = task.slots[row];
  const RowState state = row_state(task, row, scratch);
  float* const numbers = staged[warp_id()];
  T* const x = task.qkv + row * task.stride;
  for (int32_t h = warp_id(); h < task.num_heads + 2 * kv; h += kWarps) {
    T* head = x + int64_t{h} * d;
    if (h < task.num_heads) {
      prepare_head(task, state, head, h, [&](PairPlace at, RotatedPair pair) {
        head[at.first] = from_float<T>(pair.first);
        head[at.second] = from_float<T>(pair.second);
      });
      continue;
    }
    const bool is_value = h >= task.num_heads + kv;
    prepare_head(task, state, head, h, [&](PairPlace at, RotatedPair pair) {
      numbers[at.first] = pair.first;
      numbers[at.second] = pair.second;
    });
    __syncwarp();
    const int32_t kv_head = h - task.num_heads - (is_value ? kv : 0);
    auto* const codes = reinterpret_cast<uint8_t*>(is_value ? task.values : task.keys);
    uint32_t* const scales = is_value ? task.value_scales : task.key_scales;
    write_codes<Code>(numbers, d,
                      {codes + task.layout.row(slot, kv_head) * row_bytes,
                       scales + task.layout.scale(slot, kv_head)});
    __syncwarp();
  }
}

template <class T, class Cache>
void run(const RopeKvWriteArgs& args, Stream stream) {
  const WriteTask<T, Cache> task{.qkv = static_cast<T*>(args.qkv.data),
                                 .stride = args.qkv.stride,
                                 .num_heads = args.num_heads,
                                 .head = {args.layout.head_dim, args.rotary_dim, args.interleaved,
                                          args.norm, args.v_norm, args.norm_eps},
                                 .q_norm = args.q_norm,
                                 .k_norm = args.k_norm,
                                 .float_norms = args.float_norms,
                                 .q_factor = args.q_factor,
                                 .positions = args.positions,
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
      return with_lanes(args.layout.head_dim, [&](auto lanes) {
        with_bool(args.interleaved, [&](auto interleaved) {
          with_norm<T>(args, [&](auto norm) {
            launch("rope_kv_write",
                   rope_kv_write_vectors<T, decltype(lanes)::value, decltype(interleaved)::value,
                                         decltype(norm)>,
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
  HEADRACE_CHECK(args.positions == nullptr || args.q_factor.original > 0, args.q_factor.original);
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
