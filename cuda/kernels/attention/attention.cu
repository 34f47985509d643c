#include "cuda/kernels/attention/attention.h"

#include "cuda/kernels/attention/attention_kernels.cuh"

namespace headrace::cuda {

size_t attention_partial_bytes(int64_t count, const AttentionShape& shape) {
  return sizeof(float) * static_cast<size_t>(count * shape.num_kv_heads * shape.parts() *
                                             kShortRows * partial_stride(shape.head_dim));
}

size_t attention_counter_bytes(int64_t sequences, const AttentionShape& shape) {
  return sizeof(int32_t) * static_cast<size_t>(sequences * shape.num_kv_heads * shape.parts());
}

int32_t attention_long_rows(const AttentionKind& kind, bool has_wgmma) {
  if (kind.latent && mma_can_attend(kind)) return kShortRows;
  return has_wgmma && wgmma_can_attend(kind) && kind.head_dim <= 128 ? kWgmmaRows : kLongRows;
}

void attention(const AttentionArgs& args, Stream stream) {
  const AttentionShape& shape = args.shape;
  HEADRACE_CHECK(shape.num_kv_heads >= 1 && shape.num_heads % shape.num_kv_heads == 0,
                 shape.num_heads, " on ", shape.num_kv_heads);
  HEADRACE_CHECK(args.layout.num_kv_heads == shape.num_kv_heads &&
                     args.layout.head_dim == shape.head_dim && args.layout.block_size >= 1,
                 args.layout.head_dim, " and ", shape.head_dim);
  const AttentionKind kind = kind_of(args);
  HEADRACE_CHECK(!args.latent || (shape.num_kv_heads == 1 && args.keys == args.values),
                 shape.num_kv_heads);
  HEADRACE_CHECK(!args.plain || !args.has_wgmma);
  HEADRACE_CHECK(shape.long_rows == attention_long_rows(kind, args.has_wgmma), shape.long_rows);
  HEADRACE_CHECK(!kv_has_scales(args.cache_dtype) ||
                 (args.key_scales != nullptr && args.value_scales != nullptr));
  if (args.plain || !can_use_mma(args)) return attention_generic(args, stream);
  if (args.latent) return attention_latent(args, stream);
  if (kv_has_scales(args.cache_dtype)) {
    return with_codes(args.cache_dtype, [&](auto code) {
      attention_codes_long<decltype(code)>(args, stream);
      attention_codes_short<decltype(code)>(args, stream);
    });
  }
  if (args.has_wgmma && wgmma_can_attend(kind)) {
    attention_wgmma(args, stream);
  } else {
    attention_mma_long(args, stream);
  }
  attention_mma_short(args, stream);
}

}  // namespace headrace::cuda
