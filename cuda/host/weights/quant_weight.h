#pragma once

// Quantized weights in device memory.

#include <functional>
#include <memory>
#include <string>

#include "backend/contract/backend.h"
#include "cuda/host/memory/device_memory.h"
#include "cuda/host/weights/uploader.h"
#include "cuda/kernels/quant/quant_layout.h"

namespace headrace::cuda {

/// A matrix, or one for each expert, as quant_layout.h lays it out.
class QuantWeight final : public PackedWeight {
 public:
  QuantWeight(const WeightShape& shape, Backend::Buffer memory);

  const QuantLayout& layout() const noexcept { return layout_; }

 private:
  QuantLayout layout_;
  Backend::Buffer memory_;
};

/// Name of the layout, for Backend::weight_layout. Like what follows it throws Error(kUnsupported),
/// naming the remedy, for activations that are to be rounded.
std::string quant_weight_layout(const QuantFormat& format);
/// Throws Error(kLimitExceeded) if no memory could hold it.
size_t quant_weight_bytes(const WeightShape& shape);
std::unique_ptr<PackedWeight> pack_quant_weight(const WeightSpec& spec, DeviceMemory& memory,
                                                Uploader& uploader);
/// `contents`: quant_weight_bytes(shape) of device memory; `read` copies the order of a reordered
/// one to the host, which is checked: Error(kCorruptFile) if it names an input that there isn't.
std::unique_ptr<PackedWeight> restore_quant_weight(
    const WeightShape& shape, Backend::Buffer contents,
    const std::function<void(const void* device, void* host, size_t bytes)>& read);

}  // namespace headrace::cuda
