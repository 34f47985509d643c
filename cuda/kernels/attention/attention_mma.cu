#include "cuda/kernels/attention/attention_long.cuh"
#include "cuda/kernels/attention/attention_short.cuh"

namespace headrace::cuda {

bool mma_can_attend(const AttentionKind& kind) {
  const int32_t d = kind.head_dim;
  const bool has_kernel =
      kind.latent ? latent_can_attend(d) : d == 64 || d == 80 || d == 96 || d == 128 || d == 256;
  return (kind.dtype == DType::kBF16 || kind.dtype == DType::kF16) &&
         (kind.dtype == kind.cache_dtype || kv_has_scales(kind.cache_dtype)) && has_kernel &&
         kind.scale > 0.0f && kind.block_size % kResolvedKeys == 0;
}

bool can_use_mma(const AttentionArgs& args) {
  const auto aligned = [](const void* data, int64_t stride) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
  };
  return mma_can_attend(kind_of(args)) && aligned(args.q.data, args.q.stride) &&
         aligned(args.out.data, args.out.stride) && aligned(args.keys, 0) &&
         aligned(args.values, 0) && aligned(args.key_scales, 0) && aligned(args.value_scales, 0);
}

void attention_mma_long(const AttentionArgs& args, Stream stream) {
  if (args.long_items.expected <= 0) return;
  with_half(args.dtype, [&](auto element) {
    with_mma_head_dim(args.shape.head_dim, [&](auto head_dim) {
      using T = decltype(element);
      long_pieces::run<long_pieces::Config<T, T, decltype(head_dim)::value>>(args, stream);
    });
  });
}

void attention_mma_short(const AttentionArgs& args, Stream stream) {
  if (args.short_items.expected <= 0) return;
  with_half(args.dtype, [&](auto element) {
    with_mma_head_dim(args.shape.head_dim, [&](auto head_dim) {
      using T = decltype(element);
      short_pieces::run<short_pieces::Config<T, T, decltype(head_dim)::value>>(args, stream);
    });
  });
}

}  // namespace headrace::cuda
