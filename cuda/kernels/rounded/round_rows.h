#pragma once

#include "cuda/kernels/linear/linear.h"
#include "cuda/kernels/quant/quant_layout.h"

namespace headrace::cuda {

/// Where rounded rows lie: codes [rows][units * 128], then float32 scales [groups][scale_stride],
/// of the weight's layout that they will meet.
struct RoundedRows {
  int64_t rows = 0, stride = 0, groups = 0;
  int64_t scale_stride = 0;  ///< rows, rounded up: 128 bytes lie side by side

  RoundedRows(const QuantLayout& layout, int64_t count)
      : rows(count),
        stride(layout.units() * kQuantUnit),
        groups(layout.groups()),
        scale_stride((count + 31) / 32 * 32) {}
  int64_t scales_at() const { return rows * stride; }
  int64_t bytes() const { return scales_at() + groups * scale_stride * 4; }
};

/// Where a kernel that makes rows leaves them as codes, too: the bits of round_rows().
struct RoundedOut {
  void* data = nullptr;  ///< RoundedRows(layout, rows).bytes(), aligned to 16; null: nowhere
  QuantLayout layout = {};
};

struct RoundRowsArgs {
  DType dtype = DType::kBF16;
  ConstMatrix x;
  QuantLayout layout;   ///< of the weight; its format rounds_rows()
  void* out = nullptr;  ///< RoundedRows(layout, x.rows).bytes(), aligned to 16
  /// On the GPU: rows from *used_rows on aren't read, nor written. Null: there are none.
  const int32_t* used_rows = nullptr;
};

/// Rows as QuantFormat says, the codes behind k zero. A row's codes depend on the row alone. Moves
/// x, once or twice, and a byte for each element.
void round_rows(const RoundRowsArgs& args, Stream stream);

}  // namespace headrace::cuda
