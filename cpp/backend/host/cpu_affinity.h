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

/// The CPU that this thread runs on, or -1.
int32_t current_cpu() noexcept;

/// `thread_id` 0: this thread.
std::optional<CpuMask> thread_affinity(int32_t thread_id) noexcept;
bool set_thread_affinity(int32_t thread_id, const CpuMask& cpus) noexcept;
/// Moves a thread to `cpu`, if it may run there, and leaves it free to be moved on: its affinity
/// stays as it is. No two threads may move one thread at once.
bool move_thread(int32_t thread_id, int32_t cpu) noexcept;

}  // namespace headrace
