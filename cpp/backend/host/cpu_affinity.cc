#include "backend/host/cpu_affinity.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <bit>

namespace headrace {

CpuMask CpuMask::of(int32_t cpu) noexcept {
  CpuMask mask;
  mask.add(cpu);
  return mask;
}

bool CpuMask::contains(int32_t cpu) const noexcept {
  if (cpu < 0 || cpu >= kMaxCpus) return false;
  return (words[static_cast<size_t>(cpu) / 64] >> (cpu % 64) & 1) != 0;
}

void CpuMask::add(int32_t cpu) noexcept {
  if (cpu < 0 || cpu >= kMaxCpus) return;
  words[static_cast<size_t>(cpu) / 64] |= uint64_t{1} << (cpu % 64);
}

int32_t CpuMask::count() const noexcept {
  int32_t count = 0;
  for (const uint64_t word : words) count += std::popcount(word);
  return count;
}

CpuMask CpuMask::operator&(const CpuMask& other) const noexcept {
  CpuMask both;
  for (size_t i = 0; i < words.size(); ++i) both.words[i] = words[i] & other.words[i];
  return both;
}

std::optional<CpuMask> thread_affinity(int32_t thread_id) noexcept {
  CpuMask mask;
  // The system call fills as many bytes as the kernel's own sets have; the rest stays 0.
  if (::syscall(SYS_sched_getaffinity, thread_id, sizeof mask.words, mask.words.data()) < 0) {
    return std::nullopt;
  }
  return mask;
}

bool set_thread_affinity(int32_t thread_id, const CpuMask& cpus) noexcept {
  return ::syscall(SYS_sched_setaffinity, thread_id, sizeof cpus.words, cpus.words.data()) == 0;
}

}  // namespace headrace
