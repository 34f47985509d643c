#include "backend/reference/reference_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "backend/checks/op_checks_attention.h"
#include "backend/checks/op_checks_state.h"
#include "backend/host/array_kv_cache.h"
#include "backend/host/weight_source.h"
#include "tensor/float8.h"

namespace headrace {

namespace {

/// Blocks of float32 [layer of the group][token][k heads, then v heads][d], or a latent row, values
/// rounded to the cache's dtype.
class ReferenceKvCache final : public ArrayKvCache {
 public:
  ReferenceKvCache(const CacheLayout& layout, int32_t num_blocks, Backend::Buffer memory,
                   int32_t num_slots, Backend::Buffer states)
      : ArrayKvCache(layout, num_blocks, num_slots, std::move(states)),
        memory_(std::move(memory)),
        block_floats_(static_cast<int64_t>(reference_kv_block_bytes(layout) / sizeof(float))) {
    add_blocks(memory_.data, reference_kv_block_bytes(layout));
  }

  float* at(int32_t layer, const SeqSlice& seq, int32_t position) const {
    const std::span<const int32_t> table = seq.blocks[layout().place(layer).group];
    const int32_t size = block_size();
    return at(layer, table[static_cast<size_t>(position / size)], position % size);
  }

  float* at(int32_t layer, int32_t block, int32_t token) const {
    const int64_t row = int64_t{layout().place(layer).slot} * block_size() + token;
    return static_cast<float*>(memory_.data) + block * block_floats_ +
           row * layout().rows(layer).numbers();
  }

