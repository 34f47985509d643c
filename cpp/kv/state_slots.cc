#include "kv/state_slots.h"

#include <utility>

#include "base/check.h"

namespace headrace {

StateSlots::StateSlots(const PrefixIndex& index, int32_t num_nodes, int32_t num_slots,
                       int32_t num_host_slots)
    : index_(index), pool_(num_slots), host_pool_(num_host_slots) {
  HEADRACE_CHECK(num_nodes >= 0, num_nodes);
  if (num_slots > 0) nodes_.resize(static_cast<size_t>(num_nodes));
  node_in_.assign(static_cast<size_t>(num_slots), kNone);
  node_in_host_.assign(static_cast<size_t>(num_host_slots), kNone);
}

int32_t StateSlots::take() {
  if (pool_.num_free() == 0 && pool_.num_cached() > 0) evict(least_useful(pool_, node_in_));
  return pool_.take();
}

StateSlots::Start StateSlots::start(int32_t node) {
  if (available() == 0) return {};
  if (node == kNone) return {.live = take()};
  HEADRACE_CHECK(has_snapshot(node), "node ", node);
  at(node).is_shared = true;
  if (const int32_t host_slot = at(node).host_slot; host_slot != kNone) {
    copies_.reserve(copies_.size() + 2);
    host_pool_.retain(host_slot);  // it makes no room for another
    const int32_t live = take();
    host_pool_.release(host_slot);
    copies_.push_back({live, host_slot, false, true});
    ++restored_;
    return {.live = live};
  }
  const int32_t source = at(node).slot;
  pool_.retain(source);
  if (available() == 0) {
    pool_.release(source);
    leave_slot(node);
    count(node, -1);
    return {.live = pool_.take()};
  }
  try {
    return {.live = take(), .source = source};
  } catch (...) {
    pool_.release(source);
    throw;
  }
}

bool StateSlots::publish(int32_t node, int32_t slot, bool is_shared) {
  at(node).is_shared = at(node).is_shared || is_shared;
  if (at(node).slot != kNone) {
    pool_.release(slot);
    return false;
  }
  if (at(node).host_slot != kNone) {
    leave_host_slot(node);
  } else {
    count(node, 1);
  }
  at(node).slot = slot;
  node_in_[static_cast<size_t>(slot)] = node;
  pool_.keep(slot);
  pool_.release(slot);
  ++num_snapshots_;
  ++written_;
  return true;
}

void StateSlots::drop(int32_t node) {
  const int32_t slot = at(node).slot;
  if (slot == kNone || pool_.is_cached(slot)) forget(node);
}

void StateSlots::forget(int32_t node) {
  if (nodes_.empty() || !has_snapshot(node)) return;
  if (at(node).slot != kNone) {
    leave_slot(node);
  } else {
    leave_host_slot(node);
  }
  at(node).is_shared = false;
  count(node, -1);
}

void StateSlots::clear() {
  while (pool_.num_cached() > 0) {
    forget(node_in_[static_cast<size_t>(pool_.oldest_cached())]);
  }
  while (host_pool_.num_cached() > 0) {
    forget(node_in_host_[static_cast<size_t>(host_pool_.oldest_cached())]);
  }
}

/// REQUIRES: one is cached.
int32_t StateSlots::least_useful(const BlockPool& pool, const std::vector<int32_t>& node_in) const {
  int32_t slot = pool.oldest_cached();
  const auto was_passed_by = [&](int32_t node) {
    return at(node).behind > 0 && !at(node).is_shared;
  };
  while (slot != kNone && !was_passed_by(node_in[static_cast<size_t>(slot)])) {
    slot = pool.next_cached(slot);
  }
  return slot != kNone ? slot : pool.oldest_cached();
}

/// REQUIRES: a snapshot that nobody holds.
void StateSlots::evict(int32_t slot) {
  const int32_t node = node_in_[static_cast<size_t>(slot)];
  if (host_pool_.num_blocks() > 0) copies_.reserve(copies_.size() + 1);
  const bool moves = make_room_in_host();
  ++evicted_;
  leave_slot(node);
  if (!moves) {
    at(node).is_shared = false;
    return count(node, -1);
  }
  const int32_t host_slot = host_pool_.take();
  host_pool_.keep(host_slot);
  host_pool_.release(host_slot);
  at(node).host_slot = host_slot;
  node_in_host_[static_cast<size_t>(host_slot)] = node;
  copies_.push_back({slot, host_slot, true, true});
}

/// False if there is none that nobody holds.
bool StateSlots::make_room_in_host() {
  if (host_pool_.num_free() > 0) return true;
  if (host_pool_.num_cached() == 0) return false;
  forget(node_in_host_[static_cast<size_t>(least_useful(host_pool_, node_in_host_))]);
  return true;
}

/// REQUIRES: nobody holds it.
void StateSlots::leave_slot(int32_t node) {
  const int32_t slot = std::exchange(at(node).slot, kNone);
  node_in_[static_cast<size_t>(slot)] = kNone;
  pool_.drop(slot);
  --num_snapshots_;
}

void StateSlots::leave_host_slot(int32_t node) {
  const int32_t host_slot = std::exchange(at(node).host_slot, kNone);
  node_in_host_[static_cast<size_t>(host_slot)] = kNone;
  host_pool_.drop(host_slot);
}

/// The node gets a snapshot, or has none any more.
void StateSlots::count(int32_t node, int32_t change) noexcept {
  for (node = index_.parent(node); node != kNone; node = index_.parent(node)) {
    at(node).behind += change;
  }
}

}  // namespace headrace
