#pragma once

// Weights in the layout of the linear kernels (kernels_linear.h), and embedding tables by rows.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/cpu_isa.h"
#include "backend/cpu/host_memory.h"
#include "backend/cpu/panel_columns.h"
#include "backend/cpu/thread_pool.h"

namespace headrace {

/// How a weight lies in memory.
struct PanelLayout {
  int32_t cols = 0;        ///< columns of a panel
  int32_t lanes = 0;       ///< columns before gate and up change places (gate_up only)
  int32_t group = 0;       ///< consecutive k of a column side by side
  bool gate_up = false;    ///< outputs are n/2; panels alternate gate and up
  bool row_major = false;  ///< [n][k] as it is: an embedding table, no panels
  int32_t element_bytes = 0;
};

/// Panels one after the other, each [k_groups][cols][group], zero-padded.
class PackedPanels final : public PackedWeight {
 public:
  PackedPanels(int64_t n, int64_t k, DType storage, const PanelLayout& layout,
               Backend::Buffer memory);

  const PanelLayout& layout() const noexcept { return layout_; }
  PanelCut cut() const noexcept { return {n(), layout_.cols, layout_.lanes, layout_.gate_up}; }
  int64_t num_panels() const noexcept { return cut().num_panels(); }
  int64_t k_groups() const noexcept;
  int64_t panel_bytes() const noexcept;
  const std::byte* panel(int64_t i) const noexcept {
    return static_cast<const std::byte*>(data()) + i * panel_bytes();
  }
  /// Elements (row, 0 .. k) in storage dtype.
  struct Row {
    const std::byte* first;
    int64_t group_stride;  ///< elements between groups of layout().group adjacent elements
  };
  /// REQUIRES: not gate_up.
  Row row(int64_t n) const noexcept;

 private:
  PanelLayout layout_;
  Backend::Buffer memory_;
};

/// The kernels for weights kept as `storage`.
const LinearFormat& linear_format(const LinearKernels& kernels, DType storage);

/// Packs on the pool's threads, reading each source byte once. Throws InternalError for a malformed
/// spec and Error(kOutOfMemory) when memory is short.
std::unique_ptr<PackedPanels> pack_panels(const WeightSpec& spec, const LinearKernels& kernels,
                                          HostMemory& memory, ThreadPool& pool);

/// Backend::weight_layout, packed_bytes and restore_weight.
std::string panel_layout_name(DType storage, const LinearKernels& kernels);
size_t packed_panel_bytes(const WeightShape& shape, const LinearKernels& kernels);
std::unique_ptr<PackedPanels> restore_panels(const WeightShape& shape, const LinearKernels& kernels,
                                             Backend::Buffer contents);

}  // namespace headrace
