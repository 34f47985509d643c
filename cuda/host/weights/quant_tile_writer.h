#pragma once

// A weight's rows, rounded or as they come, to the tiles of quant_layout.h.

#include <cstddef>
#include <vector>

#include "backend/contract/backend.h"
#include "cuda/kernels/quant/quant_layout.h"

namespace headrace::cuda {

/// Rows whose tiles are written at once: a unit of weight_layout.h's rows.
inline constexpr int64_t kTileRows = kWeightRowUnit;

/// Of one thread.
class QuantTileWriter {
 public:
  /// `rows`: which feature each stored row is; -1: none. All outlive this.
  QuantTileWriter(const WeightSpec& spec, const QuantLayout& layout,
                  const std::vector<int64_t>& rows);

  /// The tiles of stored rows [first, first + kTileRows) to `out`, kTileRows / kQuantTile *
  /// layout.tile_bytes(). Throws TensorError for a number or a scale that isn't finite.
  void write(int64_t first, std::byte* out);

 private:
  void read_codes(int64_t first, int64_t group);
  void round_numbers(int64_t first, int64_t group);
  void put_group(int64_t group, std::byte* out) const;
  void check_scales(const WeightPart& part, int64_t first, int64_t count) const;
  /// Of a format that rounds_rows():
  void measure_rows(int64_t first);
  void round_like_rows(int64_t first, int64_t group);
  void put_rounded(int64_t group, std::byte* out) const;

  const WeightSpec& spec_;
  const QuantLayout& layout_;
  const std::vector<int64_t>& rows_;
  std::vector<QuantizedGroup> groups_;  // of kTileRows rows
  std::vector<float> numbers_;          // [kTileRows][group_size]
  std::vector<float> tops_;             // of rows, the largest sizes
  std::vector<std::byte> panel_;
};

}  // namespace headrace::cuda
