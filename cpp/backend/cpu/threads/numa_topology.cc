#include "backend/cpu/threads/numa_topology.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "backend/host/cpu_info.h"
#include "base/check.h"
#include "base/env.h"

namespace headrace {

namespace {

constexpr int32_t kMaxNodes = 1024;

std::optional<int32_t> read_number(std::string_view& text) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

/// The list in a file of one line, or nullopt.
std::optional<CpuMask> list_in(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return parse_cpu_list(line);
}

/// Nodes of memory, as the system wants to have them.
class NodeMask {
 public:
  bool add(int32_t node) noexcept {
    constexpr int32_t kBits = 8 * sizeof(unsigned long);
    if (node < 0 || node >= kMaxNodes) return false;
    words_[node / kBits] |= 1ul << (node % kBits);
    return true;
  }
  /// Of the whole huge pages in the range: a smaller piece of one would be taken out of it.
  void bind(void* data, size_t bytes, int mode) const noexcept {
    constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
    const auto begin = reinterpret_cast<uintptr_t>(data);
    const uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
    const uintptr_t last = (begin + bytes) / kHugePage * kHugePage;
    if (last <= first) return;
    ::syscall(SYS_mbind, first, last - first, mode, words_, kMaxNodes + 1, MPOL_MF_MOVE);
  }

 private:
  unsigned long words_[kMaxNodes / (8 * sizeof(unsigned long))] = {};
};

std::string nodes_folder(const std::string& root) { return root + "/sys/devices/system/node"; }

[[noreturn]] void refuse(const std::string& text, std::string_view part, const char* problem) {
  throw_error(ErrorCode::kInvalidArgument, "the NUMA nodes are to be '", text, "', where '", part,
              "' ", problem, ": set HEADRACE_NUMA_NODES to the CPUs of each, as in 0-3;4-7, or ",
              "unset it.");
}

}  // namespace

std::optional<CpuMask> parse_cpu_list(std::string_view text) {
  CpuMask mask;
  while (!text.empty()) {
    const auto first = read_number(text);
    auto last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      last = read_number(text);
    }
    if (!first || !last || *last < *first || *last >= CpuMask::kMaxCpus) return std::nullopt;
    for (int32_t cpu = *first; cpu <= *last; ++cpu) mask.add(cpu);
    if (text.empty()) break;
    if (!text.starts_with(',') || text.size() == 1) return std::nullopt;
    text.remove_prefix(1);
  }
  return mask;
}

std::string format_cpu_list(const CpuMask& cpus) {
  std::string out;
  for (int32_t cpu = 0; cpu < CpuMask::kMaxCpus; ++cpu) {
    if (!cpus.contains(cpu)) continue;
    const int32_t first = cpu;
    while (cpus.contains(cpu + 1)) ++cpu;
    if (!out.empty()) out += ',';
    out += cpu == first ? str_cat(first) : str_cat(first, "-", cpu);
  }
  return out;
}

std::vector<NumaNode> find_numa_nodes(const CpuMask& usable, const std::string& root) {
  std::vector<NumaNode> nodes;
  // Lists of nodes look like lists of CPUs.
  const CpuMask online = list_in(nodes_folder(root) + "/online").value_or(CpuMask{});
  CpuMask found;
  for (int32_t id = 0; id < kMaxNodes; ++id) {
    if (!online.contains(id)) continue;
    const auto cpus = list_in(str_cat(nodes_folder(root), "/node", id, "/cpulist"));
    if (!cpus) continue;
    const CpuMask own = *cpus & usable;
    if (own.count() == 0 || (own & found).count() > 0) continue;
    nodes.push_back({id, own});
    for (int32_t cpu = 0; cpu < CpuMask::kMaxCpus; ++cpu) {
      if (own.contains(cpu)) found.add(cpu);
    }
  }
  if (nodes.empty()) nodes.push_back({-1, usable});
  return nodes;
}

std::vector<NumaNode> parse_numa_nodes(const std::string& text, const CpuMask& usable,
                                       const std::string& root) {
  const std::vector<NumaNode> real = find_numa_nodes(usable, root);
  std::vector<NumaNode> nodes;
  for (std::string_view rest = text;;) {
    const std::string_view part = rest.substr(0, rest.find(';'));
    const auto cpus = parse_cpu_list(part);
    if (!cpus || cpus->count() == 0) refuse(text, part, "is no list of CPUs");
    if ((*cpus & usable) != *cpus) refuse(text, part, "has CPUs that this process may not use");
    NumaNode node{-1, *cpus};
    for (const NumaNode& each : real) {
      if ((each.cpus & *cpus).count() > 0 && node.id < 0) node.id = each.id;
    }
    for (const NumaNode& other : nodes) {
      if ((other.cpus & *cpus).count() > 0) refuse(text, part, "has CPUs of a node before it");
    }
    nodes.push_back(node);
    if (part.size() == rest.size()) return nodes;
    rest.remove_prefix(part.size() + 1);
  }
}

std::vector<NumaNode> choose_numa_nodes(const std::string& option) {
  const CpuMask usable = usable_cpus();
  const std::string chosen = option.empty() ? env_numa_nodes().value_or("") : option;
  return chosen.empty() ? find_numa_nodes(usable) : parse_numa_nodes(chosen, usable);
}

std::vector<ThreadGroup> share_threads(int32_t num_threads, const std::vector<NumaNode>& nodes) {
  const auto count = static_cast<int32_t>(nodes.size());
  if (num_threads < count) {
    throw_error(ErrorCode::kInvalidArgument, "num_threads is ", num_threads, ", but each of the ",
                count, " NUMA nodes needs one: raise it to ", count,
                " or more, or set device to cpu");
  }
  std::vector<ThreadGroup> groups;
  std::vector<int64_t> cores;
  for (const NumaNode& node : nodes) {
    groups.push_back({1, node.cpus});
    cores.push_back(node.cpus.count());
  }
  // Each further thread goes where most cores are left for one.
  for (int32_t left = num_threads - count; left > 0; --left) {
    size_t best = 0;
    for (size_t i = 1; i < groups.size(); ++i) {
      if ((groups[i].threads + 1) * cores[best] < (groups[best].threads + 1) * cores[i]) best = i;
    }
    ++groups[best].threads;
  }
  return groups;
}

void place_near(void* data, size_t bytes, int32_t node) noexcept {
  NodeMask mask;
  if (mask.add(node)) mask.bind(data, bytes, MPOL_PREFERRED);
}

void spread_over(void* data, size_t bytes, std::span<const NumaNode> nodes) noexcept {
  NodeMask mask;
  for (const NumaNode& node : nodes) {
    if (!mask.add(node.id)) return;
  }
  mask.bind(data, bytes, MPOL_INTERLEAVE);
}

}  // namespace headrace
