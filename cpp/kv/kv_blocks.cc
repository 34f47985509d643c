#include "kv/kv_blocks.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace headrace {

namespace {

/// Nodes for each block where nodes may be without one.
constexpr int64_t kNodesPerBlock = 8;

int32_t count_nodes(int32_t num_blocks, int32_t num_host_blocks, const KvGroups& groups) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const int64_t blocks = int64_t{num_blocks} + num_host_blocks;
  HEADRACE_CHECK(num_blocks >= 0 && num_host_blocks >= 0 && blocks <= kMost, num_blocks, " + ",
                 num_host_blocks);
  return static_cast<int32_t>(groups.all_slide() ? std::min(kNodesPerBlock * blocks, kMost)
                                                 : blocks);
}

KvGroups checked(KvGroups groups) {
  const auto keeps_all = [](int32_t window) { return window == 0; };
  HEADRACE_CHECK(groups.size() > 0 && groups.block_size > 0 && groups.step_rows > 0,
                 groups.block_size);
  HEADRACE_CHECK(std::ranges::all_of(groups.windows, [](int32_t w) { return w >= 0; }));
  HEADRACE_CHECK(std::ranges::is_partitioned(groups.windows, keeps_all));
  return groups;
}

}  // namespace

KvBlocks::KvBlocks(int32_t num_blocks, KvGroups groups, bool enable_prefix_caching,
                   int32_t num_host_blocks, int32_t num_state_slots, int32_t num_host_state_slots)
    : groups_(checked(std::move(groups))),
      enabled_(enable_prefix_caching),
      pool_(num_blocks),
      host_pool_(enable_prefix_caching ? num_host_blocks : 0),
      index_(enable_prefix_caching ? count_nodes(num_blocks, num_host_blocks, groups_) : 0,
             groups_.block_size),
      states_(index_, index_.num_nodes(), num_state_slots,
              enable_prefix_caching ? num_host_state_slots : 0) {
  if (!enabled_) num_host_blocks = 0;
  const int32_t num_nodes = index_.num_nodes();
  nodes_.resize(static_cast<size_t>(num_nodes) * groups_.size());
  free_nodes_.reserve(static_cast<size_t>(num_nodes));
  for (int32_t node = num_nodes; node-- > 0;) free_nodes_.push_back(node);
  in_block_.assign(static_cast<size_t>(num_blocks), {});
  in_host_block_.assign(static_cast<size_t>(num_host_blocks), {});
  // Each block once to a host block and once back, which is more than a plan will ask for.
  if (num_host_blocks > 0) copies_.reserve(2 * in_block_.size());
}

int32_t KvBlocks::take() {
  if (pool_.num_free() == 0 && pool_.num_cached() > 0) evict(pool_.oldest_cached());
  return pool_.take();
}

bool KvBlocks::take_column(KvTables& tables) {
  if (std::cmp_less(available(), groups_.size())) return false;
  size_t taken = 0;
  try {
    for (; taken < groups_.size(); ++taken) tables.groups[taken].push_back(take());
  } catch (...) {
    while (taken-- > 0) {
      pool_.release(tables.groups[taken].back());
      tables.groups[taken].pop_back();
    }
    throw;
  }
  return true;
}

KvBlocks::Chain KvBlocks::find_chain(const CacheIdentity& identity, std::span<const int32_t> tokens,
                                     bool in_blocks) const {
  const auto size = static_cast<size_t>(groups_.block_size);
  Chain out;
  out.nodes.reserve(tokens.size() / size);
  PrefixIndex::Place place{identity.sequence, kNone};
  while ((out.nodes.size() + 1) * size <= tokens.size()) {
    const size_t index = out.nodes.size();
    const int32_t node =
        index_.find(place, content_at(identity, index, tokens.subspan(index * size, size)));
    if (node == kNone) break;
    if (in_blocks && !is_in_blocks(node)) break;
    out.nodes.push_back(node);
    place.parent = node;
  }
  count_usable(out, in_blocks);
  return out;
}

/// Whether the node's blocks of groups that keep all rows are no host blocks.
bool KvBlocks::is_in_blocks(int32_t node) const {
  for (size_t g = 0; g < groups_.size() && !groups_.slides(g); ++g) {
    if (at(node, g).block == kNone) return false;
  }
  return true;
}

