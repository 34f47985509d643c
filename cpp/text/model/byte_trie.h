#pragma once

// Strings with ids, found as prefixes of a text, byte by byte: a double array (Aoe, 1989).

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace headrace::text {

/// Immutable: any thread may use one.
class ByteTrie {
 public:
  static constexpr int32_t kNoId = -1;
  static constexpr uint32_t kRoot = 0;
  static constexpr size_t kMaxUnits = 1u << 24;

  struct Entry {
    std::string_view bytes;
    int32_t id = kNoId;
  };

  ByteTrie() : ByteTrie(std::vector<Entry>{}) {}
  /// Of equal strings the largest id counts. Throws Error(kLimitExceeded): over kMaxUnits.
  explicit ByteTrie(std::vector<Entry> entries);

  /// From a node by a byte to the next; false, and the node stays, if no string goes on so.
  bool step(uint32_t* node, char byte) const noexcept {
    const uint32_t next = units_[*node].base ^ static_cast<uint8_t>(byte);
    if (units_[next].parent != *node) {
      return false;
    }
    *node = next;
    return true;
  }
  /// Of the string that ends at a node, kNoId if none does.
  int32_t id_at(uint32_t node) const noexcept { return units_[node].id; }

  size_t memory_bytes() const noexcept { return units_.capacity() * sizeof(Unit); }

 private:
  friend class ByteTrieBuilder;
  static constexpr uint32_t kNoParent = static_cast<uint32_t>(-1);

  /// A node's children are at base ^ byte, which is within one block of 256.
  struct Unit {
    uint32_t base = 0;
    uint32_t parent = kNoParent;
    int32_t id = kNoId;
  };
  std::vector<Unit> units_;
};

}  // namespace headrace::text
