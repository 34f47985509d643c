#pragma once

namespace headrace {

/// The mean of times, given one more: quick to fall and slow to rise, so that steps that something
/// else on the machine has held up hardly count. 0: there is none yet.
double follow_times(double mean, double seconds);

}  // namespace headrace