/// The most nodes behind which a row finds all that it reads. `in_blocks`: not in host blocks.
void KvBlocks::count_usable(Chain& chain, bool in_blocks) const {
  const auto count = static_cast<int32_t>(chain.nodes.size());
  if (!groups_.any_slides() && !has_states()) {
    chain.found = chain.usable = count;
    return;
  }
  std::vector<int32_t> since(groups_.size(), 0);  // a group's blocks are there from this node on
  for (int32_t n = 1; n <= count; ++n) {
    const int32_t node = chain.nodes[static_cast<size_t>(n) - 1];
    bool has_all = true;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const Whereabouts& where = at(node, g);
      if (in_blocks ? where.block == kNone : !where.exists()) since[g] = n;
      has_all = has_all && since[g] <= first_held(g, n);
    }
    if (!has_all) continue;
    chain.found = n;
    if (!has_states() || states_.has_snapshot(node)) chain.usable = n;
  }
}

KvTables KvBlocks::acquire_prefix(const CacheIdentity& identity, std::span<const int32_t> tokens) {
  KvTables out(groups_.size());
  if (!enabled_) return out;
  const Chain chain = find_chain(identity, tokens, true);
  out.found = chain.found;
  out.reserve(chain.usable);
  hold_blocks_of(chain, out);
  for (size_t g = 0; g < groups_.size(); ++g) out.first[g] = first_held(g, chain.usable);
  return out;
}

/// Appends the chain's columns behind the tables', with those blocks that a hit needs and that are
/// in blocks.
void KvBlocks::hold_blocks_of(const Chain& chain, KvTables& tables) {
  const int32_t begin = tables.columns();
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int32_t first = first_held(g, chain.usable);
    for (int32_t i = begin; i < chain.usable; ++i) {
      const int32_t block = i < first ? kNone : at(chain.nodes[static_cast<size_t>(i)], g).block;
      if (block != kNone) pool_.retain(block);
      tables.groups[g].push_back(block);
    }
  }
}

PrefixIndex::Place KvBlocks::behind(const CacheIdentity& identity, const KvTables& tables,
                                    size_t columns) const {
  return {identity.sequence, columns == 0 ? kNone : node_in(tables.groups.front()[columns - 1])};
}

/// What the blocks of a column hold: these tokens, and the media at its positions.
PrefixIndex::Content KvBlocks::content_at(const CacheIdentity& identity, size_t index,
                                          std::span<const int32_t> tokens) const {
  const auto size = static_cast<size_t>(groups_.block_size);
  return {tokens, identity.media_in(index * size, (index + 1) * size)};
}

int32_t KvBlocks::restore_prefix(const CacheIdentity& identity, std::span<const int32_t> tokens,
                                 KvTables& tables) {
  if (host_pool_.num_cached() == 0) return 0;
  const Chain chain = find_chain(identity, tokens, false);
  const int32_t begin = tables.columns();
  tables.found = std::max(tables.found, chain.found);
  if (chain.usable <= begin) return 0;
  tables.reserve(chain.usable);
  // What is wanted now makes no room for what it evicts, and isn't evicted itself.
  const std::vector<HostBlock> held = hold_host_chain(chain, begin);
  hold_blocks_of(chain, tables);
  int32_t filled = 0;
  try {
    filled = fill_from_host(chain, begin, tables);
  } catch (...) {
    release_host_chain(held);
    throw;
  }
  release_host_chain(held);
  if (tables.columns() < chain.usable) return filled;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int32_t first = first_held(g, chain.usable);
    for (int32_t i = tables.first[g]; i < std::min(first, begin); ++i) {
      pool_.release(std::exchange(tables.groups[g][static_cast<size_t>(i)], kNone));
    }
    tables.first[g] = first;
  }
  return filled;
}

/// Those of nodes from `first` on, children before their parents.
std::vector<KvBlocks::HostBlock> KvBlocks::hold_host_chain(const Chain& chain, int32_t first) {
  std::vector<HostBlock> out;
  for (int32_t i = chain.usable; i-- > first;) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      const int32_t node = chain.nodes[static_cast<size_t>(i)];
      if (at(node, g).host_block != kNone) out.push_back({node, g, at(node, g).host_block});
    }
  }
  for (const HostBlock& held : out) host_pool_.retain(held.block);
  return out;
}

/// They are the ones used last then. What has moved to a block is held no more.
void KvBlocks::release_host_chain(const std::vector<HostBlock>& held) {
  for (const auto& [node, group, block] : held) {
    if (at(node, group).host_block == block) host_pool_.release(block);
  }
}

