#include "backend/host/cpu_info.h"

#include <cpuid.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "backend/host/cpu_affinity.h"

namespace headrace {

CpuMask usable_cpus() noexcept {
  if (const auto allowed = thread_affinity(0)) return *allowed;
  CpuMask all;
  const auto count = static_cast<int32_t>(std::thread::hardware_concurrency());
  for (int32_t cpu = 0; cpu < count; ++cpu) all.add(cpu);
  return all;
}

int32_t usable_cores() noexcept { return std::max(1, usable_cpus().count()); }

std::string cpu_brand() {
  unsigned words[12] = {};
  if (__get_cpuid_max(0x80000000u, nullptr) < 0x80000004u) return "x86-64";
  for (unsigned leaf = 0; leaf < 3; ++leaf) {
    unsigned* w = words + 4 * leaf;
    __get_cpuid(0x80000002u + leaf, &w[0], &w[1], &w[2], &w[3]);
  }
  char text[sizeof words + 1] = {};
  std::memcpy(text, words, sizeof words);
  std::string brand = text;
  const size_t first = brand.find_first_not_of(' ');
  const size_t last = brand.find_last_not_of(' ');
  return first == std::string::npos ? "x86-64" : brand.substr(first, last - first + 1);
}

}  // namespace headrace
