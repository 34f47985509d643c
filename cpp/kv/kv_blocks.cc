#include "kv/kv_blocks.h"

#include "base/check.h"

namespace headrace {

KvBlocks::KvBlocks(int32_t num_blocks, int32_t block_size, bool enable_prefix_caching)
    : block_size_(block_size),
      enabled_(enable_prefix_caching),
      pool_(num_blocks),
      index_(enable_prefix_caching ? num_blocks : 0, block_size) {}

int32_t KvBlocks::take() {
  if (pool_.num_free() == 0 && pool_.num_cached() > 0) evict(pool_.oldest_cached());
  return pool_.take();
}

std::vector<int32_t> KvBlocks::acquire_prefix(uint64_t cache_namespace,
                                              std::span<const int32_t> tokens) {
  std::vector<int32_t> chain;
  if (!enabled_) return chain;
  const auto size = static_cast<size_t>(block_size_);
  chain.reserve(tokens.size() / size);
  PrefixIndex::Place place{cache_namespace, kNone};
  for (; tokens.size() >= size; tokens = tokens.subspan(size)) {
    const int32_t block = index_.find(place, tokens.first(size));
    if (block == kNone) break;
    pool_.retain(block);
    chain.push_back(block);
    place.parent = block;
  }
  return chain;
}

void KvBlocks::publish(uint64_t cache_namespace, std::span<int32_t> table, size_t index,
                       std::span<const int32_t> tokens) {
  if (!enabled_) return;
  HEADRACE_CHECK(index < table.size(), index, " of ", table.size());
  const PrefixIndex::Place place{cache_namespace, index == 0 ? kNone : table[index - 1]};
  const int32_t same = index_.find(place, tokens);
  if (same == kNone) {
    index_.insert(place, tokens, table[index]);
    pool_.keep(table[index]);
    return;
  }
  pool_.retain(same);
  pool_.release(table[index]);
  table[index] = same;
}

void KvBlocks::release(std::span<const int32_t> table) {
  for (size_t i = table.size(); i-- > 0;) pool_.release(table[i]);
}

void KvBlocks::clear_cache() {
  while (pool_.num_cached() > 0) evict(pool_.oldest_cached());
}

void KvBlocks::evict(int32_t block) {
  index_.erase(block);
  pool_.drop(block);
}

}  // namespace headrace
