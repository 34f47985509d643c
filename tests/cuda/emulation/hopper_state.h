#pragma once

// What the emulation of sm_90a keeps of a running block, and shared memory as descriptors see it.

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "block_runner.h"
#include "hopper.h"

namespace headrace::emulation {

inline constexpr uint32_t kSharedStart = 1024;  // what a GPU keeps to itself

/// Bits 4 to 3 + `bits` of an address are crossed with those from 7 on.
uint32_t swizzled(uint32_t address, int bits);
char* shared_pointer(uint32_t address);
bool in_shared_memory(uint32_t address, size_t bytes);

/// A warp's part of a product: 16 rows of c.
struct IssuedProduct {
  Product args;                               // of lane 0
  std::array<uint16_t, 256> a;                // [row][k], as it was at issue
  std::vector<uint16_t> b;                    // [n][k]
  size_t accumulators;                        // key: HeldSums::id
  std::array<const uint32_t*, 32> a_lanes{};  // where they were, if they stay
};

/// Accumulators that products work on; their registers are NaN meanwhile.
struct HeldSums {
  size_t id = 0;
  std::array<float*, 32> lanes{};
  int n = 0;
  std::vector<float> sums;  // [16][n]
  int products = 0;         // that are under way
};

struct WarpProducts {
  std::vector<IssuedProduct> open;
  std::deque<std::vector<IssuedProduct>> committed;
  std::deque<HeldSums> held;
  size_t next_id = 0;
  size_t issued = 0;
  bool fenced = false;
};

/// What a barrier's word has no room for.
struct BarrierUse {
  unsigned arrivals_before = 0;  // of the thread that initialised it, at the cluster's barrier
  uint64_t phases = 0;           // that are over
  uint64_t seen = 0;             // of these, as a wait has seen
  uint64_t peer_phase = 0;       // the last one, from 1 on, that another block had a part in,
  unsigned peer_arrivals = 0;    // having arrived at the cluster's barrier so often

  void note_peer(unsigned arrivals) {
    peer_phase = phases + 1;
    peer_arrivals = arrivals > peer_arrivals ? arrivals : peer_arrivals;
  }
};

struct HopperState : BlockState {
  struct Named {
    int threads = 0, arrived = 0;
    uint64_t round = 0;
  };

  HopperState();
  /// Of block `rank` of the cluster; of the running one.
  static HopperState& of(unsigned rank);
  static HopperState& current();
  const char* at_end() override;
  const char* check_barriers();

  std::array<Named, 16> named;
  std::vector<int> registers;               // of each thread
  std::map<uint32_t, BarrierUse> barriers;  // key: address
  std::vector<WarpProducts> warps;
  /// What each warpgroup has issued so far.
  std::vector<std::vector<Product>> groups;
};

}  // namespace headrace::emulation
