#include "engine/media/encoder_cache.h"

#include "base/check.h"

namespace headrace::internal {

std::shared_ptr<const EncodedRows> EncoderCache::find(const Key& key) {
  const auto found = places_.find(key);
  if (found == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->rows;
}

bool EncoderCache::make_room(size_t bytes) {
  if (bytes > capacity_) return false;
  for (auto entry = entries_.end(); bytes_ > capacity_ - bytes;) {
    if (entry == entries_.begin()) return false;
    --entry;
    if (entry->rows.use_count() > 1) continue;
    bytes_ -= entry->rows->bytes;
    places_.erase(entry->key);
    entry = entries_.erase(entry);
  }
  return true;
}

void EncoderCache::insert(const Key& key, std::shared_ptr<const EncodedRows> rows) {
  HEADRACE_CHECK(rows->bytes <= capacity_ - bytes_ && !places_.contains(key), rows->bytes);
  const size_t bytes = rows->bytes;
  entries_.push_front({key, std::move(rows)});
  try {
    places_.emplace(key, entries_.begin());
  } catch (...) {
    entries_.pop_front();
    throw;
  }
  bytes_ += bytes;
}

}  // namespace headrace::internal