/// Fills in what hold_blocks_of() has left out of columns from `first` on; returns of how many
/// columns. If there is not enough room, the tables are as long as what they hold can be used.
int32_t KvBlocks::fill_from_host(const Chain& chain, int32_t first, KvTables& tables) {
  int32_t filled = 0;
  for (int32_t i = first; i < chain.usable; ++i) {
    bool moved = false;
    for (size_t g = 0; g < groups_.size(); ++g) {
      int32_t& entry = tables.groups[g][static_cast<size_t>(i)];
      if (entry != kNone || i < first_held(g, chain.usable)) continue;
      moved = move_from_host(chain.nodes[static_cast<size_t>(i)], g, entry);
      if (moved) continue;
      const bool is_useless = groups_.any_slides() || has_states();
      shorten(tables, is_useless ? first : i);
      return is_useless ? 0 : filled;
    }
    if (moved) ++filled;
  }
  return filled;
}

/// False if there is no block for it. REQUIRES: its host block is held.
bool KvBlocks::move_from_host(int32_t node, size_t group, int32_t& entry) {
  reserve_copies(groups_.size() + 1);
  const int32_t block = take();
  if (block == kNone) return false;
  const int32_t host_block = at(node, group).host_block;
  copies_.push_back({block, host_block, false});
  ++moved_from_host_;
  host_pool_.release(host_block);
  leave_host_block(node, group);
  put_in_block(node, group, block);
  entry = block;
  return true;
}

StateSlots::Start KvBlocks::start_state(const KvTables& tables) {
  const auto columns = static_cast<size_t>(tables.columns());
  return states_.start(columns == 0 ? kNone : node_in(tables.groups.front()[columns - 1]));
}

bool KvBlocks::publish_state(const KvTables& tables, size_t index, int32_t slot, bool is_shared) {
  const int32_t node = node_in(tables.groups.front()[index]);
  if (node != kNone) return states_.publish(node, slot, is_shared);
  states_.release(slot);
  return false;
}

void KvBlocks::drop_state(const KvTables& tables, size_t index, int32_t columns) {
  int32_t node = node_in(tables.groups.front()[index]);
  for (; columns > 0; --columns) node = index_.parent(node);
  states_.drop(node);
}

void KvBlocks::publish(const CacheIdentity& identity, KvTables& tables, size_t index,
                       std::span<const int32_t> tokens) {
  if (!enabled_ || !tables.listed) return;
  HEADRACE_CHECK(std::cmp_less(index, tables.columns()), index, " of ", tables.columns());
  const PrefixIndex::Place place = behind(identity, tables, index);
  const PrefixIndex::Content content = content_at(identity, index, tokens);
  int32_t node = index_.find(place, content);
  if (node == kNone) {
    tables.listed = !free_nodes_.empty();
    if (!tables.listed) return;
    node = free_nodes_.back();
    index_.insert(place, content, node, identity.media);
    free_nodes_.pop_back();
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    int32_t& entry = tables.groups[g][index];
    const Whereabouts where = at(node, g);
    if (where.block != kNone) {
      pool_.retain(where.block);
      pool_.release(entry);
      entry = where.block;
      continue;
    }
    if (where.host_block != kNone) leave_host_block(node, g);
    put_in_block(node, g, entry);
  }
}

void KvBlocks::give_back(KvTables& tables, int32_t position, int32_t end) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int32_t stop = std::min(groups_.first_read(g, position), end);
    for (int32_t& i = tables.first[g]; i < stop; ++i) {
      pool_.release(std::exchange(tables.groups[g][static_cast<size_t>(i)], kNone));
    }
  }
}

void KvBlocks::release(KvTables& tables) {
  shorten(tables, 0);
  std::ranges::fill(tables.first, 0);
  tables.found = 0;
  tables.listed = true;
}

/// Releases the columns behind the first `columns`.
void KvBlocks::shorten(KvTables& tables, int32_t columns) {
  while (tables.columns() > columns) {
    for (auto& table : tables.groups) {
      if (table.back() != kNone) pool_.release(table.back());
      table.pop_back();
    }
  }
}

void KvBlocks::clear_cache() {
  states_.clear();
  while (host_pool_.num_cached() > 0) forget_host_block(host_pool_.oldest_cached());
  while (pool_.num_cached() > 0) {
    const Owner owner = in_block_[static_cast<size_t>(pool_.oldest_cached())];
    const auto group = static_cast<size_t>(owner.group);
    if (!groups_.slides(group)) {
      forget(owner.node);
      continue;
    }
    leave_block(owner.node, group);
    erase_if_empty(owner.node);
  }
}

