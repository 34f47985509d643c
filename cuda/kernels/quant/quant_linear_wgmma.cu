#include "cuda/kernels/quant/quant_wgmma.cuh"

namespace headrace::cuda {
namespace {

// Of more rows than a small tile has, small tiles pay while slices of each run side by side: a
// large one has four times the products of a small one for twice the bytes.
bool takes_large_tiles(const QuantLinearArgs& args) {
  const int64_t rows = args.linear.x.rows;
  const int64_t small = divide_up<int64_t>(rows, kMostQuantSmallRows) *
                        (layout_of(args).matrix.stored_rows() / quant_wgmma::kGroupFeatures);
  return rows > kMostQuantSmallRows && small > args.linear.multiprocessors;
}

}  // namespace

bool quant_can_use_wgmma(const QuantLinearArgs& args) {
  const LinearArgs& linear = args.linear;
  const auto aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  return linear.has_wgmma && linear.dtype != DType::kF32 && aligned(linear.x.data) &&
         aligned(linear.weight) && linear.x.stride % 8 == 0 && linear.x.rows <= 0x7fffffff &&
         linear.layout.stored_rows() <= 0x7fffffff && linear.layout.k <= 0x3fffffff;
}

void quant_linear_wgmma(const QuantLinearArgs& args, Stream stream) {
  if (!takes_large_tiles(args)) return quant_linear_wgmma_few(args, stream);
  with_linear_types(args.linear, [&](auto element, auto result) {
    using T = decltype(element);
    using Out = decltype(result);
    with_bool(args.format.bits == 8, [&](auto wide) {
      constexpr int kBits = decltype(wide)::value ? 8 : 4;
      quant_wgmma::run<T, Out, quant_wgmma::LargeShape<kBits>>(args, stream);
    });
  });
}

}  // namespace headrace::cuda
