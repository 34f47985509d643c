// The ops of quantized weights.

#include <algorithm>

#include "base/check.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/quant/quant_weight.h"
#include "cuda/kernels/quant/quant_embed.h"
#include "cuda/kernels/quant/quant_linear.h"

namespace headrace::cuda {

bool CudaBackend::embed_quantized(const PackedWeight& table, const EmbedArgs& args) {
  const auto* weight = dynamic_cast<const QuantWeight*>(&table);
  if (weight == nullptr) return false;
  QuantEmbedArgs quantized{.embed = args, .layout = weight->layout()};
  quantized.embed.table.data = weight->data();
  launch(cuda::quant_embed, quantized);
  return true;
}

bool CudaBackend::run_quantized(const PackedWeight& packed, const LinearArgs& args) {
  const auto* weight = dynamic_cast<const QuantWeight*>(&packed);
  if (weight == nullptr) return false;
  QuantLinearArgs quantized{.linear = args, .format = weight->layout().format};
  quantized.linear.weight = weight->data();
  quantized.linear.layout = weight->layout().matrix;
  if (quantized.format.reordered) {
    const int64_t rows = std::min(args.x.rows, kMostReorderedRows);
    const auto elements = static_cast<size_t>(rows * quantized.linear.layout.stride());
    quantized.reordered = grow(quant_input_, elements * dtype_size(args.dtype));
    graphs_.note("reorder", quantized.reordered);
  }
  launch(cuda::quant_linear, quantized);
  return true;
}

}  // namespace headrace::cuda
