#include "spec/step_cost.h"

#include <algorithm>
#include <cmath>

#include "spec/follow_times.h"

namespace headrace {

void StepCost::observe(int32_t rows, double seconds) {
  if (rows < 1 || rows > kMaxRows) return;
  Entry& entry = entries_[static_cast<size_t>(rows)];
  entry.seconds = follow_times(entry.seconds, seconds);
  entry.seen = ++now_;
}

double StepCost::seconds(int32_t rows) const {
  int32_t below = std::clamp(rows, 1, kMaxRows), above = below;
  while (below > 0 && entries_[static_cast<size_t>(below)].seen == 0) --below;
  while (above <= kMaxRows && entries_[static_cast<size_t>(above)].seen == 0) ++above;
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
  while (known > rows && entries_[static_cast<size_t>(known)].seen == 0) --known;
  const double base = seconds(rows);
  if (known <= rows || base <= 0) return kUnknown * more;
  uint64_t newest = 0;
  for (int32_t i = rows + 1; i <= known; ++i) {
    newest = std::max(newest, entries_[static_cast<size_t>(i)].seen);
  }
  const double trust = std::exp2(-static_cast<double>(now_ - newest) / kHalfLife);
  const int32_t inside = std::min(more, known - rows);
  double share = seconds(rows + inside) / base - 1;
  // Beyond what has been seen: at the same price a row, and not below the unknown's.
  share += (more - inside) * std::max(kUnknown / 2, share / inside);
  return std::max(kLeast * more, trust * share);
}

}  // namespace headrace
