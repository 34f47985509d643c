#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/reference/reference_attention.h"

namespace headrace {

size_t CpuBackend::kv_block_bytes(const KvCacheSpec& spec) const {
  return reference_kv_block_bytes(spec);
}

std::unique_ptr<KvCache> CpuBackend::make_kv_cache(const KvCacheSpec& spec, int32_t num_blocks) {
  return make_reference_kv_cache(spec, num_blocks, memory_);
}

void CpuBackend::rope_kv_write(TensorView qkv, const QkvSpec& spec, const RopeSpec& rope,
                               TensorView rope_table, KvCache& cache, int32_t layer) {
  reference_rope_kv_write(step_, qkv, spec, rope, rope_table, cache, layer);
}

}  // namespace headrace
