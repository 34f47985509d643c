#pragma once

// How the GPUs of one model (its ranks) reach each other's memory.

#include <cstddef>
#include <cstdint>

#include "cuda/host/runtime/cuda_check.h"

namespace headrace::cuda {

inline constexpr int kMostRanks = 8;
/// Blocks that wait for other ranks leave room for those of ranks on the same GPU: a kernel that
/// takes all of a multiprocessor finds none where such a block waits.
inline constexpr int kMostExchangeBlocks = 48;
/// A kernel that has waited for another rank for so long waits no more.
inline constexpr int kLongestWaitSeconds = 120;
/// RankLinks::stop. kFailed: a rank has, says the host. kNoAnswer: a kernel has waited in vain.
inline constexpr uint32_t kGoOn = 0, kFailed = 1, kNoAnswer = 2;

/// What brings ranks' parts to each other that can't reach each other's memory.
class PartsCarrier {
 public:
  virtual ~PartsCarrier() = default;
  /// `memory` has a part of `bytes` for each rank, of which this one has written its own: behind
  /// this the others' are there, too. Queued on the stream, by all ranks. Throws Error.
  virtual void all_gather(std::byte* memory, int64_t bytes, Stream stream) = 0;
};

/// A rank's view of all of them. Every rank queues the same exchanges in the same order.
struct RankLinks {
  int32_t rank = 0;   ///< this one
  int32_t count = 1;  ///< of ranks, up to kMostRanks
  /// Of each rank: two pieces of piece_bytes, aligned to 256, which it writes and all read.
  /// Exchange number e uses piece e % 2: a rank that is at e + 1 has heard that all have left e
  /// - 1.
  std::byte* pieces[kMostRanks] = {};
  int64_t piece_bytes = 0;  ///< a multiple of 256
  /// Of each rank: [count] words, of which rank r writes the r-th, the number of exchanges that it
  /// has begun. Zero at first.
  uint32_t* begun[kMostRanks] = {};
  uint32_t* exchanges = nullptr;  ///< this rank's own: how many it has ended. Zero at first
  int32_t* counter = nullptr;     ///< this rank's own, zero between kernels
  /// Of a kernel that waits: up to kMostExchangeBlocks, on every rank the same, since some ops go
  /// by it.
  int32_t most_blocks = kMostExchangeBlocks;
  /// In memory that the host writes, too. Not kGoOn: nobody waits any more; results are of no use.
  uint32_t* stop = nullptr;
  /// Null: the ranks reach each other's memory. Else it brings the parts: pieces[0] is memory of
  /// this rank for count * piece_bytes, in which a launch gives each part its place (place_parts),
  /// and the words above aren't used.
  PartsCarrier* carrier = nullptr;
};

}  // namespace headrace::cuda
