#pragma once

// The reference's adapters: plain loops with double sums.

#include <memory>
#include <span>

#include "backend/contract/backend.h"
#include "backend/host/host_memory.h"

namespace headrace {

/// Any thread. REQUIRES: check_lora_spec().
std::unique_ptr<PackedLora> reference_pack_lora(const LoraSpec& spec, HostMemory& memory);

/// See Backend::lora.
void reference_lora(const TensorView& x, std::span<const LoraGroup> groups, const TensorView& out);

}  // namespace headrace
