#pragma once

// Which feature of a weight lies in which column of which panel.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/contract/backend.h"
#include "backend/host/weight_source.h"
#include "base/checked_math.h"

namespace headrace {

/// How a weight is cut into panels of columns (kernels_linear.h).
struct PanelCut {
  int64_t n = 0;         ///< features of the weight
  int32_t cols = 0;      ///< columns of a panel
  int32_t lanes = 0;     ///< columns before gate and up change places (gate_up only)
  bool gate_up = false;  ///< outputs are n/2; panels alternate gate and up

  /// Features that epilogues produce.
  int64_t outputs() const noexcept { return gate_up ? n / 2 : n; }
  /// Outputs a full panel produces.
  int32_t panel_outputs() const noexcept { return gate_up ? cols / 2 : cols; }
  int64_t num_panels() const noexcept { return ceil_div(outputs(), int64_t{panel_outputs()}); }
};

/// Where a panel's column comes from. `panel`: of an expert's, `parts`: the expert's.
WeightColumn panel_column(std::span<const WeightPart> parts, const PanelCut& cut, int64_t panel,
                          int32_t column);

/// A panel's columns, kBlock elements of k at a time.
template <class Element>
class ColumnBlock {
 public:
  static constexpr int64_t kBlock = 256;

  explicit ColumnBlock(int32_t cols)
      : columns_(static_cast<size_t>(cols)), block_(columns_.size() * kBlock) {}

  size_t cols() const noexcept { return columns_.size(); }
  /// [kBlock] elements of a column; those that gather() didn't reach are 0.
  const Element* column(size_t c) const noexcept { return &block_[c * kBlock]; }

  void choose(std::span<const WeightPart> parts, const PanelCut& cut, int64_t panel) {
    for (size_t c = 0; c < columns_.size(); ++c) {
      columns_[c] = panel_column(parts, cut, panel, static_cast<int32_t>(c));
    }
  }

  /// Fills columns with k in [first, first + count). `read(part, element, count, out)` gives
  /// adjacent elements of a part's data.
  template <class Read>
  void gather(int64_t first, int64_t count, const Read& read) {
    std::fill(block_.begin(), block_.end(), Element{});
    for (size_t c = 0; c < columns_.size();) {
      const WeightColumn& column = columns_[c];
      if (column.part == nullptr) {
        ++c;
      } else if (!column.part->transposed) {
        read(*column.part, column.feature * column.part->row_stride + first, count,
             &block_[c * kBlock]);
        ++c;
      } else {
        c += gather_run(c, first, count, read);
      }
    }
  }

 private:
  /// Columns from `c` on that lie beside each other in a transposed part, as far apart as its
  /// features; returns how many.
  template <class Read>
  size_t gather_run(size_t c, int64_t first, int64_t count, const Read& read) {
    const WeightColumn start = columns_[c];
    const auto stride = static_cast<size_t>(start.part->feature_stride);
    size_t length = 1;
    while (c + length < columns_.size() && columns_[c + length].part == start.part &&
           columns_[c + length].feature == start.feature + static_cast<int64_t>(length) &&
           length * stride < kBlock) {
      ++length;
    }
    const auto width = static_cast<int64_t>((length - 1) * stride + 1);
    Element run[kBlock];
    for (int64_t i = 0; i < count; ++i) {
      read(*start.part,
           (first + i) * start.part->row_stride + start.feature * start.part->feature_stride, width,
           run);
      for (size_t j = 0; j < length; ++j) {
        block_[(c + j) * kBlock + static_cast<size_t>(i)] = run[j * stride];
      }
    }
    return length;
  }

  std::vector<WeightColumn> columns_;
  std::vector<Element> block_;
};

/// The codes of a panel's columns, group by group.
class CodeColumns {
 public:
  explicit CodeColumns(const PanelCut& cut)
      : cut_(cut), columns_(static_cast<size_t>(cut.cols)), groups_(columns_.size()) {}

  void choose(std::span<const WeightPart> parts, int64_t panel);
  /// Of each column, as long as nothing else is read; zero for those that there are none of. Throws
  /// TensorError naming a part of which `is_good` refuses a group.
  template <class IsGood>
  std::span<const QuantizedGroup> read(int64_t group, const IsGood& is_good) {
    for (size_t c = 0; c < columns_.size();) c += read_run(c, group);
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (columns_[c].part != nullptr && !is_good(groups_[c])) refuse_scales(*columns_[c].part);
    }
    return groups_;
  }

 private:
  /// Columns from `c` on that lie side by side in a part; returns how many.
  size_t read_run(size_t c, int64_t group);

  PanelCut cut_;
  std::vector<WeightColumn> columns_;
  std::vector<QuantizedGroup> groups_;
};

}  // namespace headrace
