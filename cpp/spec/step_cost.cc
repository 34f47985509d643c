#include "spec/step_cost.h"

#include <algorithm>

namespace headrace {

namespace {

// The newest observation's least weight, and how far above the mean one may count: a busy
// neighbour's step says little about the next.
constexpr double kWeight = 0.1;
constexpr double kOutlier = 1.5;
constexpr int32_t kTrusted = 4;

}  // namespace

void StepCost::observe(int32_t rows, double seconds) {
  if (rows < 1 || rows > kMaxRows) return;
  Entry& entry = entries_[static_cast<size_t>(rows)];
  if (entry.count >= kTrusted) seconds = std::min(seconds, kOutlier * entry.seconds);
  entry.count = std::min(entry.count + 1, 1000);
  entry.seconds += std::max(kWeight, 1.0 / entry.count) * (seconds - entry.seconds);
}

double StepCost::seconds(int32_t rows) const {
  int32_t below = std::clamp(rows, 1, kMaxRows), above = below;
  while (below > 0 && entries_[static_cast<size_t>(below)].count == 0) --below;
  while (above <= kMaxRows && entries_[static_cast<size_t>(above)].count == 0) ++above;
  const bool has_below = below > 0, has_above = above <= kMaxRows;
  if (!has_below && !has_above) return 0;
  if (!has_above) return entries_[static_cast<size_t>(below)].seconds;
  const double high = entries_[static_cast<size_t>(above)].seconds;
  if (!has_below || above == below) return high;
  const double low = entries_[static_cast<size_t>(below)].seconds;
  return low + (high - low) * (rows - below) / (above - below);
}

double StepCost::extra(int32_t rows, int32_t more) const {
  int32_t known = kMaxRows;
  while (known > rows && entries_[static_cast<size_t>(known)].count == 0) --known;
  const double base = seconds(rows);
  if (known <= rows || base <= 0) return kUnknown * more;
  const int32_t inside = std::min(more, known - rows);
  double share = seconds(rows + inside) / base - 1;
  // Beyond what has been seen: at the same price a row, and not below the unknown's.
  share += (more - inside) * std::max(kUnknown / 2, share / inside);
  return std::max(kLeast * more, share);
}

}  // namespace headrace
