#include "backend/cpu/kernels/kv_access.h"
#include "backend/cpu/simd/int8.h"

// Compiled once per ISA. Tokens of one pair or one byte's neighbours may be written by different
// threads at once: every number of a token is stored by itself.

namespace headrace::HEADRACE_ISA {
namespace {

/// `weight` null: 1.
void normalize(float* x, const float* weight, float eps, int head_dim) {
  F32 squares = zero();
  for (int i = 0; i < head_dim; i += kLanes) squares = fma(load(x + i), load(x + i), squares);
  const F32 mean = div(set1(reduce_add(squares)), set1(static_cast<float>(head_dim)));
  const F32 factor = div(set1(1.0f), sqrt(add(mean, set1(eps))));
  for (int i = 0; i < head_dim; i += kLanes) {
    const F32 y = mul(load(x + i), factor);
    store(x + i, weight == nullptr ? y : mul(y, load(weight + i)));
  }
}

/// Products and sums are rounded one by one, as the published implementations do.
HEADRACE_SIMD_INLINE void rotate(F32& a, F32& b, F32 cosine, F32 sine) {
  const F32 turned = sub(mul(a, cosine), mul(b, sine));
  b = add(mul(b, cosine), mul(a, sine));
  a = turned;
}

void rotate_halves(float* x, const float* cos_sin, int half) {
  float* y = x + half;
  const float* sines = cos_sin + half;
  int i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    F32 a = load(x + i), b = load(y + i);
    rotate(a, b, load(cos_sin + i), load(sines + i));
    store(x + i, a);
    store(y + i, b);
  }
  if (i == half) return;
  const int count = half - i;
  F32 a = load_part(x + i, count), b = load_part(y + i, count);
  rotate(a, b, load_part(cos_sin + i, count), load_part(sines + i, count));
  store_part(x + i, a, count);
  store_part(y + i, b, count);
}

void rotate_pairs(float* x, const float* cos_sin, int half) {
  for (int i = 0; i < half; ++i) {
    const float cosine = cos_sin[i], sine = cos_sin[half + i];
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cosine - b * sine;
    x[2 * i + 1] = b * cosine + a * sine;
  }
}

void prepare_head(float* x, const float* norm, const KvWriteTask& task) {
  const int head_dim = task.head_dim;
  if (norm != nullptr && !task.norms_rotated) normalize(x, norm, task.norm_eps, head_dim);
  if (task.interleaved) {
    rotate_pairs(x, task.cos_sin, task.rotary_dim / 2);
  } else {
    rotate_halves(x, task.cos_sin, task.rotary_dim / 2);
  }
  if (norm != nullptr && task.norms_rotated) normalize(x, norm, task.norm_eps, head_dim);
}

void prepare_queries(const KvWriteTask& task) {
  const int head_dim = task.head_dim;
  for (int i = 0; i < task.num_queries; ++i) {
    float* const query = task.queries + static_cast<int64_t>(i) * head_dim;
    prepare_head(query, task.q_norm, task);
    if (task.q_factor == 1.0f) continue;
    const F32 factor = set1(task.q_factor);
    for (int j = 0; j < head_dim; j += kLanes) store(query + j, mul(load(query + j), factor));
  }
}

void prepare_heads(const KvWriteTask& task) {
  prepare_queries(task);
  prepare_head(task.key, task.k_norm, task);
  if (task.v_norm) normalize(task.value, nullptr, task.norm_eps, task.head_dim);
}

/// Where a token's 16-token group lies.
struct Place {
  uint8_t *keys, *values;
  uint8_t *key_scale, *value_scale;  ///< the token's own
  int lane;
};

Place place_of(const KvWriteTask& task) {
  const KvLayerView& cache = *task.cache;
  const int group = task.slot / kKvLanes, lane = task.slot % kKvLanes;
  uint8_t* keys = key_group(cache, task.block, task.kv_head, group);
  uint8_t* scale =
      key_scales(cache, task.block, task.kv_head, group) + static_cast<int64_t>(lane) * kScaleBytes;
  return {keys, keys + cache.value_offset, scale, scale + cache.value_scale_offset, lane};
}

/// Keys [dim] and values [dim] of one token to their places in the group.
template <class Layout>
void scatter(const typename Layout::Element* key, const typename Layout::Element* value,
             int head_dim, const Place& place) {
  using Element = typename Layout::Element;
  auto* keys = reinterpret_cast<Element*>(place.keys);
  auto* values = reinterpret_cast<Element*>(place.values);
  for (int i = 0; i < head_dim; ++i) keys[Layout::key_place(i, place.lane)] = key[i];
  for (int i = 0; i < head_dim; ++i) {
    values[Layout::value_place(place.lane, i, head_dim)] = value[i];
  }
}

template <class Kv>
void write_kv(const KvWriteTask& task) {
  prepare_heads(task);
  const int head_dim = task.head_dim;
  typename Kv::Element key[kMaxHeadDim], value[kMaxHeadDim];
  for (int i = 0; i < head_dim; i += kLanes) {
    Kv::narrow(key + i, load(task.key + i));
    Kv::narrow(value + i, load(task.value + i));
  }
  scatter<Kv>(key, value, head_dim, place_of(task));
}

/// x = x / sqrt(mean(x^2) + eps) * weight, of any count.
void normalize_latent(float* x, const float* weight, float eps, int count) {
  F32 squares = zero();
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) squares = fma(load(x + i), load(x + i), squares);
  const F32 rest = load_part(x + i, count - i);
  squares = fma(rest, rest, squares);
  const F32 mean = div(set1(reduce_add(squares)), set1(static_cast<float>(count)));
  const F32 factor = div(set1(1.0f), sqrt(add(mean, set1(eps))));
  for (i = 0; i + kLanes <= count; i += kLanes) {
    store(x + i, mul(mul(load(x + i), factor), load(weight + i)));
  }
  store_part(x + i, mul(mul(rest, factor), load_part(weight + i, count - i)), count - i);
}