 private:
  Backend::Buffer memory_;
  int64_t block_floats_;
};

/// `weight` null: 1.
void normalize(float* x, int32_t count, const float* weight, float eps) {
  double sum = 0.0;
  for (int32_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  const double factor = 1.0 / std::sqrt(sum / count + static_cast<double>(eps));
  for (int32_t i = 0; i < count; ++i) {
    x[i] = static_cast<float>(x[i] * factor * (weight == nullptr ? 1.0 : double{weight[i]}));
  }
}

void rotate(float* head, const RopeSpec& rope, const float* table) {
  const int32_t pairs = rope.rotary_dim / 2;
  for (int32_t i = 0; i < pairs; ++i) {
    const bool neox = rope.style == RopeStyle::kNeox;
    float& first = head[neox ? i : 2 * i];
    float& second = head[neox ? i + pairs : 2 * i + 1];
    const double a = first, b = second, c = table[i], s = table[pairs + i];
    first = static_cast<float>(a * c - b * s);
    second = static_cast<float>(b * c + a * s);
  }
}

/// What a head's key or value [d] reads as from a cache of float8_e4m3: multiples of the largest
/// number's 448th, rounded to that type.
void quantize_float8(int32_t d, const float* x, float* out) {
  const auto [low, high] = std::minmax_element(x, x + d);
  const bool finite = std::all_of(x, x + d, [](float v) { return std::isfinite(v); });
  const float largest = std::max(-*low, *high);
  const float step = largest / 448.0f, inverse = largest > 1e-30f ? 448.0f / largest : 0.0f;
  for (int32_t i = 0; i < d; ++i) {
    out[i] = finite ? step * e4m3_to_f32(f32_to_e4m3(x[i] * inverse))
                    : std::numeric_limits<float>::quiet_NaN();
  }
}

/// What a head's key or value [d] reads as from a cache of int8 or uint4 (kv_cache.h). In float32:
/// rounded as the kernels round, so that the integers are the same.
void quantize(DType dtype, int32_t d, const float* x, float* out) {
  const auto [low, high] = std::minmax_element(x, x + d);
  const bool finite = std::all_of(x, x + d, [](float v) { return std::isfinite(v); });
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const bool u4 = dtype == DType::kU4;
  const float largest = std::max(-*low, *high);
  const float zero = u4 ? round_to(DType::kBF16, *low) : 0.0f;
  const float range = u4 ? (*high - zero) / 15.0f : largest / 127.0f;
  const float step = u4 ? round_to(DType::kBF16, range) : range;
  float inverse = u4 ? 1.0f / step : 127.0f / largest;
  if (!((u4 ? step : largest) > 1e-30f)) inverse = 0.0f;
  for (int32_t i = 0; i < d; ++i) {
    float steps = (x[i] - zero) * inverse;
    if (u4) steps = std::clamp(steps, 0.0f, 15.0f);
    out[i] = finite ? zero + step * std::nearbyintf(steps) : nan;
  }
}

/// Norms and rotations of a row's queries, or of its keys.
void prepare(float* x, int32_t heads, const QkvSpec& spec, const TensorView& norm,
             const RopeSpec& rope, const float* table) {
  const int32_t d = spec.head_dim;
  const float* weight = norm.data == nullptr ? nullptr : norm.as<float>();
  const auto normalize_heads = [&](QkNorm when) {
    if (weight == nullptr || spec.norm != when) return;
    for (int32_t h = 0; h < heads; ++h) normalize(x + h * d, d, weight, spec.norm_eps);
  };
  if (weight != nullptr && spec.norm == QkNorm::kRow) {
    normalize(x, heads * d, weight, spec.norm_eps);
  }
  normalize_heads(QkNorm::kHead);
  for (int32_t h = 0; h < heads; ++h) rotate(x + h * d, rope, table);
  normalize_heads(QkNorm::kHeadAfterRope);
}

void prepare_queries(float* q, int32_t position, const QkvSpec& spec, const RopeSpec& rope,
                     const float* table) {
  prepare(q, spec.num_heads, spec, spec.q_norm, rope, table);
  const float factor = spec.q_factor.at(position);
  for (int32_t i = 0; i < spec.num_heads * spec.head_dim; ++i) q[i] *= factor;
}

void write_row(float* qkv, int32_t position, const QkvSpec& spec, const RopeSpec& rope,
               const float* table, DType dtype, float* slot) {
  const int32_t d = spec.head_dim;
  float* k = qkv + spec.num_heads * d;
  float* v = k + spec.num_kv_heads * d;
  prepare_queries(qkv, position, spec, rope, table);
  prepare(k, spec.num_kv_heads, spec, spec.k_norm, rope, table);
  for (int32_t h = 0; spec.v_norm && h < spec.num_kv_heads; ++h) {
    normalize(v + h * d, d, nullptr, spec.norm_eps);
  }
  for (int32_t h = 0; h < 2 * spec.num_kv_heads; ++h) {
    if (dtype == DType::kI8 || dtype == DType::kU4) {
      quantize(dtype, d, k + h * d, slot + h * d);
      continue;
    }
    if (dtype == DType::kF8E4M3) {
      quantize_float8(d, k + h * d, slot + h * d);
      continue;
    }
    for (int32_t i = h * d; i < (h + 1) * d; ++i) slot[i] = round_to(dtype, k[i]);
  }
}

/// Head `h` of a row that sees [first, end): `keys(p)` and `values(p)` give the head's key and
/// value at position p.
template <class Keys, class Values>
void attend(const float* query, const AttentionSpec& spec, int32_t h, int32_t first, int32_t end,
            const Keys& keys, const Values& values, float* out) {
  const int32_t d = spec.head_dim;
  const double scale = spec.scale, cap = spec.soft_cap;
  std::vector<double> scores;
  for (int32_t p = first; p < end; ++p) {
    const float* key = keys(p);
    double dot = 0.0;
    for (int32_t j = 0; j < d; ++j) dot += static_cast<double>(query[j]) * key[j];
    const double score = dot * scale;
    scores.push_back(cap > 0.0 ? cap * std::tanh(score / cap) : score);
  }
  double largest = *std::max_element(scores.begin(), scores.end());
  double total = 0.0;
  if (spec.sinks.data != nullptr) {
    const double sink = spec.sinks.as<float>()[h];
    largest = std::max(largest, sink);
    total = std::exp(sink - largest);
  }
  std::vector<double> sums(static_cast<size_t>(d), 0.0);
  for (int32_t p = first; p < end; ++p) {
    const double weight = std::exp(scores[static_cast<size_t>(p - first)] - largest);
    const float* value = values(p);
    total += weight;
    for (int32_t j = 0; j < d; ++j) sums[static_cast<size_t>(j)] += weight * value[j];
  }
  for (int32_t j = 0; j < d; ++j) out[j] = static_cast<float>(sums[static_cast<size_t>(j)] / total);
}

}  // namespace

size_t reference_kv_block_bytes(const CacheLayout& layout) {
  check_cache_layout(layout, 0);
  int64_t most = 0;
  for (const CacheGroup& group : layout.groups) {
    most = std::max(most, group.num_layers * group.rows.numbers());
  }
  return sizeof(float) * static_cast<size_t>(most) * static_cast<size_t>(layout.block_size);
}

std::unique_ptr<KvCache> make_reference_kv_cache(const CacheLayout& layout, int32_t num_blocks,
                                                 int32_t num_slots, HostMemory& memory) {
  check_cache_layout(layout, num_blocks);
  check_num_slots(layout, num_slots);
  return std::make_unique<ReferenceKvCache>(
      layout, num_blocks,
      memory.allocate(reference_kv_block_bytes(layout) * static_cast<size_t>(num_blocks)),
      num_slots,
      num_slots > 0 ? memory.allocate(host_state_bytes(layout, num_slots)) : Backend::Buffer{});
}

void reference_kv_read(const KvCache& cache, int32_t layer, int32_t block, int32_t kv_head,
                       int32_t slot, float* key, float* value) {
  const PagedRows& rows = cache.layout().rows(layer);
  const int32_t heads = rows.num_kv_heads, d = rows.key_dim;
  const float* from = dynamic_cast<const ReferenceKvCache&>(cache).at(layer, block, slot);
  std::copy_n(from + kv_head * d, d, key);
  std::copy_n(from + (heads + kv_head) * d, d, value);
}

void reference_rope_kv_write(const StepBatch& batch, TensorView qkv, const QkvSpec& spec,
                             const RopeSpec& rope, TensorView rope_table, KvCache& cache,
                             int32_t layer) {
  check_rope_kv_write(batch, qkv, spec, rope, rope_table, cache, layer);
  auto& slots = dynamic_cast<ReferenceKvCache&>(cache);
  for (const SeqSlice& seq : batch.seqs) {
    for (int32_t i = 0; i < seq.num_rows; ++i) {
      const int32_t row = seq.first_row + i;
      write_row(qkv.row<float>(row), batch.positions[static_cast<size_t>(row)], spec, rope,
                rope_table.row<float>(row), cache.dtype(), slots.at(layer, seq, seq.start_pos + i));
    }
  }
}

void reference_rope_queries(const StepBatch& batch, TensorView q, const QkvSpec& spec,
                            const RopeSpec& rope, TensorView rope_table) {
  check_rope_queries(batch, q, spec, rope, rope_table);
  for (int64_t row = 0; row < q.rows(); ++row) {
    prepare_queries(q.row<float>(row), batch.positions[static_cast<size_t>(row)], spec, rope,
                    rope_table.row<float>(row));
  }
}

void reference_latent_write(const StepBatch& batch, TensorView q, TensorView kv,
                            const LatentSpec& spec, const RopeSpec& rope, TensorView rope_table,
                            KvCache& cache, int32_t layer, TensorView out) {
  check_latent_write(batch, q, kv, spec, rope, rope_table, cache, layer, out);
  auto& slots = dynamic_cast<ReferenceKvCache&>(cache);
  const int32_t written = spec.rank + spec.rope_dim, row_dim = spec.row_dim();
  for (const SeqSlice& seq : batch.seqs) {
    for (int32_t i = 0; i < seq.num_rows; ++i) {
      const int32_t row = seq.first_row + i;
      const float* const table = rope_table.row<float>(row);
      float* const x = kv.row<float>(row);
      normalize(x, spec.rank, spec.norm.as<float>(), spec.norm_eps);
      rotate(x + spec.rank, rope, table);
      float* const slot = slots.at(layer, seq, seq.start_pos + i);
      for (int32_t j = 0; j < written; ++j) slot[j] = round_to(cache.dtype(), x[j]);
      std::fill(slot + written, slot + row_dim, 0.0f);
      for (int32_t h = 0; h < spec.num_heads; ++h) {
        float* const to = out.row<float>(row) + h * row_dim + spec.rank;
        std::copy_n(q.row<float>(row) + h * spec.query_dim() + spec.nope_dim, spec.rope_dim, to);
        rotate(to, rope, table);
        std::fill(to + spec.rope_dim, to + row_dim - spec.rank, 0.0f);
      }
    }
  }
}

void reference_attention(const StepBatch& batch, TensorView q, const AttentionSpec& spec,
                         const KvCache& cache, int32_t layer, TensorView out) {
  check_attention(batch, q, spec, cache, layer, out);
  const auto& slots = dynamic_cast<const ReferenceKvCache&>(cache);
  const int32_t d = spec.head_dim;
  const int32_t values = cache.layout().rows(layer).latent ? 0 : spec.num_kv_heads * d;
  for (const SeqSlice& seq : batch.seqs) {
    for (int32_t i = 0; i < seq.num_rows; ++i) {
      const int32_t row = seq.first_row + i;
      const int32_t position = seq.start_pos + i;
      const int32_t first = spec.window > 0 ? std::max(0, position - spec.window + 1) : 0;
      const int32_t end =
          attention_end(spec, position, seq.start_pos + seq.num_rows, sight_at(seq, position).seen);
      for (int32_t h = 0; h < spec.num_heads; ++h) {
        const int32_t kv_head = h / (spec.num_heads / spec.num_kv_heads);
        attend(
            q.row<float>(row) + h * d, spec, h, first, end,
            [&](int32_t p) { return slots.at(layer, seq, p) + kv_head * d; },
            [&](int32_t p) { return slots.at(layer, seq, p) + values + kv_head * d; },
            out.row<float>(row) + h * d);
      }
    }
  }
}

}  // namespace headrace
