#include "text/model/pair_table.h"

#include "base/check.h"

namespace headrace::text {

void PairTable::grow(size_t slots) {
  std::vector<uint64_t> old(slots, kEmpty);
  old.swap(slots_);
  max_probes_ = 0;
  for (const uint64_t entry : old) {
    if (entry == kEmpty) continue;
    size_t slot = place(entry >> kRankBits);
    size_t probes = 0;
    for (; slots_[slot] != kEmpty; slot = behind(slot)) ++probes;
    slots_[slot] = entry;
    max_probes_ = std::max(max_probes_, probes);
  }
}

void PairTable::reserve(size_t pairs) {
  const size_t slots = slots_for(pairs);
  if (slots > slots_.size()) grow(slots);
}

void PairTable::insert(uint64_t key, uint32_t rank) {
  constexpr size_t kMaxProbes = 1024;
  size_t slot = place(key);
  size_t probes = 0;
  for (; slots_[slot] != kEmpty; slot = behind(slot), ++probes) {
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
  const size_t most = count_ + merges.size();
  if (slots_for(most) > slots_.size()) reserve(most * 2);
  for (const Merge& merge : merges) {
    __builtin_prefetch(&slots_[place(key_of(merge.left, merge.right))], 1);
  }
  for (const Merge& merge : merges) insert(key_of(merge.left, merge.right), merge.rank);
}

}  // namespace headrace::text
