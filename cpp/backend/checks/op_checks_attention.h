#pragma once

// More of op_checks.h: the contracts of the KV cache, of the ops that use it and of sample().
// Each throws InternalError.

#include <span>

#include "backend/contract/backend.h"

namespace headrace {

/// Are there caches of that dtype?
bool storable_kv(DType dtype) noexcept;
void check_cache_layout(const CacheLayout& layout, int32_t num_blocks);
/// The heads that an op has, and the layer that it works on.
struct CacheUse {
  int32_t num_heads, num_kv_heads, head_dim, layer;
};
void check_cache_use(const StepBatch& batch, const KvCache& cache, const CacheUse& use);
/// What both say of norms, factors, caps and sinks, whose data may be anywhere.
void check_qkv_spec(const QkvSpec& spec, DType act);
void check_attention_spec(const AttentionSpec& spec);
void check_rope_kv_write(const StepBatch& batch, const TensorView& qkv, const QkvSpec& spec,
                         const RopeSpec& rope, const TensorView& rope_table, const KvCache& cache,
                         int32_t layer);
/// Block ids are looked at for the first layer of each group only: the same tables serve the
/// others.
void check_rope_queries(const StepBatch& batch, const TensorView& q, const QkvSpec& spec,
                        const RopeSpec& rope, const TensorView& rope_table);
void check_grouped_linear(const GroupedLinear& args);
/// `rows`: of the step. All but the step's tables.
void check_latent(int64_t rows, const TensorView& q, const TensorView& kv, const LatentSpec& spec,
                  const RopeSpec& rope, const TensorView& rope_table, const KvCache& cache,
                  int32_t layer, const TensorView& out);
void check_latent_write(const StepBatch& batch, const TensorView& q, const TensorView& kv,
                        const LatentSpec& spec, const RopeSpec& rope, const TensorView& rope_table,
                        const KvCache& cache, int32_t layer, const TensorView& out);
void check_attention(const StepBatch& batch, const TensorView& q, const AttentionSpec& spec,
                     const KvCache& cache, int32_t layer, const TensorView& out);
void check_sample(const TensorView& logits, int32_t vocab_size, std::span<const SampleRow> rows,
                  std::span<const SampleResult> results);

}  // namespace headrace
