// The ops of quantized weights.

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/weights/quant_weight.h"
#include "cuda/kernels/quant/quant_embed.h"
#include "cuda/kernels/quant/quant_linear.h"
#include "cuda/kernels/rounded/round_rows.h"

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
  quantized.linear.has_wgmma = rounds_rows(quantized.format) ? codes_by_wgmma_ : quant_by_wgmma_;
  if (quantized.format.reordered) {
    const int64_t rows = std::min(args.x.rows, kMostReorderedRows);
    const auto elements = static_cast<size_t>(rows * quantized.linear.layout.stride());
    quantized.reordered = grow(quant_input_, elements * dtype_size(args.dtype));
    graphs_.note("reorder", quantized.reordered);
  }
  if (rounds_rows(quantized.format)) {
    const RoundedRows rows(weight->layout(), std::min(args.x.rows, kMostRoundedRows));
    quantized.rounded = grow(quant_input_, static_cast<size_t>(rows.bytes()));
    quantized.is_rounded = is_rounded(args.x, args.dtype, weight->layout());
    graphs_.note("round_rows", quantized.rounded, quantized.is_rounded);
  }
  launch(cuda::quant_linear, quantized);
  return true;
}

void CudaBackend::expect(const PackedWeight& weight) {
  expected_.reset();
  const auto* quantized = dynamic_cast<const QuantWeight*>(&weight);
  if (quantized == nullptr || quantized->experts() > 1) return;
  if (rounds_rows(quantized->layout().format)) expected_ = quantized->layout();
}

void CudaBackend::round_ahead(RmsNormArgs& args) {
  const std::optional<QuantLayout> layout = std::exchange(expected_, {});
  if (!norms_round_ || !layout || layout->matrix.k != args.out.cols || args.out.rows == 0 ||
      args.out.rows > kMostRoundedRows || !norm_can_round(args)) {
    return;
  }
  const RoundedRows rows(*layout, args.out.rows);
  args.rounded = {grow(quant_input_, static_cast<size_t>(rows.bytes())), *layout};
  graphs_.note("rounded", args.rounded.data, rows.bytes());
}

void CudaBackend::note_rounded(const RmsNormArgs& args) {
  if (args.rounded.data == nullptr) return;
  rounded_ahead_ = {.x = args.out, .dtype = args.dtype, .layout = args.rounded.layout};
}

bool CudaBackend::is_rounded(const ConstMatrix& x, DType dtype, const QuantLayout& layout) const {
  const RoundedAhead& ahead = rounded_ahead_;
  return ahead.x.data != nullptr && ahead.x.data == x.data && ahead.x.rows == x.rows &&
         ahead.x.cols == x.cols && ahead.x.stride == x.stride && ahead.dtype == dtype &&
         ahead.layout.matrix.k == layout.matrix.k && ahead.layout.format == layout.format;
}

}  // namespace headrace::cuda
