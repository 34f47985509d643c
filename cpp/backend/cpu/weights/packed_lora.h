#pragma once

// Adapters in the layout of the low-rank kernels (kernels_lora.h).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/contract/backend.h"
#include "backend/cpu/kernels_lora.h"
#include "backend/host/host_memory.h"

namespace headrace {

class CpuLora final : public PackedLora {
 public:
  struct Part {
    int64_t rank = 0;
    int64_t column = 0, cols = 0;  ///< of the linear's output
    int64_t scratch_column = 0;
    int64_t blocks = 0;  ///< of A, `lanes` ranks each
    int64_t panels = 0;  ///< of B
    float scale = 1.0f;
    const std::byte* a = nullptr;
    const std::byte* b = nullptr;
  };

  CpuLora(const LoraSpec& spec, std::vector<Part> parts, int64_t scratch_columns,
          Backend::Buffer memory);

  DType storage() const noexcept { return storage_; }
  const std::vector<Part>& parts() const noexcept { return parts_; }
  int64_t blocks() const noexcept { return blocks_; }  ///< of all parts
  int64_t panels() const noexcept { return panels_; }

 private:
  DType storage_;
  std::vector<Part> parts_;
  int64_t blocks_ = 0, panels_ = 0;
  Backend::Buffer memory_;
};

/// Packs on the calling thread. Throws InternalError for a malformed spec and Error(kOutOfMemory)
/// when memory is short.
std::unique_ptr<CpuLora> pack_cpu_lora(const LoraSpec& spec, const LoraKernels& kernels,
                                       HostMemory& memory);

}  // namespace headrace