std::vector<BlockCopy> KvBlocks::take_copies() {
  std::vector<BlockCopy> out = copies_;
  out.insert(out.end(), states_.copies().begin(), states_.copies().end());
  copies_.clear();
  states_.clear_copies();
  return out;
}

/// REQUIRES: the block is held.
void KvBlocks::put_in_block(int32_t node, size_t group, int32_t block) {
  at(node, group).block = block;
  in_block_[static_cast<size_t>(block)] = {node, static_cast<int32_t>(group)};
  pool_.keep(block);
}

/// REQUIRES: it is in a cached block.
void KvBlocks::leave_block(int32_t node, size_t group) {
  const int32_t block = std::exchange(at(node, group).block, kNone);
  in_block_[static_cast<size_t>(block)] = {};
  pool_.drop(block);
}

void KvBlocks::leave_host_block(int32_t node, size_t group) {
  const int32_t host_block = std::exchange(at(node, group).host_block, kNone);
  in_host_block_[static_cast<size_t>(host_block)] = {};
  host_pool_.drop(host_block);
}

/// A group with a window loses its block alone; if others keep all rows, it isn't worth a host
/// block then.
void KvBlocks::evict(int32_t block) {
  const Owner owner = in_block_[static_cast<size_t>(block)];
  const auto group = static_cast<size_t>(owner.group);
  const int32_t node = owner.node;
  if (groups_.slides(group)) {
    if (groups_.all_slide() && make_room_in_host(1)) return move_to_host(node, group);
    leave_block(node, group);
    return erase_if_empty(node);
  }
  int32_t count = 0;
  for (size_t g = 0; g < groups_.size(); ++g) count += at(node, g).block != kNone ? 1 : 0;
  if (!make_room_in_host(count)) return forget(node);
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (at(node, g).block != kNone) move_to_host(node, g);
  }
}

/// False if there are too few host blocks that nobody holds. Then none of them is used: no node in
/// a block has children there.
bool KvBlocks::make_room_in_host(int32_t count) {
  if (host_pool_.num_blocks() == 0) return false;
  reserve_copies(static_cast<size_t>(count));
  while (host_pool_.num_free() < count && host_pool_.num_cached() > 0) {
    forget_host_block(host_pool_.oldest_cached());
  }
  return host_pool_.num_free() >= count;
}

/// REQUIRES: it is in a cached block, and a host block is free.
void KvBlocks::move_to_host(int32_t node, size_t group) {
  const int32_t block = at(node, group).block;
  leave_block(node, group);
  const int32_t host_block = host_pool_.take();
  host_pool_.keep(host_block);
  host_pool_.release(host_block);
  at(node, group).host_block = host_block;
  in_host_block_[static_cast<size_t>(host_block)] = {node, static_cast<int32_t>(group)};
  copies_.push_back({block, host_block, true});
  ++moved_to_host_;
}

void KvBlocks::forget_host_block(int32_t host_block) {
  const Owner owner = in_host_block_[static_cast<size_t>(host_block)];
  const auto group = static_cast<size_t>(owner.group);
  if (!groups_.slides(group)) return forget(owner.node);
  leave_host_block(owner.node, group);
  erase_if_empty(owner.node);
}

/// REQUIRES: none of the node's blocks is held, and it has no children.
void KvBlocks::forget(int32_t node) {
  HEADRACE_CHECK(index_.children(node) == 0, "node ", node);
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (at(node, g).host_block != kNone) leave_host_block(node, g);
    if (at(node, g).block != kNone) leave_block(node, g);
  }
  erase_if_empty(node);
}

/// Erases a node without blocks and children, and then its parent if it is such a node, too.
void KvBlocks::erase_if_empty(int32_t node) {
  while (node != kNone && index_.children(node) == 0) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (at(node, g).exists()) return;
    }
    const int32_t parent = index_.parent(node);
    states_.forget(node);
    index_.erase(node);
    free_nodes_.push_back(node);
    node = parent;
  }
}

/// Room for `count` copies more.
void KvBlocks::reserve_copies(size_t count) {
  const size_t needed = copies_.size() + count;
  if (needed > copies_.capacity()) copies_.reserve(std::max(needed, 2 * copies_.capacity()));
}

}  // namespace headrace
