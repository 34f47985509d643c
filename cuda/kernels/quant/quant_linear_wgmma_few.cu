#include "cuda/kernels/quant/quant_wgmma.cuh"

namespace headrace::cuda {

void quant_linear_wgmma_few(const QuantLinearArgs& args, Stream stream) {
  const int64_t rows = args.linear.x.rows;
  with_linear_types(args.linear, [&](auto element, auto result) {
    using T = decltype(element);
    using Out = decltype(result);
    with_bool(args.format.bits == 8, [&](auto wide) {
      constexpr int kBits = decltype(wide)::value ? 8 : 4;
      if (rows <= 16)
        return quant_wgmma::run<T, Out, quant_wgmma::Shape<kBits, 1, 16>>(args, stream);
      if (rows <= 32)
        return quant_wgmma::run<T, Out, quant_wgmma::Shape<kBits, 1, 32>>(args, stream);
      quant_wgmma::run<T, Out, quant_wgmma::Shape<kBits, 1, kMostQuantSmallRows>>(args, stream);
    });
  });
}

}  // namespace headrace::cuda
