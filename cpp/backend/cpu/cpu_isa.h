#pragma once

// The kernel sets of the CPU backend. Each is a named object; one is chosen when a backend is made.

#include <span>
#include <string>

#include "backend/cpu/kernels_attention.h"
#include "backend/cpu/kernels_linear.h"
#include "backend/cpu/kernels_lora.h"
#include "backend/cpu/kernels_quant.h"
#include "backend/cpu/kernels_rows.h"
#include "backend/cpu/kernels_sample.h"
#include "backend/cpu/kernels_states.h"
#include "backend/cpu/vision/segment_kernels.h"
#include "backend/cpu/vision/vision_row_kernels.h"

namespace headrace {

struct CpuIsa {
  const char* name;
  const char* needs;    ///< CPU features, for messages
  bool (*available)();  ///< does this machine have them?
  const LinearKernels* linear;
  const QuantKernels* quant;
  const LoraKernels* lora;
  const RowKernels* rows;
  const AttentionKernels* attention;
  const SampleKernels* sample;
  const SegmentKernels* segments;
  const VisionRowKernels* vision_rows;
  const StateKernels* states;
};

/// All kernel sets, best first.
std::span<const CpuIsa> all_cpu_isas() noexcept;

/// The set of that name, or the best this machine has if `name` is empty. Throws
/// Error(kUnsupported), naming the available ones, if it is unknown or unavailable.
const CpuIsa& select_cpu_isa(const std::string& name);

}  // namespace headrace
