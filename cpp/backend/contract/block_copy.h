#pragma once

#include <cstdint>

namespace headrace {

/// A KV block, keys and values of all layers, that is to be copied between a cache's blocks and its
/// host blocks; or a slot, all layers' states, between its state slots and its host slots.
struct BlockCopy {
  int32_t block = 0;
  int32_t host_block = 0;
  bool to_host = false;   ///< else from it
  bool is_state = false;  ///< `block` and `host_block` are slots
};

}  // namespace headrace
