#include "backend/checks/op_checks_attention.h"
#include "base/check.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/memory/device_kv_cache.h"
#include "cuda/kernels/rows/rope_kv_write.h"

namespace headrace::cuda {

namespace {

void check_rows(const TensorView& x, int64_t rows, int64_t cols) {
  HEADRACE_CHECK(x.shape.rank() == 2 && x.rows() == rows && x.cols() == cols &&
                     x.row_stride >= cols && x.data != nullptr,
                 x.rows(), " x ", x.cols());
}

/// Whether the norms' weights are float32.
bool has_float_norms(const QkvSpec& spec) {
  const TensorView &q = spec.q_norm, &k = spec.k_norm;
  HEADRACE_CHECK(q.data == nullptr || k.data == nullptr || q.dtype == k.dtype, dtype_name(q.dtype),
                 " and ", dtype_name(k.dtype));
  return (q.data == nullptr ? k : q).dtype == DType::kF32;
}

/// What doesn't depend on the step and the cache.
RopeKvWriteArgs write_args(const TensorView& qkv, const QkvSpec& spec, const RopeSpec& rope,
                           const TensorView& rope_table) {
  return {.dtype = qkv.dtype,
          .qkv = {qkv.data, qkv.rows(), qkv.cols(), qkv.row_stride},
          .num_heads = spec.num_heads,
          .q_norm = spec.q_norm.data,
          .k_norm = spec.k_norm.data,
          .float_norms = has_float_norms(spec),
          .norm = spec.norm,
          .v_norm = spec.v_norm,
          .norm_eps = spec.norm_eps,
          .q_factor = spec.q_factor,
          .rope_table = static_cast<const float*>(rope_table.data),
          .rope_stride = rope_table.row_stride,
          .rotary_dim = rope.rotary_dim,
          .interleaved = rope.style == RopeStyle::kInterleaved};
}

}  // namespace

const CudaBackend::GroupTables& CudaBackend::tables_of(const KvCache& cache, int32_t layer) const {
  HEADRACE_CHECK(step_.table_stride > 0, "the step has no sequences");
  return tables_[static_cast<size_t>(cache.layout().place(layer).group)];
}

void CudaBackend::rope_kv_write(TensorView qkv, const QkvSpec& spec, const RopeSpec& rope,
                                TensorView rope_table, KvCache& cache, int32_t layer) {
  check_cache_use(step_.batch, cache, {spec.num_heads, spec.num_kv_heads, spec.head_dim, layer});
  check_rows(qkv, step_.rows,
             (int64_t{spec.num_heads} + 2 * int64_t{spec.num_kv_heads}) * spec.head_dim);
  if (rope.rotary_dim > 0) check_rows(rope_table, step_.rows, rope.rotary_dim);
  check_qkv_spec(spec, qkv.dtype);
  const DeviceKvCache& device = device_cache(cache);
  const int64_t* const slots = tables_of(cache, layer).slots;
  const int32_t* const positions = spec.q_factor.beta == 0.0f ? nullptr : step_.positions;
  graphs_.note("rope_kv_write", qkv, spec.num_heads, spec.q_norm, spec.k_norm, spec.norm_eps,
               spec.norm, spec.v_norm, spec.q_factor.beta, spec.q_factor.original, positions,
               rope_table, rope.rotary_dim, rope.style, &cache, layer, slots);
  RopeKvWriteArgs args = write_args(qkv, spec, rope, rope_table);
  args.positions = positions;
  args.cache_dtype = cache.dtype();
  args.layout = device.kv_layout(layer);
  args.keys = device.keys(layer);
  args.values = device.values(layer);
  args.key_scales = device.key_scales(layer);
  args.value_scales = device.value_scales(layer);
  args.slots = slots;
  launch(cuda::rope_kv_write, args);
}

// The kernel for all three, of no keys and values.
void CudaBackend::rope_queries(TensorView q, const QkvSpec& spec, const RopeSpec& rope,
                               TensorView rope_table) {
  HEADRACE_CHECK(spec.num_heads > 0 && step_.table_stride > 0, spec.num_heads);
  check_rows(q, step_.rows, int64_t{spec.num_heads} * spec.head_dim);
  if (rope.rotary_dim > 0) check_rows(rope_table, step_.rows, rope.rotary_dim);
  check_qkv_spec(spec, q.dtype);
  const int64_t* const slots = tables_.front().slots;
  const int32_t* const positions = spec.q_factor.beta == 0.0f ? nullptr : step_.positions;
  graphs_.note("rope_queries", q, spec.num_heads, spec.q_norm, spec.norm_eps, spec.norm,
               spec.q_factor.beta, spec.q_factor.original, positions, rope_table, rope.rotary_dim,
               rope.style, slots);
  RopeKvWriteArgs args = write_args(q, spec, rope, rope_table);
  args.positions = positions;
  args.cache_dtype = q.dtype;
  args.layout = {.num_kv_heads = 0, .block_size = 1, .head_dim = spec.head_dim};
  args.slots = slots;
  launch(cuda::rope_kv_write, args);
}

void CudaBackend::attention(TensorView q, const AttentionSpec& spec, const KvCache& cache,
                            int32_t layer, TensorView out) {
  check_cache_use(step_.batch, cache, {spec.num_heads, spec.num_kv_heads, spec.head_dim, layer});
  const int64_t cols = int64_t{spec.num_heads} * spec.head_dim;
  check_rows(q, step_.rows, cols);
  check_rows(out, step_.rows, cols);
  check_attention_spec(spec);
  HEADRACE_CHECK(q.dtype == out.dtype, dtype_name(out.dtype));
  const bool latent = cache.layout().rows(layer).latent;
  const AttentionKind kind{q.dtype,    cache.dtype(), spec.head_dim, cache.block_size(),
                           spec.scale, spec.soft_cap, latent};
  const PlannedAttention& planned =
      planned_attention({spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.window,
                         attention_long_rows(kind, attends_by_wgmma_), spec.causal,
                         context_.properties().multiprocessors});
  const DeviceKvCache& device = device_cache(cache);
  const int32_t* const tables = tables_of(cache, layer).blocks;
  const bool plain = kv_has_scales(cache.dtype()) ? attends_codes_plainly_ : attends_plainly_;
  graphs_.note("attention", q, out, spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.window,
               spec.causal, spec.scale, spec.soft_cap, spec.sinks, &cache, layer, tables,
               step_.table_stride, planned.short_items.items, planned.short_items.expected,
               planned.long_items.items, planned.long_items.expected, attention_partials_.data,
               attention_counters_.data);
  launch(cuda::attention, {.dtype = q.dtype,
                           .cache_dtype = cache.dtype(),
                           .shape = planned.shape,
                           .scale = spec.scale,
                           .soft_cap = spec.soft_cap,
                           .sinks = static_cast<const float*>(spec.sinks.data),
                           .q = {q.data, q.rows(), q.cols(), q.row_stride},
                           .out = {out.data, out.rows(), out.cols(), out.row_stride},
                           .layout = device.kv_layout(layer),
                           .latent = latent,
                           .keys = device.keys(layer),
                           .values = device.values(layer),
                           .key_scales = device.key_scales(layer),
                           .value_scales = device.value_scales(layer),
                           .num_blocks = int64_t{device.num_blocks()} + 1,
                           .block_tables = tables,
                           .table_stride = step_.table_stride,
                           .short_items = planned.short_items,
                           .long_items = planned.long_items,
                           .partials = static_cast<float*>(attention_partials_.data),
                           .counters = static_cast<int32_t*>(attention_counters_.data),
                           .multiprocessors = context_.properties().multiprocessors,
                           .has_wgmma = attends_by_wgmma_ && !plain,
                           .plain = plain});
}

}  // namespace headrace::cuda
