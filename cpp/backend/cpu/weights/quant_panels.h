#pragma once

// Quantized weights in the layout of their kernels (kernels_quant.h).

#include <cstdint>
#include <memory>
#include <string>

#include "backend/contract/backend.h"
#include "backend/cpu/cpu_isa.h"
#include "backend/cpu/threads/thread_pool.h"
#include "backend/cpu/weights/panel_weight.h"
#include "backend/host/host_memory.h"

namespace headrace {

/// Each panel is a sequence of groups; behind all of them are the orders of a reordered
/// format.
class QuantPanels final : public PanelWeight {
 public:
  QuantPanels(const WeightShape& shape, const QuantKernels& kernels, Backend::Buffer memory);

  const QuantFormat& format() const noexcept { return format_; }
  /// [k] of an expert of a reordered format, null for others.
  const int32_t* order(int64_t expert = 0) const noexcept;
  /// Row `n` as float32 [k]. REQUIRES: not gate_up, not reordered, one expert.
  void read_row(int64_t n, float* out) const;

 private:
  QuantFormat format_;
};

/// Quantizes, or takes codes, and packs on the pool's threads, reading each source byte once; the
/// result doesn't depend on their number. Throws InternalError for a malformed spec and
/// Error(kOutOfMemory) when memory is short.
std::unique_ptr<QuantPanels> pack_quantized(const WeightSpec& spec, const CpuIsa& isa,
                                            HostMemory& memory, ThreadPool& pool);

/// Backend::weight_layout, packed_bytes and restore_weight, which throws Error(kCorruptFile) for an
/// order that is none.
std::string quant_layout_name(const QuantFormat& format, const QuantKernels& kernels);
size_t packed_quant_bytes(const WeightShape& shape, const QuantKernels& kernels);
std::unique_ptr<QuantPanels> restore_quantized(const WeightShape& shape,
                                               const QuantKernels& kernels,
                                               Backend::Buffer contents);

}  // namespace headrace
