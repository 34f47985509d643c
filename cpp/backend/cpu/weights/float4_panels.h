#pragma once

// MXFP4 weights in the layout of their kernels (kernels_linear.h).

#include <cstdint>
#include <memory>
#include <string>

#include "backend/contract/backend.h"
#include "backend/cpu/kernels_linear.h"
#include "backend/cpu/threads/thread_pool.h"
#include "backend/cpu/weights/panel_weight.h"
#include "backend/host/host_memory.h"

namespace headrace {

/// Each panel is a sequence of groups.
class Float4Panels final : public PanelWeight {
 public:
  Float4Panels(const WeightShape& shape, const LinearKernels& kernels, Backend::Buffer memory);

  /// What they are like: those that weights kept as this dtype meet.
  DType activations() const noexcept { return activations_; }

 private:
  DType activations_;
};

/// The kernels for MXFP4 that meets such activations.
const LinearFormat& float4_format(const LinearKernels& kernels, DType activations);

/// Packs on the pool's threads, reading each source byte once. Throws InternalError for a malformed
/// spec, TensorError for a weight beyond float32, and Error(kOutOfMemory) when memory is short.
std::unique_ptr<Float4Panels> pack_float4(const WeightSpec& spec, const LinearKernels& kernels,
                                          HostMemory& memory, ThreadPool& pool);

/// Backend::weight_layout, packed_bytes and restore_weight.
std::string float4_layout_name(const LinearKernels& kernels);
size_t packed_float4_bytes(const WeightShape& shape, const LinearKernels& kernels);
std::unique_ptr<Float4Panels> restore_float4(const WeightShape& shape, const LinearKernels& kernels,
                                             Backend::Buffer contents);

}  // namespace headrace
