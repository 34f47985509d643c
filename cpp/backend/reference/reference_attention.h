#pragma once

// The oracle's attention and cache: plain loops, sums in double.

#include <cstddef>
#include <memory>

#include "backend/contract/backend.h"
#include "backend/host/host_memory.h"

namespace headrace {

size_t reference_kv_block_bytes(const CacheLayout& layout);

std::unique_ptr<KvCache> make_reference_kv_cache(const CacheLayout& layout, int32_t num_blocks,
                                                 int32_t num_slots, HostMemory& memory);

/// The key and the value [head_dim] of one token, for tests.
void reference_kv_read(const KvCache& cache, int32_t layer, int32_t block, int32_t kv_head,
                       int32_t slot, float* key, float* value);

/// See Backend::rope_kv_write. `batch` is the current step's.
void reference_rope_kv_write(const StepBatch& batch, TensorView qkv, const QkvSpec& spec,
                             const RopeSpec& rope, TensorView rope_table, KvCache& cache,
                             int32_t layer);

/// See Backend::attention.
void reference_rope_queries(const StepBatch& batch, TensorView q, const QkvSpec& spec,
                            const RopeSpec& rope, TensorView rope_table);
void reference_latent_write(const StepBatch& batch, TensorView q, TensorView kv,
                            const LatentSpec& spec, const RopeSpec& rope, TensorView rope_table,
                            KvCache& cache, int32_t layer, TensorView out);
void reference_attention(const StepBatch& batch, TensorView q, const AttentionSpec& spec,
                         const KvCache& cache, int32_t layer, TensorView out);

}  // namespace headrace
