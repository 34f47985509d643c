#pragma once

// Which cores are near which memory.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/threads/thread_pool.h"
#include "backend/host/cpu_affinity.h"

namespace headrace {

struct NumaNode {
  int32_t id = -1;  ///< the system's number; -1: not known
  CpuMask cpus;     ///< of the node's, those that this process may use: at least one
};

/// The nodes with cores that `usable` holds. One node with all of them where the system tells of
/// none. `root` is put before /sys (tests).
std::vector<NumaNode> find_numa_nodes(const CpuMask& usable, const std::string& root = "");

/// Nodes that someone chose instead (HEADRACE_NUMA_NODES): lists of CPUs such as "0-3,8;4-7", one
/// list a node. Throws Error(kInvalidArgument) for one that is malformed, overlaps or names a CPU
/// out of `usable`.
std::vector<NumaNode> parse_numa_nodes(const std::string& text, const CpuMask& usable,
                                       const std::string& root = "");

/// Those for `option`, which is as HEADRACE_NUMA_NODES; "" = that variable, else find_numa_nodes(),
/// of the CPUs that the calling thread may use.
std::vector<NumaNode> choose_numa_nodes(const std::string& option);

/// `num_threads` over the nodes, in proportion to their cores, at least one each. Throws
/// Error(kInvalidArgument) if they are too few for that.
std::vector<ThreadGroup> share_threads(int32_t num_threads, const std::vector<NumaNode>& nodes);

/// "0-3,8" as /sys has it; nullopt if it isn't that.
std::optional<CpuMask> parse_cpu_list(std::string_view text);
std::string format_cpu_list(const CpuMask& cpus);

/// Asks the system to keep the whole 2 MiB pages in a range near a node, and to bring there those
/// that are elsewhere. A hint: a system that refuses it costs speed alone.
void place_near(void* data, size_t bytes, int32_t node) noexcept;
/// The same, but the pages go to the nodes in turns.
void spread_over(void* data, size_t bytes, std::span<const NumaNode> nodes) noexcept;

}  // namespace headrace
