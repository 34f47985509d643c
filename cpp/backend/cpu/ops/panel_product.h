#pragma once

// Products of rows with a weight in panels, whatever is in a panel.

#include <cstddef>
#include <cstdint>

#include "backend/cpu/cpu_isa.h"
#include "backend/cpu/weights/panel_weight.h"
#include "tensor/tensor_view.h"

namespace headrace {

class QuantPanels;

/// How rows meet a weight: tiles of rows that pass a panel at once, in blocks that do so one after
/// the other while the panel is near.
struct RowBlocks {
  static constexpr int64_t kMostRows = 384;

  int64_t tile_rows;
  int64_t block_rows;  ///< whole tiles, kMostRows at most; the last block has what is left
};

/// A weight with the kernels of its format. Refers to the weight.
class PanelProduct {
 public:
  /// Throws InternalError unless the weight is one of panels.
  PanelProduct(const PackedWeight& weight, const CpuIsa& isa);

  const PanelWeight& weight() const noexcept { return *weight_; }
  /// Of a packed row of activations.
  int64_t row_bytes() const noexcept { return row_bytes_; }
  RowBlocks blocks_of(int64_t rows) const noexcept;
  /// Floats of a row's sums.
  int32_t panel_cols() const noexcept { return isa_->linear->panel_cols; }

  /// Packs `count` rows of x from `first` on, in tiles, for multiply().
  void pack_rows(const TensorView& x, int64_t first, int64_t count, int64_t tile_rows,
                 void* packed) const;
  /// Of rows that were packed one by one, packs rows[0, count) in tiles.
  void gather_rows(const void* singles, const int32_t* rows, int64_t count, int64_t tile_rows,
                   void* packed) const;
  /// Completes the task, which has all but the weight's part, and does it.
  void multiply(int64_t expert, int64_t panel, PanelTask& task) const;

 private:
  const CpuIsa* isa_;
  const PanelWeight* weight_;
  const QuantPanels* quantized_;  ///< the weight, or null
  const LinearFormat* dense_;     ///< or null
  int64_t row_bytes_;
};

/// The weight as one of panels; throws InternalError for others, embedding tables among them.
const PanelWeight& panels_of(const PackedWeight& weight);

/// Few rows are those with which reading weights takes as long as arithmetic.
inline constexpr int64_t kFewRows = 16;

}  // namespace headrace
