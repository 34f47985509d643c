#pragma once

// Weights, vectors and adapters in device memory.

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/contract/backend.h"
#include "cuda/host/memory/device_memory.h"
#include "cuda/host/weights/uploader.h"
#include "cuda/kernels/linear/weight_layout.h"
#include "cuda/kernels/matrix.h"

namespace headrace::cuda {

/// A matrix as weight_layout.h lays it out, or one for each expert, one behind the other.
class DeviceWeight final : public PackedWeight {
 public:
  DeviceWeight(const WeightShape& shape, Backend::Buffer memory);

  /// Of one expert.
  const WeightLayout& layout() const noexcept { return layout_; }
  /// Its rows as they are stored: rows of the matrix unless layout().gate_up.
  ConstMatrix rows() const noexcept { return {data(), n(), k(), layout_.stride()}; }

 private:
  WeightLayout layout_;
  Backend::Buffer memory_;
};

/// What one adapter adds to one linear: A and B of each part, row-major in the storage dtype.
class DeviceLora final : public PackedLora {
 public:
  struct Part {
    const void* a = nullptr;  ///< [rank][k]
    const void* b = nullptr;  ///< [cols][rank]
    int32_t rank = 0, cols = 0, column = 0, scratch_column = 0;
    float scale = 1.0f;
  };

  DeviceLora(const LoraSpec& spec, std::vector<Part> parts, int64_t scratch_columns,
             Backend::Buffer memory);

  const std::vector<Part>& parts() const noexcept { return parts_; }
  DType storage() const noexcept { return storage_; }

 private:
  std::vector<Part> parts_;
  DType storage_;
  Backend::Buffer memory_;
};

/// Name of the layout, for Backend::weight_layout.
std::string device_weight_layout();
/// Throws Error(kLimitExceeded) if no memory could hold it. REQUIRES: not quantized.
size_t device_weight_bytes(const WeightShape& shape);

std::unique_ptr<PackedWeight> pack_device_weight(const WeightSpec& spec, DeviceMemory& memory,
                                                 Uploader& uploader);
TensorView pack_device_vector(const WeightPart& part, DType dtype, DeviceMemory& memory,
                              Uploader& uploader, Backend::Buffer* owner);
/// Complete when it returns.
std::unique_ptr<PackedLora> pack_device_lora(const LoraSpec& spec, DeviceMemory& memory,
                                             Uploader& uploader);

}  // namespace headrace::cuda
