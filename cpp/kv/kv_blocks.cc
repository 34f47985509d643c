#include "kv/kv_blocks.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace headrace {

namespace {

int32_t count_nodes(int32_t num_blocks, int32_t num_host_blocks) {
  HEADRACE_CHECK(num_blocks >= 0 && num_host_blocks >= 0 &&
                     num_blocks <= std::numeric_limits<int32_t>::max() - num_host_blocks,
                 num_blocks, " + ", num_host_blocks);
  return num_blocks + num_host_blocks;
}

}  // namespace

KvBlocks::KvBlocks(int32_t num_blocks, int32_t block_size, bool enable_prefix_caching,
                   int32_t num_host_blocks)
    : block_size_(block_size),
      enabled_(enable_prefix_caching),
      pool_(num_blocks),
      host_pool_(enable_prefix_caching ? num_host_blocks : 0),
      index_(enable_prefix_caching ? count_nodes(num_blocks, num_host_blocks) : 0, block_size) {
  if (!enabled_) num_host_blocks = 0;
  const int32_t num_nodes = count_nodes(num_blocks, num_host_blocks);
  nodes_.resize(static_cast<size_t>(num_nodes));
  free_nodes_.reserve(nodes_.size());
  for (int32_t node = num_nodes; node-- > 0;) free_nodes_.push_back(node);
  in_block_.assign(static_cast<size_t>(num_blocks), kNone);
  in_host_block_.assign(static_cast<size_t>(num_host_blocks), kNone);
  // Each block once to a host block and once back, which is more than a plan will ask for.
  if (num_host_blocks > 0) copies_.reserve(2 * in_block_.size());
}

int32_t KvBlocks::take() {
  if (pool_.num_free() == 0 && pool_.num_cached() > 0) evict(pool_.oldest_cached());
  return pool_.take();
}

std::vector<int32_t> KvBlocks::acquire_prefix(const CacheIdentity& identity,
                                              std::span<const int32_t> tokens) {
  std::vector<int32_t> chain;
  if (!enabled_) return chain;
  const auto size = static_cast<size_t>(block_size_);
  chain.reserve(tokens.size() / size);
  PrefixIndex::Place place{identity.sequence, kNone};
  while ((chain.size() + 1) * size <= tokens.size()) {
    const size_t index = chain.size();
    const int32_t node =
        index_.find(place, content_at(identity, index, tokens.subspan(index * size, size)));
    if (node == kNone || at(node).block == kNone) break;
    pool_.retain(at(node).block);
    chain.push_back(at(node).block);
    place.parent = node;
  }
  return chain;
}

PrefixIndex::Place KvBlocks::behind(const CacheIdentity& identity,
                                    std::span<const int32_t> table) const {
  return {identity.sequence, table.empty() ? kNone : node_in(table.back())};
}

/// What the block at `index` of a table holds: these tokens, and the media at its positions.
PrefixIndex::Content KvBlocks::content_at(const CacheIdentity& identity, size_t index,
                                          std::span<const int32_t> tokens) const {
  const auto size = static_cast<size_t>(block_size_);
  return {tokens, identity.media_in(index * size, (index + 1) * size)};
}

int32_t KvBlocks::restore_prefix(const CacheIdentity& identity, std::span<const int32_t> tokens,
                                 std::vector<int32_t>& table) {
  if (host_pool_.num_cached() == 0) return 0;
  const auto size = static_cast<size_t>(block_size_);
  const size_t first = table.size();
  table.reserve(tokens.size() / size);
  // What is wanted now is the last to make room in host blocks for what it evicts.
  touch_host_chain(identity, tokens, table);
  while ((table.size() + 1) * size <= tokens.size()) {
    const size_t index = table.size();
    const int32_t node = index_.find(
        behind(identity, table), content_at(identity, index, tokens.subspan(index * size, size)));
    if (node == kNone || !move_from_host(node, table)) break;
  }
  return static_cast<int32_t>(table.size() - first);
}

/// Makes the host blocks behind `table` the ones used last, children before their parents.
void KvBlocks::touch_host_chain(const CacheIdentity& identity, std::span<const int32_t> tokens,
                                std::span<const int32_t> table) {
  const auto size = static_cast<size_t>(block_size_);
  PrefixIndex::Place place = behind(identity, table);
  const int32_t before = place.parent;
  for (size_t index = table.size(); (index + 1) * size <= tokens.size(); ++index) {
    const int32_t node =
        index_.find(place, content_at(identity, index, tokens.subspan(index * size, size)));
    if (node == kNone) break;
    place.parent = node;
  }
  for (int32_t node = place.parent; node != before; node = index_.parent(node)) {
    host_pool_.retain(at(node).host_block);
    host_pool_.release(at(node).host_block);
  }
}

