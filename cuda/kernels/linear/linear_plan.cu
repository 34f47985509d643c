#include "cuda/kernels/linear/linear_plan.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"

namespace headrace::cuda {
namespace {

constexpr int64_t kUnit = 64;  // of k
constexpr double kRowBytes = 2 * kUnit;

// What an H100 does in a cycle at 1.75 GHz, fitted to the times of all plans (docs/lab). It has
// lower clocks where its tensor cores are busy, hence fewer sums than the 2048 of a cycle.
constexpr double kSums = 1680;         // of a multiprocessor
constexpr double kArrivingBytes = 46;  // of a multiprocessor's
constexpr double kL2Bytes = 4300;      // of all
constexpr double kMemoryBytes = 1500;  // of the GPU's memory
constexpr double kStart = 3300;  // until the first products, and until the last results lie there
constexpr double kClusterStart = 1200;  // more, if blocks wait for each other
// Between a block's tiles: linear_stream starts anew, linear_wgmma writes results.
constexpr double kStreamEnd = 1400, kWgmmaEnd = 4500;

// Of plans that are predicted to be as fast, the first one is chosen: larger clusters are a little
// faster, and those that share weights.
constexpr std::array<ClusterShape, 5> kClusters = {{{2, 2}, {1, 4}, {2, 1}, {1, 2}, {1, 1}}};
// Tiles of 96 features were the fastest in 1 of 24 measured products, and misled the model in 2.
constexpr LinearPlan kTiles[] = {{true, 64, 64, {}},    {true, 128, 64, {}},
                                 {false, 128, 128, {}}, {false, 128, 192, {}},
                                 {false, 128, 224, {}}, {false, 128, 256, {}}};
constexpr size_t kCount = std::size(kTiles) * kClusters.size();

constexpr std::array<LinearPlan, kCount> all_plans() {
  std::array<LinearPlan, kCount> out;
  for (size_t i = 0; i < kCount; ++i) {
    out[i] = kTiles[i / kClusters.size()];
    out[i].cluster = kClusters[i % kClusters.size()];
  }
  return out;
}
constexpr std::array<LinearPlan, kCount> kPlans = all_plans();

constexpr int64_t tiles_of(int64_t size, int64_t tile, int64_t cluster) {
  return (size + tile * cluster - 1) / (tile * cluster) * cluster;
}

/// Of a unit of k, if nothing outside the multiprocessor were scarce.
double inner_cycles(const LinearPlan& plan) {
  const double tokens = plan.tokens, features = plan.features;
  return std::max(tokens * features * kUnit / kSums,
                  (tokens + features) * kRowBytes / kArrivingBytes);
}

}  // namespace

std::span<const LinearPlan> linear_plans() { return kPlans; }

double linear_cycles(const LinearPlan& plan, const LinearSize& size, const ClusterRoom& room) {
  const int64_t blocks = room.blocks(plan.cluster.size());
  if (blocks < plan.cluster.size()) return std::numeric_limits<double>::infinity();
  const int64_t token_tiles = tiles_of(size.rows, plan.tokens, plan.cluster.tokens);
  const int64_t tiles = token_tiles * tiles_of(size.features, plan.features, plan.cluster.features);
  const double inner = inner_cycles(plan);
  const double copied = kRowBytes * (double(plan.tokens) / plan.cluster.features +
                                     double(plan.features) / plan.cluster.tokens);
  const auto round = [&](int64_t running) {
    const double sharing = static_cast<double>(std::min<int64_t>(token_tiles, 16));
    const double weights = std::max(1.0, double(running) / sharing) * plan.features * kRowBytes;
    const double unit =
        std::max({inner, double(running) * copied / kL2Bytes, weights / kMemoryBytes});
    return double(size.k) / kUnit * unit + (plan.streams ? kStreamEnd : kWgmmaEnd);
  };
  const int64_t rest = tiles % blocks;
  const double start = kStart + (plan.cluster.size() > 1 ? kClusterStart : 0);
  return start + double(tiles / blocks) * round(blocks) + (rest > 0 ? round(rest) : 0);
}

LinearPlan plan_linear(const LinearSize& size, const ClusterRoom& room) {
  HEADRACE_CHECK(size.rows >= 1 && size.features >= 1 && size.k >= 1, size.rows);
  const LinearPlan* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const LinearPlan& plan : kPlans) {
    const double cycles = linear_cycles(plan, size, room);
    if (cycles < least) {
      least = cycles;
      best = &plan;
    }
  }
  HEADRACE_CHECK(best != nullptr, room.multiprocessors);
  return *best;
}

}  // namespace headrace::cuda
