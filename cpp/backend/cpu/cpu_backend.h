#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "headrace/options.h"

namespace headrace {

struct CpuBackendOptions {
  /// Threads, the caller's included. 0 = HEADRACE_NUM_THREADS, else the cores this process may use.
  int32_t num_threads = 0;
  /// "reference", "baseline", "avx2", "avx512", "avx512_bf16"; "" = HEADRACE_CPU_ISA, else the best
  /// this machine has. One that is unknown or unavailable throws Error(kUnsupported) naming those
  /// that are available.
  std::string isa;
  /// Upper bound on bytes_in_use(); 0 = none.
  size_t memory_limit = 0;
};

/// The CPU backend. Activations are float32; bf16 weights meet bf16-rounded activations only where
/// the ISA multiplies bf16 pairs (avx512_bf16), float32 ones elsewhere.
std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options = {});

}  // namespace headrace