template <class Kv>
void write_latent(const LatentTask& task) {
  const int written = task.rank + task.rope_dim;
  const auto rotate = [&](float* x) {
    if (task.interleaved) {
      rotate_pairs(x, task.cos_sin, task.rope_dim / 2);
    } else {
      rotate_halves(x, task.cos_sin, task.rope_dim / 2);
    }
  };
  normalize_latent(task.row, task.norm, task.norm_eps, task.rank);
  rotate(task.row + task.rank);
  float row[kMaxLatent];
  typename Kv::Element key[kMaxLatent];
  for (int i = 0; i < task.row_dim; ++i) row[i] = i < written ? task.row[i] : 0.0f;
  for (int i = 0; i < task.row_dim; i += kLanes) Kv::narrow(key + i, load(row + i));
  const int group = task.slot / kKvLanes, lane = task.slot % kKvLanes;
  auto* keys =
      reinterpret_cast<typename Kv::Element*>(key_group(*task.cache, task.block, 0, group));
  for (int i = 0; i < task.row_dim; ++i) keys[Kv::key_place(i, lane)] = key[i];
  for (int h = 0; h < task.num_heads; ++h) {
    float* const out = task.out + static_cast<int64_t>(h) * task.row_dim + task.rank;
    __builtin_memcpy(out, task.queries + h * task.query_step,
                     static_cast<size_t>(task.rope_dim) * sizeof(float));
    rotate(out);
    for (int i = task.rope_dim; i < task.row_dim - task.rank; ++i) out[i] = 0.0f;
  }
}

struct Range {
  float low, high;
  float taint;  ///< NaN if a number is not finite, else 0
};

Range range_of(const float* x, int head_dim) {
  F32 low = load(x), high = low, sum = zero();
  for (int i = 0; i < head_dim; i += kLanes) {
    low = min(load(x + i), low);
    high = max(load(x + i), high);
    sum = fma(load(x + i), zero(), sum);
  }
  return {-reduce_max(sub(zero(), low)), reduce_max(high), reduce_add(sum)};
}

/// Below it a scale's reciprocal might overflow: such numbers become 0.
constexpr float kSmallestRange = 1e-30f;

/// x = scale * out; the scale goes to `scale` [4 bytes].
void quantize_i8(const float* x, int head_dim, int8_t* out, uint8_t* scale) {
  const Range range = range_of(x, head_dim);
  const float largest = -range.low > range.high ? -range.low : range.high;
  const F32 inverse = set1(largest > kSmallestRange ? 127.0f / largest : 0.0f);
  for (int i = 0; i < head_dim; i += kLanes) {
    store_i8(out + i, to_i32(mul(load(x + i), inverse)));
  }
  const float step = largest / 127.0f + range.taint;
  __builtin_memcpy(scale, &step, sizeof step);
}

void write_kv_quantized_i8(const KvWriteTask& task) {
  prepare_heads(task);
  const int head_dim = task.head_dim;
  const Place place = place_of(task);
  int8_t key[kMaxHeadDim], value[kMaxHeadDim];
  quantize_i8(task.key, head_dim, key, place.key_scale);
  quantize_i8(task.value, head_dim, value, place.value_scale);
  scatter<PairLayout<int8_t>>(key, value, head_dim, place);
}

