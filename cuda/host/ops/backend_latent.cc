#include "backend/checks/op_checks_attention.h"
#include "base/checked_math.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/memory/device_kv_cache.h"
#include "cuda/host/ops/op_views.h"
#include "cuda/kernels/experts/grouped_linear.h"
#include "cuda/kernels/rows/latent_write.h"

namespace headrace::cuda {

// The experts' kernels, each group of columns an expert that has all rows.
void CudaBackend::grouped_linear(const GroupedLinear& args) {
  check_grouped_linear(args);
  const DeviceWeight& weight = device_weight(args.weight);
  HEADRACE_CHECK(args.x.dtype == weight.storage() && !weight.layout().gate_up,
                 dtype_name(args.x.dtype));
  graphs_.note("grouped_linear", args.x, args.x_step, &args.weight, args.out, args.out_step);
  const int64_t rows = args.x.rows(), groups = weight.experts();
  const int32_t tile_rows = grouped_tile_rows(args.x.dtype, false, rows, groups, groups);
  launch(cuda::grouped_linear, {.dtype = args.x.dtype,
                                .x = matrix(args.x.columns(0, weight.k())),
                                .weight = weight.data(),
                                .layout = weight.layout(),
                                .out = matrix(args.out.columns(0, weight.n())),
                                .num_tiles = groups * ceil_div<int64_t>(rows, tile_rows),
                                .tile_rows = tile_rows,
                                .x_step = args.x_step,
                                .out_step = args.out_step,
                                .multiprocessors = context_.properties().multiprocessors});
}

void CudaBackend::latent_write(TensorView q, TensorView kv, const LatentSpec& spec,
                               const RopeSpec& rope, TensorView rope_table, KvCache& cache,
                               int32_t layer, TensorView out) {
  check_cache_use(step_.batch, cache, {spec.num_heads, 1, spec.row_dim(), layer});
  check_latent(step_.rows, q, kv, spec, rope, rope_table, cache, layer, out);
  check_vector(spec.norm, spec.rank, q.dtype);
  HEADRACE_CHECK(kv.dtype == q.dtype && out.dtype == q.dtype, dtype_name(kv.dtype), " and ",
                 dtype_name(out.dtype));
  const DeviceKvCache& device = device_cache(cache);
  const int64_t* const slots = tables_of(cache, layer).slots;
  graphs_.note("latent_write", q, kv, spec.num_heads, spec.rank, spec.nope_dim, spec.rope_dim,
               spec.norm, spec.norm_eps, rope.style, rope_table, &cache, layer, out, slots);
  launch(cuda::latent_write, {.dtype = q.dtype,
                              .q = matrix(q),
                              .kv = matrix(kv),
                              .num_heads = spec.num_heads,
                              .rank = spec.rank,
                              .nope_dim = spec.nope_dim,
                              .rope_dim = spec.rope_dim,
                              .norm = spec.norm.data,
                              .norm_eps = spec.norm_eps,
                              .rope_table = static_cast<const float*>(rope_table.data),
                              .rope_stride = rope_table.row_stride,
                              .interleaved = rope.style == RopeStyle::kInterleaved,
                              .cache_dtype = cache.dtype(),
                              .layout = device.kv_layout(layer),
                              .rows = device.keys(layer),
                              .slots = slots,
                              .out = matrix(out)});
}

}  // namespace headrace::cuda
