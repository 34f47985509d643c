#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "sched/scheduler.h"

namespace headrace::internal {

/// A hash for each full block of a prompt, of all that decides its keys and values: its tokens,
/// those before them, and the identity of the sequence. Hashes alone are compared: two prompts that
/// happen to agree in one are sent to the same replica, and nothing else.
std::vector<uint64_t> prefix_hashes(const SeqSpec& spec, int32_t block_size);

/// What one replica's prefix cache is likely to hold: the blocks of the prompts that were sent
/// there, the least recently used ones left out. Not thread safe.
class PrefixTrace {
 public:
  /// `capacity`: blocks that the replica has.
  explicit PrefixTrace(size_t capacity) : capacity_(capacity) {}

  /// How many of the blocks, from the first one on, are there.
  size_t match(std::span<const uint64_t> hashes) const;
  /// A prompt with these blocks has been sent there.
  void note(std::span<const uint64_t> hashes);
  void clear();
  size_t size() const noexcept { return places_.size(); }

 private:
  size_t capacity_;
  std::list<uint64_t> recent_;  ///< the most recently used one first
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> places_;
};

}  // namespace headrace::internal