/// To float8_e4m3, nearest, ties to even; beyond 464 and NaN: 0x7f. See tensor/float8.h.
HEADRACE_SIMD_INLINE uint8_t to_f8(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = bits >> 24 & 0x80u, rest = bits & 0x7fffffffu;
  if (rest > 0x43e80000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (rest < 0x3c800000u) {
    float size;
    __builtin_memcpy(&size, &rest, sizeof size);
    size += 0x1p14f;  // leaves multiples of 2^-9
    uint32_t sum;
    __builtin_memcpy(&sum, &size, sizeof sum);
    return static_cast<uint8_t>(sign | (sum - 0x46800000u));
  }
  const uint32_t rounded = rest + 0x7ffffu + (rest >> 20 & 1u);
  return static_cast<uint8_t>(sign | (rounded - 0x3c000000u) >> 20);
}

/// x = scale * out; the scale goes to `scale` [4 bytes].
void quantize_f8(const float* x, int head_dim, uint8_t* out, uint8_t* scale) {
  const Range range = range_of(x, head_dim);
  const float largest = -range.low > range.high ? -range.low : range.high;
  const float inverse = largest > kSmallestRange ? 448.0f / largest : 0.0f;
  for (int i = 0; i < head_dim; ++i) out[i] = to_f8(x[i] * inverse);
  const float step = largest / 448.0f + range.taint;
  __builtin_memcpy(scale, &step, sizeof step);
}

void write_kv_quantized_f8(const KvWriteTask& task) {
  prepare_heads(task);
  const int head_dim = task.head_dim;
  const Place place = place_of(task);
  uint8_t key[kMaxHeadDim], value[kMaxHeadDim];
  quantize_f8(task.key, head_dim, key, place.key_scale);
  quantize_f8(task.value, head_dim, value, place.value_scale);
  scatter<KvF8>(key, value, head_dim, place);
}

/// x = low + scale * out; the scale and `low` go to `scale` [4 bytes] as bf16.
void quantize_u4(const float* x, int head_dim, int8_t* out, uint8_t* scale) {
  const Range range = range_of(x, head_dim);
  float numbers[kLanes] = {0.0f, range.low + range.taint};
  uint16_t rounded[kLanes];
  float exact[kLanes];
  store_bf16(rounded, load(numbers));
  store(exact, load_bf16(rounded));
  const float low = exact[1];
  numbers[0] = (range.high - low) / 15.0f;
  store_bf16(rounded, load(numbers));
  store(exact, load_bf16(rounded));
  __builtin_memcpy(scale, rounded, kScaleBytes);
  const F32 inverse = set1(exact[0] > kSmallestRange ? 1.0f / exact[0] : 0.0f);
  for (int i = 0; i < head_dim; i += kLanes) {
    const F32 steps = mul(sub(load(x + i), set1(low)), inverse);
    store_i8(out + i, to_i32(max(zero(), min(steps, set1(15.0f)))));
  }
}

void write_kv_quantized_u4(const KvWriteTask& task) {
  prepare_heads(task);
  const int head_dim = task.head_dim;
  const Place place = place_of(task);
  // The last 32 dimensions of a value may be 16.
  int8_t key[kMaxHeadDim], value[kMaxHeadDim];
  quantize_u4(task.key, head_dim, key, place.key_scale);
  quantize_u4(task.value, head_dim, value, place.value_scale);
  if (head_dim % 32 != 0) __builtin_memset(value + head_dim, 0, 16);
  const auto both = [](int8_t low, int8_t high) { return static_cast<uint8_t>(low | high << 4); };
  for (int i = 0; i < head_dim; i += 4) {
    uint8_t* to = place.keys + (i / 4 * kKvLanes + place.lane) * 2;
    to[0] = both(key[i], key[i + 2]);
    to[1] = both(key[i + 1], key[i + 3]);
  }
  const int halves = (head_dim + 31) / 32 * 16;  // a value's bytes
  for (int i = 0; i < halves; ++i) {
    const int dim = i / 16 * 32 + i % 16;
    place.values[pair_place(place.lane, i, halves)] = both(value[dim], value[dim + 16]);
  }
}

}  // namespace

void write_kv_f32(const KvWriteTask& task);
void write_kv_bf16(const KvWriteTask& task);
void write_kv_f16(const KvWriteTask& task);
void write_kv_i8(const KvWriteTask& task);
void write_kv_f8(const KvWriteTask& task);
void write_kv_u4(const KvWriteTask& task);
void rotate_queries(const KvWriteTask& task);
void write_latent_f32(const LatentTask& task);
void write_latent_bf16(const LatentTask& task);
void write_latent_f16(const LatentTask& task);

void write_kv_f32(const KvWriteTask& task) { write_kv<KvF32>(task); }
void write_kv_bf16(const KvWriteTask& task) { write_kv<KvBF16>(task); }
void write_kv_f16(const KvWriteTask& task) { write_kv<KvF16>(task); }
void write_kv_i8(const KvWriteTask& task) { write_kv_quantized_i8(task); }
void write_kv_f8(const KvWriteTask& task) { write_kv_quantized_f8(task); }
void write_kv_u4(const KvWriteTask& task) { write_kv_quantized_u4(task); }
void rotate_queries(const KvWriteTask& task) { prepare_queries(task); }
void write_latent_f32(const LatentTask& task) { write_latent<KvF32>(task); }
void write_latent_bf16(const LatentTask& task) { write_latent<KvBF16>(task); }
void write_latent_f16(const LatentTask& task) { write_latent<KvF16>(task); }

}  // namespace headrace::HEADRACE_ISA
