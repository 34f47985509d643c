#pragma once

// Quantized weights in the layout of their kernels (kernels_quant.h).

#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/cpu_isa.h"
#include "backend/cpu/host_memory.h"
#include "backend/cpu/panel_columns.h"
#include "backend/cpu/thread_pool.h"

namespace headrace {

/// Panels one after the other, each a sequence of groups; then the order of a reordered format.
class QuantPanels final : public PackedWeight {
 public:
  QuantPanels(const WeightShape& shape, const QuantKernels& kernels, Backend::Buffer memory);

  const PanelCut& cut() const noexcept { return cut_; }
  const QuantFormat& format() const noexcept { return format_; }
  int64_t k_groups() const noexcept;
  int64_t panel_bytes() const noexcept;
  const std::byte* panel(int64_t i) const noexcept {
    return static_cast<const std::byte*>(data()) + i * panel_bytes();
  }
  /// [k] of a reordered format, null for others.
  const int32_t* order() const noexcept;
  /// Row `n` as float32 [k]. REQUIRES: not gate_up, not reordered.
  void read_row(int64_t n, float* out) const;

 private:
  PanelCut cut_;
  QuantFormat format_;
  Backend::Buffer memory_;
};

/// Quantizes, or takes codes, and packs on the pool's threads, reading each source byte once; the
/// result doesn't depend on their number. Throws InternalError for a malformed spec and
/// Error(kOutOfMemory) when memory is short.
std::unique_ptr<QuantPanels> pack_quantized(const WeightSpec& spec, const CpuIsa& isa,
                                            HostMemory& memory, ThreadPool& pool);

/// Backend::weight_layout, packed_bytes and restore_weight, which throws Error(kCorruptFile) for an
/// order that is none.
std::string quant_layout_name(const QuantKernels& kernels);
size_t packed_quant_bytes(const WeightShape& shape, const QuantKernels& kernels);
std::unique_ptr<QuantPanels> restore_quantized(const WeightShape& shape,
                                               const QuantKernels& kernels,
                                               Backend::Buffer contents);

}  // namespace headrace
