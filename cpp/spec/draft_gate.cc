#include "spec/draft_gate.h"

#include <algorithm>

namespace headrace {

namespace {

constexpr double kMemory = 0.15;  // weight of the newest guess in the chance
constexpr double kLeastChance = 0.02, kMostChance = 0.98;

}  // namespace

int32_t DraftGate::allow(std::span<const double> costs) const {
  if (pause_ > 0 || costs.empty()) return 0;
  int32_t best = 1, count = 0;
  double gain = 0, best_gain = 0, all_right = 1;
  for (const double cost : costs) {
    if (cost > account_) break;
    ++count;
    all_right *= chance_;
    gain += all_right;
    if (gain - cost > best_gain) {
      best = count;
      best_gain = gain - cost;
    }
  }
  return std::min(best, count);
}

void DraftGate::record(int32_t computed, int32_t confirmed, double cost) {
  account_ = std::min(kMost, account_ + kShare + confirmed - cost);
  if (computed == 0) {
    pause_ = std::max(0, pause_ - 1);
    return;
  }
  for (int32_t i = 0; i < confirmed; ++i) chance_ += kMemory * (1 - chance_);
  if (confirmed < computed) chance_ -= kMemory * chance_;
  chance_ = std::clamp(chance_, kLeastChance, kMostChance);
  failures_ = confirmed > 0 ? 0 : std::min(failures_ + 1, 30);
  if (failures_ >= 2) pause_ = std::min(kMaxPause, 1 << std::min(failures_ - 2, 20));
}

}  // namespace headrace
