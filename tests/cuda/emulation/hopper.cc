#include "hopper.h"

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "block_runner.h"
#include "cuda_emulation.h"
#include "hopper_state.h"

namespace headrace::emulation {
namespace {

constexpr uint32_t kSharedStart = 1024;  // what a GPU keeps to itself
constexpr int kRowBytes = 128;
constexpr int kMaxBoxRows = 256;

/// What the word of a barrier holds.
struct Barrier {
  uint64_t magic : 12, phase : 1, arrivals : 14, pending : 14;
  int64_t bytes : 23;
};
static_assert(sizeof(Barrier) == sizeof(uint64_t));
constexpr uint64_t kMagic = 0x5a7;

Barrier load(const uint64_t* word) {
  Barrier barrier;
  std::memcpy(&barrier, word, sizeof barrier);
  return barrier;
}

Barrier load_checked(const uint64_t* word, const std::source_location& site) {
  const Barrier barrier = load(word);
  if (barrier.magic != kMagic) fail("no barrier was initialised there", site);
  return barrier;
}

/// With the phase's end, if that has come.
void store(uint64_t* word, Barrier barrier) {
  if (barrier.pending == 0 && barrier.bytes == 0) {
    barrier.phase ^= 1u;
    barrier.pending = barrier.arrivals;
  }
  std::memcpy(word, &barrier, sizeof barrier);
}

void land(char* to, const TensorMap& map, int32_t column, int32_t row) {
  for (int r = 0; r < map.box_rows; ++r) {
    const int64_t from_row = int64_t{row} + r;
    for (int j = 0; j < kRowBytes / 2; ++j) {
      uint16_t value = 0;
      const int64_t from_column = int64_t{column} + j;
      if (from_row >= 0 && from_row < map.rows && from_column >= 0 && from_column < map.cols) {
        std::memcpy(&value, map.data + from_row * map.stride_bytes + from_column * 2, 2);
      }
      const uint32_t address = shared_address_of(to) + static_cast<uint32_t>(r * kRowBytes + j * 2);
      std::memcpy(shared_pointer(swizzled(address, 3)), &value, 2);
    }
  }
}

void land_tiles(char* to, const TensorMap& map, int32_t tile, int32_t unit) {
  for (int r = 0; r < map.box_rows; ++r) {
    const int64_t row = int64_t{tile} * map.tile_rows + r;
    for (int chunk = 0; chunk < kRowBytes; chunk += 16) {
      char values[16] = {};
      if (row < map.rows && unit < map.cols) {
        const int64_t in_tile = (int64_t{unit} * map.tile_rows + row % map.tile_rows) * kRowBytes;
        std::memcpy(values, map.data + row / map.tile_rows * map.stride_bytes + in_tile + chunk,
                    sizeof values);
      }
      const uint32_t address = shared_address_of(to) + static_cast<uint32_t>(r * kRowBytes + chunk);
      std::memcpy(shared_pointer(swizzled(address, 3)), values, sizeof values);
    }
  }
}

template <class Land>
void copy_late(void* shared, const TensorMap& map, uint64_t* barrier,
               const std::source_location& site, const Land& land_all) {
  const auto bytes = static_cast<size_t>(map.box_rows) * kRowBytes;
  const uint32_t address = shared_address_of(shared);
  if (address % kRowBytes != 0 || !in_shared_memory(address, bytes)) {
    fail("a box out of place in shared memory", site);
  }
  load_checked(barrier, site);
  std::memset(shared, 0xff, bytes);
  do_late([=] {
    land_all(static_cast<char*>(shared));
    Barrier state = load(barrier);
    state.bytes -= static_cast<int64_t>(bytes);
    store(barrier, state);
  });
}

}  // namespace

uint32_t swizzled(uint32_t address, int bits) {
  return address ^ ((address >> 7 & ((1u << bits) - 1)) << 4);
}

char* shared_pointer(uint32_t address) { return dynamic_shared_memory() + address - kSharedStart; }

bool in_shared_memory(uint32_t address, size_t bytes) {
  return address >= kSharedStart && address - kSharedStart + bytes <= shared_memory_bytes();
}

uint32_t shared_address_of(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const char*>(pointer) - dynamic_shared_memory()) +
         kSharedStart;
}

