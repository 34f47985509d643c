#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>

#include "engine/runner/media_rows.h"
#include "kv/cache_identity.h"

namespace headrace::internal {

/// A unit of an item, encoded.
struct EncodedRows {
  MediaRows rows;
  size_t bytes = 0;
  int32_t first_row = 0;  ///< of the item
  int32_t count = 0;
};

/// Encoded units by what they show, in so many bytes: the ones used longest ago go, but none that
/// somebody else holds. One thread at a time.
class EncoderCache {
 public:
  using Key = std::pair<MediaDigest, size_t>;  ///< an item and the number of a unit

  explicit EncoderCache(size_t capacity) : capacity_(capacity) {}

  /// Null: it isn't there. Makes it the one used last.
  std::shared_ptr<const EncodedRows> find(const Key& key);
  /// Drops units until there is room for so many bytes; false if those that are held leave none.
  bool make_room(size_t bytes);
  /// REQUIRES: room for it, and no unit of that key.
  void insert(const Key& key, std::shared_ptr<const EncodedRows> rows);
  size_t bytes() const noexcept { return bytes_; }
  size_t capacity() const noexcept { return capacity_; }

 private:
  struct Entry {
    Key key;
    std::shared_ptr<const EncodedRows> rows;
  };

  const size_t capacity_;
  size_t bytes_ = 0;
  std::list<Entry> entries_;  ///< used last comes first
  std::map<Key, std::list<Entry>::iterator> places_;
};

}  // namespace headrace::internal
