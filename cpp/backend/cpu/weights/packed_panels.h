#pragma once

// Weights in the layout of the linear kernels (kernels_linear.h), and embedding tables by rows.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/contract/backend.h"
#include "backend/cpu/cpu_isa.h"
#include "backend/cpu/threads/thread_pool.h"
#include "backend/cpu/weights/panel_weight.h"
#include "backend/host/host_memory.h"

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

/// Each panel is [k_groups][cols][group], zero-padded.
class PackedPanels final : public PanelWeight {
 public:
  PackedPanels(const WeightShape& shape, const PanelLayout& layout, Backend::Buffer memory);

  const PanelLayout& layout() const noexcept { return layout_; }
  /// Elements (row, 0 .. k) in storage dtype.
  struct Row {
    const std::byte* first;
    int64_t group_stride;  ///< elements between groups of layout().group adjacent elements
  };
  /// REQUIRES: not gate_up, one expert.
  Row row(int64_t n) const noexcept;

 private:
  PanelLayout layout_;
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
