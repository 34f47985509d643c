#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace headrace::grammar {

/// A set of bytes.
class ByteSet {
 public:
  ByteSet() = default;
  static ByteSet of(uint8_t byte) { return range(byte, byte); }
  static ByteSet range(unsigned first, unsigned last) {
    ByteSet out;
    for (unsigned byte = first; byte <= last; ++byte) out.add(static_cast<uint8_t>(byte));
    return out;
  }

  void add(uint8_t byte) { words_[byte >> 6] |= uint64_t{1} << (byte & 63); }
  bool has(uint8_t byte) const { return (words_[byte >> 6] >> (byte & 63) & 1) != 0; }
  bool empty() const { return words_ == decltype(words_){}; }
  ByteSet operator|(const ByteSet& other) const {
    ByteSet out;
    for (size_t i = 0; i < 4; ++i) out.words_[i] = words_[i] | other.words_[i];
    return out;
  }
  ByteSet operator&(const ByteSet& other) const {
    ByteSet out;
    for (size_t i = 0; i < 4; ++i) out.words_[i] = words_[i] & other.words_[i];
    return out;
  }
  bool operator==(const ByteSet&) const = default;
  const std::array<uint64_t, 4>& words() const { return words_; }

  struct Hash {
    size_t operator()(const ByteSet& set) const {
      uint64_t out = 0;
      for (const uint64_t word : set.words_) {
        out = (out ^ word) * 0x9E3779B97F4A7C15u;
        out ^= out >> 29;
      }
      return out;
    }
  };

 private:
  std::array<uint64_t, 4> words_{};
};

}  // namespace headrace::grammar
