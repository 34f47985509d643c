// Barriers in shared memory and the copies that count their bytes there: see hopper.h.

#include <bit>
#include <cstring>

#include "cuda_emulation.h"
#include "hopper_state.h"

namespace headrace::emulation {
namespace {

constexpr int kRowBytes = 128;
constexpr int kMaxBoxRows = 256;
constexpr int kMaxRunBytes = 1024;            // 256 words
constexpr int64_t kMaxBytes = (1 << 20) - 1;  // that a barrier counts

/// What the word of a barrier holds.
struct Barrier {
  uint64_t magic : 12, phase : 1, arrivals : 14, pending : 14;
  int64_t bytes : 23;
};
static_assert(sizeof(Barrier) == sizeof(uint64_t));
constexpr uint64_t kMagic = 0x5a7;

/// That of block `rank` which lies where `barrier` does in the running one.
struct PlacedBarrier {
  char* word;
  BarrierUse* use;

  Barrier load() const {
    Barrier barrier;
    std::memcpy(&barrier, word, sizeof barrier);
    return barrier;
  }
  /// With the phase's end, if that has come.
  void store(Barrier barrier) const {
    if (barrier.pending == 0 && barrier.bytes == 0) {
      barrier.phase ^= 1u;
      barrier.pending = barrier.arrivals;
      ++use->phases;
    }
    std::memcpy(word, &barrier, sizeof barrier);
  }
};

PlacedBarrier place_barrier(unsigned rank, const uint64_t* barrier) {
  const uint32_t address = shared_address_of(barrier);
  return {shared_memory_of(rank) + (address - kSharedStart),
          &HopperState::of(rank).barriers[address]};
}

/// As the running thread may use it.
PlacedBarrier checked_barrier(unsigned rank, const uint64_t* barrier,
                              const std::source_location& site) {
  if (rank >= cluster_size()) fail("the cluster has no such block", site);
  if (block_is_over(rank)) fail("a barrier of a block that has ended", site);
  const PlacedBarrier placed = place_barrier(rank, barrier);
  if (placed.load().magic != kMagic) fail("no barrier was initialised there", site);
  if (rank != cluster_rank() && cluster_turns().waits <= placed.use->arrivals_before) {
    fail("another block's barrier, which it may not have initialised yet", site);
  }
  return placed;
}

void land(char* memory, uint32_t to, const TensorMap& map, int32_t column, int32_t row) {
  for (int r = 0; r < map.box_rows; ++r) {
    const int64_t from_row = int64_t{row} + r;
    for (int j = 0; j < kRowBytes / 2; ++j) {
      uint16_t value = 0;
      const int64_t from_column = int64_t{column} + j;
      if (from_row >= 0 && from_row < map.rows && from_column >= 0 && from_column < map.cols) {
        std::memcpy(&value, map.data + from_row * map.stride_bytes + from_column * 2, 2);
      }
      const uint32_t address = to + static_cast<uint32_t>(r * kRowBytes + j * 2);
      std::memcpy(memory + (swizzled(address, 3) - kSharedStart), &value, 2);
    }
  }
}

void land_tiles(char* memory, uint32_t to, const TensorMap& map, int32_t tile, int32_t unit) {
  for (int r = 0; r < map.box_rows; ++r) {
    const int64_t row = int64_t{tile} * map.tile_rows + r;
    for (int chunk = 0; chunk < kRowBytes; chunk += 16) {
      char values[16] = {};
      if (row < map.rows && unit < map.cols) {
        const int64_t in_tile = (int64_t{unit} * map.tile_rows + row % map.tile_rows) * kRowBytes;
        std::memcpy(values, map.data + row / map.tile_rows * map.stride_bytes + in_tile + chunk,
                    sizeof values);
      }
      const uint32_t address = to + static_cast<uint32_t>(r * kRowBytes + chunk);
      std::memcpy(memory + (swizzled(address, 3) - kSharedStart), values, sizeof values);
    }
  }
}

void land_run(char* memory, uint32_t to, const TensorMap& map, int32_t word, int32_t row) {
  constexpr int kWord = 4;
  for (int r = 0; r < map.box_rows; ++r) {
    const int64_t from_row = int64_t{row} + r;
    for (int at = 0; at < map.run_bytes; at += kWord) {
      uint32_t value = 0;
      const int64_t from = int64_t{word} * kWord + at;
      if (from_row >= 0 && from_row < map.rows && from >= 0 && from < map.cols) {
        std::memcpy(&value, map.data + from_row * map.stride_bytes + from, kWord);
      }
      const uint32_t address = to + static_cast<uint32_t>(r * map.run_bytes + at);
      std::memcpy(memory + (address - kSharedStart), &value, kWord);
    }
  }
}

/// land_all(memory, address) in each block whose bit is set, at a time of its own.
template <class Land>
void copy_late(void* shared, const TensorMap& map, uint64_t* barrier, uint32_t blocks,
               const std::source_location& site, const Land& land_all) {
  const auto bytes = static_cast<size_t>(map.box_rows) *
                     static_cast<size_t>(map.run_bytes == 0 ? kRowBytes : map.run_bytes);
  const uint32_t address = shared_address_of(shared);
  if (address % kRowBytes != 0 || !in_shared_memory(address, bytes)) {
    fail("a box out of place in shared memory", site);
  }
  if (blocks == 0) fail("a copy into no block", site);
  const unsigned own = cluster_rank(), arrivals = cluster_turns().arrivals;
  for (uint32_t left = blocks; left != 0; left &= left - 1) {
    const auto rank = static_cast<unsigned>(std::countr_zero(left));
    const PlacedBarrier placed = checked_barrier(rank, barrier, site);
    char* const memory = shared_memory_of(rank);
    std::memset(memory + (address - kSharedStart), 0xff, bytes);
    do_late(
        rank,
        [=] {
          land_all(memory, address);
          if (rank != own) placed.use->note_peer(arrivals);
          Barrier state = placed.load();
          state.bytes -= static_cast<int64_t>(bytes);
          placed.store(state);
        },
        site);
  }
}

}  // namespace

void check_tensor_map(const TensorMap& map) {
  const bool fits = reinterpret_cast<uintptr_t>(map.data) % 16 == 0 && map.rows >= 1 &&
                    map.cols >= 1 && map.rows <= 0xffffffffLL && map.cols <= 0xffffffffLL &&
                    map.stride_bytes % 16 == 0 && map.stride_bytes < (1LL << 40) &&
                    map.box_rows >= 1 && map.box_rows <= kMaxBoxRows && map.run_bytes % 16 == 0 &&
                    map.run_bytes <= kMaxRunBytes && (map.run_bytes == 0 || map.cols % 16 == 0);
  if (!fits) throw EmulationError("no driver encodes this tensor map");
}

void barrier_init(uint64_t* barrier, uint32_t arrivals, const std::source_location& site) {
  if (arrivals < 1 || arrivals >= 1u << 14) fail("a barrier of so many arrivals", site);
  Barrier fresh{};
  fresh.magic = kMagic;
  fresh.arrivals = fresh.pending = arrivals & 0x3fff;
  const PlacedBarrier placed = place_barrier(cluster_rank(), barrier);
  std::memcpy(placed.word, &fresh, sizeof fresh);
  *placed.use = {.arrivals_before = cluster_turns().arrivals};
}

void barrier_arrive(uint64_t* barrier, uint32_t bytes, const std::source_location& site) {
  barrier_arrive_at(barrier, cluster_rank(), bytes, site);
}

void barrier_arrive_at(uint64_t* barrier, unsigned rank, uint32_t bytes,
                       const std::source_location& site) {
  const PlacedBarrier placed = checked_barrier(rank, barrier, site);
  Barrier state = placed.load();
  if (state.pending == 0) fail("more arrivals than the barrier takes", site);
  if (state.bytes + int64_t{bytes} > kMaxBytes) fail("more bytes than a barrier counts", site);
  if (rank != cluster_rank()) placed.use->note_peer(cluster_turns().arrivals);
  state.bytes += bytes;
  state.pending -= 1u;
  placed.store(state);
}

void barrier_wait(uint64_t* barrier, uint32_t parity, const std::source_location& site) {
  const PlacedBarrier placed = checked_barrier(cluster_rank(), barrier, site);
  const auto over = [=] { return placed.load().phase != parity; };
  if (!over()) wait_until(over, site);
  placed.use->seen = placed.use->phases;
}

void copy_box(void* shared, const TensorMap& map, int32_t column, int32_t row, uint64_t* barrier,
              uint32_t blocks, const std::source_location& site) {
  if (map.tile_rows != 0 || map.run_bytes != 0) fail("a box of a map of tiles", site);
  copy_late(shared, map, barrier, blocks, site,
            [=](char* memory, uint32_t to) { land(memory, to, map, column, row); });
}

void copy_unit(void* shared, const TensorMap& map, int32_t tile, int32_t unit, uint64_t* barrier,
               uint32_t blocks, const std::source_location& site) {
  if (map.tile_rows == 0 || tile < 0 || unit < 0) fail("tiles of another map", site);
  copy_late(shared, map, barrier, blocks, site,
            [=](char* memory, uint32_t to) { land_tiles(memory, to, map, tile, unit); });
}

void copy_run(void* shared, const TensorMap& map, int32_t word, int32_t row, uint64_t* barrier,
              const std::source_location& site) {
  if (map.run_bytes == 0) fail("a run of another map", site);
  copy_late(shared, map, barrier, own_block(), site,
            [=](char* memory, uint32_t to) { land_run(memory, to, map, word, row); });
}

void load_from_block(void* to, const void* shared, size_t bytes, unsigned rank,
                     const std::source_location& site) {
  const uint32_t address = shared_address_of(shared);
  if (rank >= cluster_size()) fail("the cluster has no such block", site);
  if (block_is_over(rank)) fail("memory of a block that has ended", site);
  if (!in_shared_memory(address, bytes)) fail("a read beyond shared memory", site);
  std::memcpy(to, shared_memory_of(rank) + (address - kSharedStart), bytes);
}

const char* HopperState::check_barriers() {
  for (const auto& [address, use] : barriers) {
    Barrier state;
    std::memcpy(&state, shared_pointer(address), sizeof state);
    if (state.magic != kMagic) continue;  // its memory has another use since
    if (state.bytes != 0) return "a barrier has had other bytes than it was told of";
    if (state.pending != state.arrivals) return "a barrier has had a part of a phase's arrivals";
    // Either a wait has seen the phase, or the block has waited for who has had a part in it.
    if (use.peer_phase > use.seen && use.peer_arrivals >= cluster_waits()) {
      return "a block may end before others arrive at its barriers or copy into it";
    }
  }
  return nullptr;
}

}  // namespace headrace::emulation
