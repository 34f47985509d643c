#include "backend/cpu/ops/panel_product.h"

#include <algorithm>

#include "backend/cpu/weights/float4_panels.h"
#include "backend/cpu/weights/packed_panels.h"
#include "backend/cpu/weights/quant_panels.h"
#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {

namespace {

// Packed activations of a block of rows, which stay in the second-level cache while panels pass.
constexpr int64_t kBlockBytes = 512 * 1024;

// Smaller tiles spread few rows' arithmetic more evenly over the time of reading.
constexpr int64_t kFewRowsTile = 4;

/// Of a weight that isn't of integers.
const LinearFormat& format_of(const PackedWeight& weight, const LinearKernels& kernels) {
  const auto* float4 = dynamic_cast<const Float4Panels*>(&weight);
  return float4 == nullptr ? linear_format(kernels, weight.storage())
                           : float4_format(kernels, float4->activations());
}

/// Even shares of `count`, none above `most`.
int64_t even_share(int64_t count, int64_t most) { return ceil_div(count, ceil_div(count, most)); }

}  // namespace

const PanelWeight& panels_of(const PackedWeight& weight) {
  const auto* panels = dynamic_cast<const PanelWeight*>(&weight);
  const auto* dense = dynamic_cast<const PackedPanels*>(&weight);
  HEADRACE_CHECK(panels != nullptr && (dense == nullptr || !dense->layout().row_major),
                 "the weight was packed for another use");
  return *panels;
}

PanelProduct::PanelProduct(const PackedWeight& weight, const CpuIsa& isa)
    : isa_(&isa),
      weight_(&panels_of(weight)),
      quantized_(dynamic_cast<const QuantPanels*>(&weight)),
      dense_(quantized_ == nullptr ? &format_of(weight, *isa.linear) : nullptr),
      row_bytes_(quantized_ != nullptr
                     ? quant_row_bytes(*isa.quant, quantized_->format(), weight_->k_groups())
                     : weight_->k_groups() * dense_->group * dense_->activation_bytes) {}

RowBlocks PanelProduct::blocks_of(int64_t rows) const noexcept {
  int64_t most_tile = isa_->linear->tile_rows;
  if (quantized_ != nullptr) {
    most_tile = rows > kFewRows ? isa_->quant->many_tile_rows : isa_->quant->tile_rows;
  }
  if (rows <= kFewRows) most_tile = std::min(most_tile, kFewRowsTile);
  const int64_t most = std::clamp(kBlockBytes / row_bytes_, 4 * most_tile, RowBlocks::kMostRows);
  const int64_t even_block = even_share(rows, most);
  const int64_t tile_rows = even_share(even_block, most_tile);
  return {tile_rows, round_up(even_block, tile_rows)};
}

void PanelProduct::pack_rows(const TensorView& x, int64_t first, int64_t count, int64_t tile_rows,
                             void* packed) const {
  const RowsToPack rows{x.row<float>(first),     x.row_stride, count, x.cols(), tile_rows,
                        x.rows() - first - count};
  if (quantized_ != nullptr) {
    isa_->quant->pack_rows({rows, quantized_->format()}, packed);
  } else {
    dense_->pack_rows(rows, packed);
  }
}

void PanelProduct::gather_rows(const void* singles, const int32_t* rows, int64_t count,
                               int64_t tile_rows, void* packed) const {
  RowsToGather task{singles, rows, count, tile_rows, row_bytes_, row_bytes_, 0, 0};
  if (quantized_ != nullptr) {
    task.group_bytes = row_bytes_ / weight_->k_groups();
    task.group_words = 2;
    task.unit_bytes = isa_->quant->quad_bytes;
  } else {
    task.unit_bytes = int64_t{dense_->unit} * dense_->activation_bytes;
  }
  isa_->linear->gather_rows(task, packed);
}

void PanelProduct::multiply(int64_t expert, int64_t panel, PanelTask& task) const {
  task.panel = weight_->panel(panel, expert);
  task.k_groups = weight_->k_groups();
  if (quantized_ != nullptr) {
    isa_->quant->panel_product(task, quantized_->format());
  } else {
    dense_->panel_product(task);
  }
}

}  // namespace headrace
