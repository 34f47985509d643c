#pragma once

// BfcAllocator: best fit with coalescing. Hands out ranges of the regions that it obtains from a
// RawAllocator; never reads or writes the memory itself, so it serves any device.
//
// Threads: any thread may call any method (one mutex; a step allocates nothing, so it is idle
// while a model runs).

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/mutex.h"
#include "memory/raw_allocator.h"

namespace headrace {

struct BfcOptions {
  /// Regions together never exceed this. See memory_budget(). 0 = no bound but the raw allocator's.
  size_t limit_bytes = 0;
  /// true: the first allocation takes limit_bytes (then not 0) as the only region.
  /// false: regions are added when nothing fits: min_region_bytes, or more for a larger request.
  bool single_region = false;
  size_t min_region_bytes = size_t{32} << 20;
  size_t region_alignment = size_t{2} << 20;  ///< of start and size: a power of two, >= 256
};

struct BfcStats {
  size_t limit_bytes = 0;         ///< as in the options
  size_t region_bytes = 0;        ///< held from the raw allocator
  size_t in_use_bytes = 0;        ///< handed out, rounded up to kAlignment
  size_t requested_bytes = 0;     ///< handed out, as asked for
  size_t peak_in_use_bytes = 0;   ///< since construction
  size_t largest_free_bytes = 0;  ///< within one region
  size_t num_regions = 0;
  size_t num_allocations = 0;  ///< live now
};

/// Everything the allocator believes, by address. For tests and diagnostics.
struct BfcSnapshot {
  struct Region {
    uintptr_t address = 0;
    size_t bytes = 0;
  };
  struct Chunk {
    uintptr_t address = 0;
    size_t bytes = 0;
    bool in_use = false;
  };
  struct FreeEntry {
    int bin = 0;
    uintptr_t address = 0;
    size_t bytes = 0;
  };
  std::vector<Region> regions;
  std::vector<Chunk> chunks;
  std::vector<FreeEntry> free_entries;
};

class BfcAllocator {
 public:
  static constexpr size_t kAlignment = 256;
  static constexpr int kNumBins = 40;

  /// `raw` must outlive this. Takes no memory yet.
  explicit BfcAllocator(RawAllocator* raw, const BfcOptions& options = {});
  /// Gives every region back, allocations that are still live included.
  ~BfcAllocator();
  BfcAllocator(const BfcAllocator&) = delete;
  BfcAllocator& operator=(const BfcAllocator&) = delete;

  /// A range of `bytes` (0 counts as 1) aligned to kAlignment: the smallest free one that fits,
  /// of those the lowest. Failure(kOutOfMemory) names what was asked, the limit and what is free;
  /// then nothing has changed, but that unused regions may have been given back.
  Result<void*> allocate(size_t bytes);
  /// Takes a range back. Allocates nothing, so it is fit for destructors. REQUIRES: `data` came
  /// from allocate() and is freed once; else throws InternalError and changes nothing. Null: no-op.
  void free(void* data);

  BfcStats stats() const;
  BfcSnapshot snapshot() const;

  /// Bin i holds free chunks of [256 << i, 256 << (i + 1)) bytes; the last one has no upper bound.
  static int bin_of(size_t chunk_bytes) noexcept;

 private:
  struct FreeKey {
    size_t bytes;
    uintptr_t address;
    auto operator<=>(const FreeKey&) const = default;
  };
  using Bin = std::set<FreeKey>;
  struct Chunk {
    size_t bytes = 0;
    size_t requested = 0;
    uintptr_t region = 0;  ///< start of the region it lies in
    bool in_use = false;
    /// The node that will put it into a bin; empty while it is in one.
    Bin::node_type bin_node;
  };
  using ChunkMap = std::map<uintptr_t, Chunk>;

  ChunkMap::iterator find_free(size_t bytes) HEADRACE_REQUIRES(mutex_);
  ChunkMap::iterator add_region(size_t bytes) HEADRACE_REQUIRES(mutex_);
  bool grow_for(size_t bytes) HEADRACE_REQUIRES(mutex_);
  void split(ChunkMap::iterator chunk, size_t bytes) HEADRACE_REQUIRES(mutex_);
  ChunkMap::iterator coalesce(ChunkMap::iterator chunk) noexcept HEADRACE_REQUIRES(mutex_);
  void put_in_bin(ChunkMap::iterator chunk) noexcept HEADRACE_REQUIRES(mutex_);
  void take_from_bin(ChunkMap::iterator chunk) noexcept HEADRACE_REQUIRES(mutex_);
  size_t release_unused_locked() noexcept HEADRACE_REQUIRES(mutex_);
  Failure out_of_memory(size_t bytes) const HEADRACE_REQUIRES(mutex_);

  RawAllocator* const raw_;
  const BfcOptions options_;
  mutable Mutex mutex_;
  std::map<uintptr_t, size_t> regions_ HEADRACE_GUARDED_BY(mutex_);  ///< start -> bytes
  ChunkMap chunks_ HEADRACE_GUARDED_BY(mutex_);  ///< start -> chunk; they tile the regions
  std::array<Bin, kNumBins> bins_ HEADRACE_GUARDED_BY(mutex_);
  size_t region_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  size_t in_use_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  size_t requested_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  size_t peak_in_use_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  size_t num_allocations_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
