#include "hopper.h"

#include <memory>

#include "block_runner.h"
#include "cuda_emulation.h"
#include "hopper_state.h"

namespace headrace::emulation {

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

HopperState& HopperState::of(unsigned rank) {
  return static_cast<HopperState&>(block_state(
      rank, []() -> std::unique_ptr<BlockState> { return std::make_unique<HopperState>(); }));
}

HopperState& HopperState::current() { return of(cluster_rank()); }

const char* HopperState::at_end() {
  int64_t held = 0;
  for (const int count : registers) held += count;
  if (held > 65536) return "the warps have taken more registers than there are";
  for (size_t w = 0; w < warps.size(); ++w) {
    if (!warps[w].open.empty() || !warps[w].committed.empty()) return "products not waited for";
    if (warps[w].issued != groups[w / 4].size()) return "warps of a group differ in their products";
  }
  return check_barriers();
}

}  // namespace headrace::emulation
