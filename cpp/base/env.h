#pragma once

// The only place that reads environment variables.

#include <cstdint>
#include <optional>
#include <string>

namespace headrace {

/// HEADRACE_NUM_THREADS: CPU threads, 1..1024. A malformed value throws Error(kInvalidArgument).
std::optional<int32_t> env_num_threads();

/// HEADRACE_CPU_ISA: force a kernel set, see CpuBackendOptions::isa.
std::optional<std::string> env_cpu_isa();

/// HEADRACE_NUMA_NODES: see parse_numa_nodes().
std::optional<std::string> env_numa_nodes();

/// HEADRACE_CUDA_KERNELS: "best" (default) or "plain": false and true, see
/// CudaBackendOptions::plain_kernels. Another value throws Error(kInvalidArgument).
bool env_cuda_plain_kernels();
/// HEADRACE_CUDA_GRAPHS: "on" (default) or "off", see CudaBackendOptions::record_steps. Another
/// value throws Error(kInvalidArgument).
bool env_cuda_graphs();
/// HEADRACE_CUDA_PEERS: "on" (default) or "off", see CudaBackendOptions::use_peers. Another value
/// throws Error(kInvalidArgument).
bool env_cuda_peers();
/// HEADRACE_NCCL: see CudaBackendOptions::nccl.
std::optional<std::string> env_nccl();

/// Where packed_weights="auto" and trials of GPUs keep their files: HEADRACE_CACHE, else
/// $XDG_CACHE_HOME/headrace, else $HOME/.cache/headrace, of which those that are no absolute paths
/// count as unset. Such a HEADRACE_CACHE throws Error(kInvalidArgument).
std::optional<std::string> env_cache_folder();

/// HEADRACE_LOG_LEVEL: "debug", "info", "warning" (default), "error" or "off".
std::optional<std::string> env_log_level();

}  // namespace headrace
