#pragma once

// How linear() cuts a 16-bit product into tiles and clusters of blocks on sm_90, from 65 rows on:
// the plan that a model of the multiprocessor finds fastest. Every plan gives the same bits.

#include <cstdint>
#include <span>

namespace headrace::cuda {

/// A cluster's blocks have tiles side by side. Those with the same features copy a part of the
/// weight's tile each, for all of them; those with the same tokens a part of the rows.
struct ClusterShape {
  int32_t tokens = 1, features = 1;  ///< tiles
  constexpr int32_t size() const { return tokens * features; }
  bool operator==(const ClusterShape&) const = default;
};

struct LinearPlan {
  bool streams = false;                ///< by linear_stream_tiles(), else by linear_wgmma()
  int32_t tokens = 128, features = 0;  ///< of a tile
  ClusterShape cluster;
  bool operator==(const LinearPlan&) const = default;
};

struct LinearSize {
  int64_t rows = 0, features = 0, k = 0;  ///< features and k as they are stored
};

/// Blocks that run at once, one a multiprocessor.
struct ClusterRoom {
  int32_t multiprocessors = 132;
  int32_t quads = 32;  ///< clusters of four: fewer than fit by number, since one stays in a GPC
  constexpr int32_t blocks(int32_t cluster_size) const {
    return cluster_size == 4 ? 4 * quads : multiprocessors / cluster_size * cluster_size;
  }
};

/// All that there are: clusters of 1, 2 or 4 blocks.
std::span<const LinearPlan> linear_plans();

/// Predicted cycles; infinite where the plan's clusters have no room. REQUIRES: sizes >= 1.
double linear_cycles(const LinearPlan& plan, const LinearSize& size, const ClusterRoom& room);

/// The one with the fewest cycles, where clusters of four must win by some percent.
LinearPlan plan_linear(const LinearSize& size, const ClusterRoom& room);

}  // namespace headrace::cuda