void check_tensor_map(const TensorMap& map) {
  const bool fits = reinterpret_cast<uintptr_t>(map.data) % 16 == 0 && map.rows >= 1 &&
                    map.cols >= 1 && map.rows <= 0xffffffffLL && map.cols <= 0xffffffffLL &&
                    map.stride_bytes % 16 == 0 && map.stride_bytes < (1LL << 40) &&
                    map.box_rows >= 1 && map.box_rows <= kMaxBoxRows;
  if (!fits) throw EmulationError("no driver encodes this tensor map");
}

void barrier_init(uint64_t* barrier, uint32_t arrivals, const std::source_location& site) {
  if (arrivals < 1 || arrivals >= 1u << 14) fail("a barrier of so many arrivals", site);
  Barrier fresh{};
  fresh.magic = kMagic;
  fresh.arrivals = fresh.pending = arrivals & 0x3fff;
  std::memcpy(barrier, &fresh, sizeof fresh);
}

void barrier_arrive(uint64_t* barrier, uint32_t bytes, const std::source_location& site) {
  Barrier state = load_checked(barrier, site);
  if (state.pending == 0) fail("more arrivals than the barrier takes", site);
  state.bytes += bytes;
  state.pending -= 1u;
  store(barrier, state);
}

void barrier_wait(uint64_t* barrier, uint32_t parity, const std::source_location& site) {
  load_checked(barrier, site);
  const auto over = [=] { return load(barrier).phase != parity; };
  if (!over()) wait_until(over, site);
}

void copy_box(void* shared, const TensorMap& map, int32_t column, int32_t row, uint64_t* barrier,
              const std::source_location& site) {
  if (map.tile_rows != 0) fail("a box of a map of tiles", site);
  copy_late(shared, map, barrier, site, [=](char* to) { land(to, map, column, row); });
}

void copy_unit(void* shared, const TensorMap& map, int32_t tile, int32_t unit, uint64_t* barrier,
               const std::source_location& site) {
  if (map.tile_rows == 0 || tile < 0 || unit < 0) fail("tiles of another map", site);
  copy_late(shared, map, barrier, site, [=](char* to) { land_tiles(to, map, tile, unit); });
}

void named_barrier(int number, int threads, bool wait, const std::source_location& site) {
  HopperState& state = HopperState::current();
  if (number < 1 || number > 15) fail("no such barrier", site);
  auto& barrier = state.named[static_cast<size_t>(number)];
  const bool agreed = barrier.threads == 0 || barrier.threads == threads;
  if (threads % 32 != 0 || threads < 32 || !agreed) fail("threads disagree on a barrier", site);
  barrier.threads = threads;
  const uint64_t round = barrier.round;
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    ++barrier.round;
  }
  if (wait && barrier.round == round) {
    wait_until([&barrier, round] { return barrier.round != round; }, site);
  }
}

void change_registers(int registers, bool more, const std::source_location& site) {
  HopperState& state = HopperState::current();
  int& own = state.registers[thread_number()];
  if (registers % 8 != 0 || registers < 24 || registers > 256) fail("no such register count", site);
  if (more ? registers < own : registers > own) fail("registers change the other way", site);
  own = registers;
}

HopperState::HopperState() : warps((block_threads() + 31) / 32), groups((warps.size() + 3) / 4) {
  registers.assign(block_threads(), static_cast<int>((65536 / block_threads()) / 8 * 8));
}

HopperState& HopperState::current() {
  return static_cast<HopperState&>(
      block_state([]() -> std::unique_ptr<BlockState> { return std::make_unique<HopperState>(); }));
}

const char* HopperState::at_end() {
  int64_t held = 0;
  for (const int count : registers) held += count;
  if (held > 65536) return "the warps have taken more registers than there are";
  for (size_t w = 0; w < warps.size(); ++w) {
    if (!warps[w].open.empty() || !warps[w].committed.empty()) return "products not waited for";
    if (warps[w].issued != groups[w / 4].size()) return "warps of a group differ in their products";
  }
  return nullptr;
}

}  // namespace headrace::emulation
