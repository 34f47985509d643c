#include "text/model/pair_table.h"

#include "base/check.h"

namespace headrace::text {

void PairTable::grow(size_t slots) {
  std::vector<uint64_t> old(slots, kEmpty);
  old.swap(slots_);
  max_probes_ = 0;
  const size_t mask = slots_.size() - 1;
  for (const uint64_t entry : old) {
    if (entry == kEmpty) continue;
    size_t slot = place(entry >> kRankBits) & mask;
    size_t probes = 0;
    for (; slots_[slot] != kEmpty; slot = (slot + 1) & mask) ++probes;
    slots_[slot] = entry;
    max_probes_ = std::max(max_probes_, probes);
  }
}

void PairTable::reserve(size_t pairs) {
  size_t slots = slots_.size();
  while (slots < pairs * 2) slots *= 2;
  if (slots != slots_.size()) grow(slots);
}

void PairTable::insert(uint64_t key, uint32_t rank) {
  constexpr size_t kMaxProbes = 1024;
  const size_t mask = slots_.size() - 1;
  size_t slot = place(key) & mask;
  size_t probes = 0;
  for (; slots_[slot] != kEmpty; slot = (slot + 1) & mask, ++probes) {
    if (slots_[slot] >> kRankBits == key) {
      slots_[slot] = key << kRankBits | rank;
      return;
    }
    if (probes == kMaxProbes) {
      throw_error(ErrorCode::kLimitExceeded, "the merges are made to collide in a hash table");
    }
  }
  slots_[slot] = key << kRankBits | rank;
  max_probes_ = std::max(max_probes_, probes);
  ++count_;
}

void PairTable::insert(std::span<const Merge> merges) {
  if ((count_ + merges.size()) * 2 > slots_.size()) reserve(count_ + merges.size());
  const size_t mask = slots_.size() - 1;
  for (const Merge& merge : merges) {
    __builtin_prefetch(&slots_[place(key_of(merge.left, merge.right)) & mask], 1);
  }
  for (const Merge& merge : merges) insert(key_of(merge.left, merge.right), merge.rank);
}

}  // namespace headrace::text
