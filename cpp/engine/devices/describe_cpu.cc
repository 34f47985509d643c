#include <fstream>
#include <span>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_isa.h"
#include "backend/cpu/threads/numa_topology.h"
#include "backend/host/cpu_info.h"
#include "base/env.h"
#include "headrace/cpu.h"

namespace headrace {

namespace {

struct Feature {
  const char* name;
  bool (*present)();
};

#define HEADRACE_FEATURE(name, key)                       \
  Feature {                                               \
    name, [] { return __builtin_cpu_supports(key) != 0; } \
  }

const Feature kAvx2[] = {HEADRACE_FEATURE("AVX2", "avx2"), HEADRACE_FEATURE("FMA", "fma"),
                         HEADRACE_FEATURE("F16C", "f16c")};
const Feature kAvx512[] = {
    HEADRACE_FEATURE("AVX512F", "avx512f"), HEADRACE_FEATURE("AVX512BW", "avx512bw"),
    HEADRACE_FEATURE("AVX512VL", "avx512vl"), HEADRACE_FEATURE("AVX512DQ", "avx512dq")};
const Feature kAvxVnni[] = {HEADRACE_FEATURE("AVX_VNNI", "avxvnni")};
const Feature kVnni[] = {HEADRACE_FEATURE("AVX512_VNNI", "avx512vnni")};
const Feature kBf16[] = {HEADRACE_FEATURE("AVX512_BF16", "avx512bf16")};

#undef HEADRACE_FEATURE

std::vector<std::string> missing_for(const std::string& isa) {
  std::vector<std::string> missing;
  const auto need = [&](std::span<const Feature> features) {
    for (const Feature& feature : features) {
      if (!feature.present()) missing.emplace_back(feature.name);
    }
  };
  if (isa != "baseline") need(kAvx2);
  if (isa.starts_with("avx512")) need(kAvx512);
  if (isa == "avx2_vnni") need(kAvxVnni);
  if (isa == "avx512_vnni" || isa == "avx512_bf16") need(kVnni);
  if (isa == "avx512_bf16") need(kBf16);
  return missing;
}

/// The choice in "always [madvise] never".
std::string huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  for (std::string word; file >> word;) {
    if (word.size() > 2 && word.front() == '[' && word.back() == ']') {
      return word.substr(1, word.size() - 2);
    }
  }
  return "unknown";
}

}  // namespace

CpuInfo v0::describe_cpu() {
  CpuInfo info;
  info.brand = cpu_brand();
  for (const CpuIsa& isa : all_cpu_isas()) info.isas.push_back({isa.name, missing_for(isa.name)});
  const std::string forced = env_cpu_isa().value_or("");
  info.isa = forced == "reference" ? forced : select_cpu_isa(forced).name;
  info.cores = usable_cores();
  info.num_threads = env_num_threads().value_or(info.cores);
  for (const NumaNode& node : choose_numa_nodes("")) {
    info.numa_nodes.push_back(format_cpu_list(node.cpus));
  }
  info.huge_pages = huge_pages();
  return info;
}

}  // namespace headrace
