#pragma once

// SHA-256 (FIPS 180-4): digests that nobody can find two contents for.

#include <array>
#include <cstddef>
#include <cstdint>

namespace headrace {

class Sha256 {
 public:
  /// Adds to what is digested.
  void update(const void* data, size_t bytes) noexcept;
  /// Adds a number as 8 bytes, lowest first.
  void update_number(uint64_t number) noexcept;
  /// The digest's 32 bytes, as words of 8, each highest byte first. No call may follow.
  std::array<uint64_t, 4> finish() noexcept;

 private:
  void absorb(const uint8_t* block) noexcept;

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> rest_{};
  uint64_t bytes_ = 0;
};

}  // namespace headrace