/// False if there is no block for it, or if it had to make room itself.
bool KvBlocks::move_from_host(int32_t node, std::vector<int32_t>& table) {
  reserve_copies(2);
  const int32_t block = take();
  if (block == kNone) return false;
  const int32_t host_block = at(node).host_block;
  if (host_block == kNone) {
    pool_.release(block);
    return false;
  }
  copies_.push_back({block, host_block, false});
  ++moved_from_host_;
  leave_host_block(node);
  put_in_block(node, block);
  table.push_back(block);
  return true;
}

void KvBlocks::publish(const CacheIdentity& identity, std::span<int32_t> table, size_t index,
                       std::span<const int32_t> tokens) {
  if (!enabled_) return;
  HEADRACE_CHECK(index < table.size(), index, " of ", table.size());
  const PrefixIndex::Place place = behind(identity, table.first(index));
  const PrefixIndex::Content content = content_at(identity, index, tokens);
  int32_t node = index_.find(place, content);
  if (node != kNone && at(node).block != kNone) {
    pool_.retain(at(node).block);
    pool_.release(table[index]);
    table[index] = at(node).block;
    return;
  }
  if (node == kNone) {
    node = free_nodes_.back();
    index_.insert(place, content, node, identity.media);
    free_nodes_.pop_back();
  } else {
    leave_host_block(node);
  }
  put_in_block(node, table[index]);
}

void KvBlocks::release(std::span<const int32_t> table) {
  for (size_t i = table.size(); i-- > 0;) pool_.release(table[i]);
}

void KvBlocks::clear_cache() {
  while (host_pool_.num_cached() > 0) forget(node_in_host(host_pool_.oldest_cached()));
  while (pool_.num_cached() > 0) forget(node_in(pool_.oldest_cached()));
}

std::vector<BlockCopy> KvBlocks::take_copies() {
  std::vector<BlockCopy> out = copies_;
  copies_.clear();
  return out;
}

/// REQUIRES: the block is held.
void KvBlocks::put_in_block(int32_t node, int32_t block) {
  at(node).block = block;
  in_block_[static_cast<size_t>(block)] = node;
  pool_.keep(block);
}

void KvBlocks::leave_host_block(int32_t node) {
  const int32_t host_block = std::exchange(at(node).host_block, kNone);
  in_host_block_[static_cast<size_t>(host_block)] = kNone;
  host_pool_.drop(host_block);
}

void KvBlocks::evict(int32_t block) {
  const int32_t node = node_in(block);
  if (host_pool_.num_blocks() > 0) {
    move_to_host(node);
  } else {
    forget(node);
  }
}

/// REQUIRES: the node is in a cached block.
void KvBlocks::move_to_host(int32_t node) {
  reserve_copies(1);
  if (host_pool_.num_free() == 0) forget(node_in_host(host_pool_.oldest_cached()));
  const int32_t block = std::exchange(at(node).block, kNone);
  in_block_[static_cast<size_t>(block)] = kNone;
  pool_.drop(block);
  const int32_t host_block = host_pool_.take();
  host_pool_.keep(host_block);
  host_pool_.release(host_block);
  at(node).host_block = host_block;
  in_host_block_[static_cast<size_t>(host_block)] = node;
  copies_.push_back({block, host_block, true});
  ++moved_to_host_;
}

/// REQUIRES: the node is in a cached block, or a host block, and has no children.
void KvBlocks::forget(int32_t node) {
  index_.erase(node);
  if (at(node).host_block != kNone) leave_host_block(node);
  if (const int32_t block = std::exchange(at(node).block, kNone); block != kNone) {
    in_block_[static_cast<size_t>(block)] = kNone;
    pool_.drop(block);
  }
  free_nodes_.push_back(node);
}

/// Room for `count` copies more.
void KvBlocks::reserve_copies(size_t count) {
  const size_t needed = copies_.size() + count;
  if (needed > copies_.capacity()) copies_.reserve(std::max(needed, 2 * copies_.capacity()));
}

}  // namespace headrace
