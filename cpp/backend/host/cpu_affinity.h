#pragma once

// On which CPUs threads may run. Linux only; elsewhere, or where the system forbids it, nothing is
// known and nothing moves.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace headrace {

/// A set of CPUs by number.
struct CpuMask {
  static constexpr int32_t kMaxCpus = 8192;
  std::array<uint64_t, kMaxCpus / 64> words{};

  static CpuMask of(int32_t cpu) noexcept;
  bool contains(int32_t cpu) const noexcept;
  void add(int32_t cpu) noexcept;  ///< out of [0, kMaxCpus): ignored
  int32_t count() const noexcept;
  CpuMask operator&(const CpuMask& other) const noexcept;
  bool operator==(const CpuMask&) const = default;
};

/// `thread_id` 0: this thread.
std::optional<CpuMask> thread_affinity(int32_t thread_id) noexcept;
bool set_thread_affinity(int32_t thread_id, const CpuMask& cpus) noexcept;

}  // namespace headrace
