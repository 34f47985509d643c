#include "backend/cpu/kernels/kv_access.h"

// Compiled once per ISA.

namespace headrace::HEADRACE_ISA {
namespace {

void normalize(float* x, const float* weight, float eps, int head_dim) {
  F32 squares = zero();
  for (int i = 0; i < head_dim; i += kLanes) squares = fma(load(x + i), load(x + i), squares);
  const F32 mean = div(set1(reduce_add(squares)), set1(static_cast<float>(head_dim)));
  const F32 factor = div(set1(1.0f), sqrt(add(mean, set1(eps))));
  for (int i = 0; i < head_dim; i += kLanes) {
    store(x + i, mul(mul(load(x + i), factor), load(weight + i)));
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
  if (norm != nullptr) normalize(x, norm, task.norm_eps, task.cache->head_dim);
  if (task.interleaved) {
    rotate_pairs(x, task.cos_sin, task.rotary_dim / 2);
  } else {
    rotate_halves(x, task.cos_sin, task.rotary_dim / 2);
  }
}

template <class Kv>
void write_kv(const KvWriteTask& task) {
  using Element = typename Kv::Element;
  const int head_dim = task.cache->head_dim;
  for (int i = 0; i < task.num_queries; ++i) {
    prepare_head(task.queries + static_cast<int64_t>(i) * head_dim, task.q_norm, task);
  }
  prepare_head(task.key, task.k_norm, task);

  const int group = task.slot / kKvLanes, lane = task.slot % kKvLanes;
  Element narrow[kMaxHeadDim];
  for (int i = 0; i < head_dim; i += kLanes) Kv::narrow(narrow + i, load(task.key + i));
  Element* keys = key_group<Kv>(*task.cache, task.block, task.kv_head, group);
  for (int i = 0; i < head_dim; ++i) keys[Kv::key_index(i, lane)] = narrow[i];
  Element* values = value_group<Kv>(*task.cache, task.block, task.kv_head, group) +
                    static_cast<int64_t>(lane) * head_dim;
  for (int i = 0; i < head_dim; i += kLanes) Kv::narrow(values + i, load(task.value + i));
}

}  // namespace

void write_kv_f32(const KvWriteTask& task);
void write_kv_bf16(const KvWriteTask& task);
void write_kv_f16(const KvWriteTask& task);

void write_kv_f32(const KvWriteTask& task) { write_kv<KvF32>(task); }
void write_kv_bf16(const KvWriteTask& task) { write_kv<KvBF16>(task); }
void write_kv_f16(const KvWriteTask& task) { write_kv<KvF16>(task); }

}  // namespace headrace::HEADRACE_ISA
