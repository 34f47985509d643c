#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "sched/scheduler.h"

namespace headrace::internal {

/// A hash for each full block of a prompt. It covers everything that decides the block's keys and
/// values: the block's tokens, all tokens before them, and the sequence's identity. Only hashes are
/// compared. If two prompts collide, they go to the same replica, which does no harm.
std::vector<uint64_t> prefix_hashes(const SeqSpec& spec, int32_t block_size);

/// The blocks that one replica's prefix cache probably holds: those of the prompts that were sent
/// there, without the least recently used ones. Not thread safe.
class PrefixTrace {
 public:
  /// `capacity`: the blocks of tokens that the replica can keep.
  explicit PrefixTrace(size_t capacity) : capacity_(capacity) {}

  /// The number of leading blocks that the cache probably holds.
  size_t match(std::span<const uint64_t> hashes) const;
  /// Notes that a prompt with these blocks was sent to the replica.
  void note(std::span<const uint64_t> hashes);
  void clear();
  size_t size() const noexcept { return places_.size(); }

 private:
  size_t capacity_;
  std::list<uint64_t> recent_;  ///< most recently used first
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> places_;
};

}  // namespace headrace::internal
