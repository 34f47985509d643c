#pragma once

// Numbers for tests of ops. They are drawn by the million, in sanitizer builds without
// optimization, where the standard library's engines and distributions take longer than what is
// tested.

#include <cstdint>
#include <string>
#include <vector>

namespace headrace::parity {

/// Random numbers from a seed that a failure prints (put the Random's trace() in scope): SplitMix64
/// (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed), state_(seed) {}
  std::string trace() const { return "seed " + std::to_string(seed_); }

  /// In [low, high).
  float uniform(float low, float high) {
    return low + (high - low) * 0x1p-24f * static_cast<float>(bits() >> 40);
  }
  /// In [low, high], whose size is far below 2^64.
  int64_t integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(bits() % static_cast<uint64_t>(high - low + 1));
  }
  std::vector<float> uniforms(int64_t count, float low = -1.0f, float high = 1.0f) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = uniform(low, high);
    return out;
  }
  /// Whole numbers: sums of their products are exact in every arithmetic that is tested.
  std::vector<float> integers(int64_t count, int64_t low, int64_t high) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = static_cast<float>(integer(low, high));
    return out;
  }

 private:
  uint64_t bits() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t mixed = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
  }

  uint64_t seed_, state_;
};

}  // namespace headrace::parity
