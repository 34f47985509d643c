#pragma once

#include <memory>
#include <string>

#include "backend/contract/backend.h"
#include "headrace/options.h"

namespace headrace {

struct CpuBackendOptions {
  /// Threads, the caller's included. 0 = HEADRACE_NUM_THREADS, else the cores this process may use.
  int32_t num_threads = 0;
  /// A share of the threads for each NUMA node, confined to its cores. Each has a contiguous range
  /// of the columns of every weight, in memory near it; the KV cache is spread over all. The
  /// results are the same bits.
  bool numa = false;
  /// As parse_numa_nodes() takes them; "" = HEADRACE_NUMA_NODES, else what the system tells.
  std::string numa_nodes{};
  /// "reference", "baseline", "avx2", "avx512", "avx512_bf16"; "" = HEADRACE_CPU_ISA, else the best
  /// this machine has. One that is unknown or unavailable throws Error(kUnsupported) naming those
  /// that are available.
  std::string isa{};
  /// Of several backends that share a model's work, this one: of all their `num_threads` it has its
  /// share, and of the NUMA nodes, if there are as many as ranks, whole ones of its own, to whose
  /// cores its threads are confined.
  RankPlace rank{};
  /// Upper bound on bytes_in_use(); 0 = none.
  size_t memory_limit = 0;
};

/// The CPU backend. Activations are float32; bf16 weights meet bf16-rounded activations only where
/// the ISA multiplies bf16 pairs (avx512_bf16), float32 ones elsewhere.
std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options = {});

}  // namespace headrace
