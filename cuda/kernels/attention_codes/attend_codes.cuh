#pragma once

// Attention over caches of codes: each file here compiles the kernels of one type of codes, so that
// they compile side by side.

#include "cuda/kernels/attention/attention_long.cuh"
#include "cuda/kernels/attention/attention_short.cuh"

namespace headrace::cuda {

/// Calls f(T{}, Int<head_dim>{}).
template <class F>
void with_queries(const AttentionArgs& args, F&& f) {
  with_half(args.dtype, [&](auto element) {
    with_mma_head_dim(args.shape.head_dim, [&](auto head_dim) { f(element, head_dim); });
  });
}

template <class Code>
void attention_codes_short(const AttentionArgs& args, Stream stream) {
  if (args.short_items.expected <= 0) return;
  with_queries(args, [&](auto element, auto head_dim) {
    using C = short_pieces::Config<decltype(element), Code, decltype(head_dim)::value>;
    short_pieces::run<C>(args, stream);
  });
}

template <class Code>
void attention_codes_long(const AttentionArgs& args, Stream stream) {
  if (args.long_items.expected <= 0) return;
  with_queries(args, [&](auto element, auto head_dim) {
    using C = long_pieces::Config<decltype(element), Code, decltype(head_dim)::value>;
    long_pieces::run<C>(args, stream);
  });
}

}  // namespace headrace::cuda
