#include "spec/follow_times.h"

#include <algorithm>

namespace headrace {

double follow_times(double mean, double seconds) {
  constexpr double kFall = 0.25, kRise = 0.05, kOutlier = 1.5;
  if (mean == 0) return seconds;
  const double change = std::min(seconds, kOutlier * mean) - mean;
  return mean + (change < 0 ? kFall : kRise) * change;
}

}  // namespace headrace
