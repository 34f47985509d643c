#include "kv/block_pool.h"

#include <utility>

#include "base/check.h"

namespace headrace {

BlockPool::BlockPool(int32_t num_blocks) {
  HEADRACE_CHECK(num_blocks >= 0, num_blocks);
  const auto n = static_cast<size_t>(num_blocks);
  holders_.assign(n, 0);
  keep_.assign(n, 0);
  previous_.assign(n + 1, kNone);
  next_.assign(n + 1, kNone);
  free_.reserve(n);
  for (int32_t block = num_blocks; block-- > 0;) free_.push_back(block);
}

size_t BlockPool::checked(int32_t block) const {
  HEADRACE_CHECK(block >= 0 && block < num_blocks(), "block ", block, " of ", num_blocks());
  return static_cast<size_t>(block);
}

int32_t BlockPool::take() {
  if (free_.empty()) return kNone;
  const int32_t block = free_.back();
  free_.pop_back();
  holders_[static_cast<size_t>(block)] = 1;
  return block;
}

void BlockPool::retain(int32_t block) {
  const size_t b = checked(block);
  HEADRACE_CHECK(holders_[b] > 0 || keep_[b], "block ", block, " is free");
  if (holders_[b]++ == 0) unlink(b);
}

void BlockPool::release(int32_t block) {
  const size_t b = checked(block);
  HEADRACE_CHECK(holders_[b] > 0, "block ", block, " is not held");
  if (--holders_[b] > 0) return;
  if (keep_[b]) {
    link_newest(b);
  } else {
    free_.push_back(block);
  }
}

void BlockPool::keep(int32_t block) {
  const size_t b = checked(block);
  HEADRACE_CHECK(holders_[b] > 0, "block ", block, " is not held");
  keep_[b] = 1;
}

void BlockPool::drop(int32_t block) {
  const size_t b = checked(block);
  HEADRACE_CHECK(is_cached(block), "block ", block, " is not cached");
  unlink(b);
  keep_[b] = 0;
  free_.push_back(block);
}

int32_t BlockPool::next_cached(int32_t block) const {
  HEADRACE_CHECK(is_cached(block), "block ", block, " is not cached");
  const int32_t next = next_[static_cast<size_t>(block)];
  return std::cmp_equal(next, sentinel()) ? kNone : next;
}

void BlockPool::link_newest(size_t block) noexcept {
  const auto end = static_cast<int32_t>(sentinel());
  const int32_t newest = previous_[sentinel()] == kNone ? end : previous_[sentinel()];
  previous_[block] = newest;
  next_[block] = end;
  next_[static_cast<size_t>(newest)] = static_cast<int32_t>(block);
  previous_[sentinel()] = static_cast<int32_t>(block);
  ++num_cached_;
}

void BlockPool::unlink(size_t block) noexcept {
  next_[static_cast<size_t>(previous_[block])] = next_[block];
  previous_[static_cast<size_t>(next_[block])] = previous_[block];
  if (--num_cached_ == 0) next_[sentinel()] = previous_[sentinel()] = kNone;
}

}  // namespace headrace
