#include "cuda/kernels/linear/linear_plan.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"

namespace headrace::cuda {
namespace {

constexpr int64_t kUnit = 64;  // of k
constexpr double kRowBytes = 2 * kUnit;

// What an H100 does in a cycle at 1.75 GHz.
constexpr double kSums = 2048;         // of a multiprocessor
constexpr double kSharedBytes = 128;   // of its shared memory, read or written
constexpr double kArrivingBytes = 64;  // of a multiprocessor's
constexpr double kL2Bytes = 4096;      // of all
constexpr double kMemoryBytes = 1770;  // of the GPU's memory
constexpr double kStart = 5000;  // until the first products, and until the last results lie there
// Between a block's tiles. linear_stream starts anew; linear_wgmma writes the results of a feature.
constexpr double kStreamEnd = 2000, kFeatureEnd = 12;
constexpr double kQuadMargin =
    1.04;  // fewer multiprocessors, and blocks that wait for three others

constexpr std::array<ClusterShape, 5> kClusters = {{{1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 4}}};
constexpr LinearPlan kTiles[] = {
    {true, 64, 64, {}},    {true, 128, 64, {}},   {false, 128, 96, {}}, {false, 128, 128, {}},
    {false, 128, 192, {}}, {false, 128, 224, {}}, {false, 128, 256, {}}};
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
  const double arriving = (tokens + features) * kRowBytes;
  // Four products of 16 k, of one warpgroup with 64 features or of two with 64 tokens each.
  const double read = plan.streams ? (64 + tokens) * kRowBytes : 2 * (64 + features) * kRowBytes;
  return std::max({tokens * features * kUnit / kSums, (arriving + read) / kSharedBytes,
                   arriving / kArrivingBytes});
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
    return double(size.k) / kUnit * unit +
           (plan.streams ? kStreamEnd : kFeatureEnd * plan.features);
  };
  const int64_t rest = tiles % blocks;
  return kStart + double(tiles / blocks) * round(blocks) + (rest > 0 ? round(rest) : 0);
}

LinearPlan plan_linear(const LinearSize& size, const ClusterRoom& room) {
  HEADRACE_CHECK(size.rows >= 1 && size.features >= 1 && size.k >= 1, size.rows);
  const LinearPlan* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const LinearPlan& plan : kPlans) {
    const double cycles =
        linear_cycles(plan, size, room) * (plan.cluster.size() == 4 ? kQuadMargin : 1);
    if (cycles < least) {
      least = cycles;
      best = &plan;
    }
  }
  HEADRACE_CHECK(best != nullptr, room.multiprocessors);
  return *best;
}

}  // namespace headrace::cuda
