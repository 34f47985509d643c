#pragma once

// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3" (SC 2011). A draw is a pure function of (seed, position), so that a
// request's random numbers never depend on its neighbours, on its place in the batch or on the
// device. Uses nothing but integer arithmetic: the same source compiles for host and device.

#include <cstdint>

#if defined(__CUDACC__)
#define HEADRACE_HOST_DEVICE __host__ __device__
#else
#define HEADRACE_HOST_DEVICE
#endif

namespace headrace {

struct PhiloxCounter {
  uint32_t words[4];
};

struct PhiloxKey {
  uint32_t words[2];
};

/// The ten-round bijection of the paper: a random block for each (counter, key).
HEADRACE_HOST_DEVICE inline PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter.words[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter.words[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.words[1] ^ key.words[0],
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.words[3] ^ key.words[1],
                static_cast<uint32_t>(product0)}};
    key.words[0] += 0x9E3779B9u;
    key.words[1] += 0xBB67AE85u;
  }
  return counter;
}

/// Uniform in [0, 1): one of the 2^24 multiples of 2^-24, each exact in float32. Key = `seed`,
/// counter = (`position`, 0), the upper 24 bits of the block's first word.
HEADRACE_HOST_DEVICE inline float philox_uniform(uint64_t seed, uint64_t position) {
  const PhiloxCounter block = philox4x32_10(
      {{static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0}},
      {{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}});
  return static_cast<float>(block.words[0] >> 8) * 0x1p-24f;
}

}  // namespace headrace
