#pragma once

// A product's tiles in clusters of blocks: which tile a block has, and whom it copies for.

#include "cuda/device/cluster.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/linear/linear_plan.h"
#include "cuda/kernels/linear/tensor_map.h"

namespace headrace::cuda {

/// Numbers of tiles, multiples of the cluster's.
struct ClusterTiles {
  ClusterShape cluster;
  int32_t tokens = 1, features = 1;
};

inline ClusterTiles cluster_tiles(const LinearPlan& plan, int64_t rows, int64_t features) {
  const auto whole = [](int64_t size, int64_t tile, int64_t cluster) {
    return divide_up(size, tile * cluster) * cluster;
  };
  const int64_t token_tiles = whole(rows, plan.tokens, plan.cluster.tokens);
  const int64_t feature_tiles = whole(features, plan.features, plan.cluster.features);
  HEADRACE_CHECK(token_tiles * feature_tiles <= 0x7fffffff, token_tiles, " x ", feature_tiles);
  return {plan.cluster, static_cast<int32_t>(token_tiles), static_cast<int32_t>(feature_tiles)};
}

struct TilePlace {
  int32_t token_tile = 0, feature_tile = 0;
};

#if defined(HEADRACE_HOPPER)

/// Of the cluster's block `rank`. Clusters take neighbouring token tiles of the same features:
/// tiles that run together share weights and rows in the L2 cache.
__device__ inline TilePlace tile_place(const ClusterTiles& tiles, int32_t cluster, int32_t rank) {
  constexpr int32_t kShared = 16;  // token tiles that go through all features together
  const ClusterShape& shape = tiles.cluster;
  const int32_t together = kShared / shape.tokens;
  const int32_t span = together * (tiles.features / shape.features);
  const int32_t first = cluster / span * together;
  const int32_t width = least(together, tiles.tokens / shape.tokens - first);
  const int32_t token = first + cluster % span % width, feature = cluster % span / width;
  return {token * shape.tokens + rank % shape.tokens,
          feature * shape.features + rank / shape.tokens};
}

/// Boxes that all of `blocks` need. Each of them copies a part of a box for all: this one the rows
/// from `first` on, as many as the map's boxes have.
struct SharedBoxes {
  const void* map;
  int32_t first;
  uint16_t blocks;
  bool alone;  // nobody else needs them

  __device__ void copy(char* to, int32_t column, int32_t row, uint64_t* full) const {
    if (alone) return copy_box(to, map, column, row, full);
    copy_box_to_cluster(to + first * (kBoxColumns * 2), map, column, row + first, full, blocks);
  }
};

/// Blocks of the cluster, as bits, that copy for the block: itself, and those that have its tokens
/// or its features.
struct ClusterPeers {
  int32_t rank = 0;
  uint16_t same_features = 1, same_tokens = 1;

  __device__ uint32_t all() const { return same_features | same_tokens; }
  __device__ SharedBoxes weight(const ClusterShape& shape, const void* map, int rows) const {
    return {map, rank % shape.tokens * (rows / shape.tokens), same_features, shape.tokens == 1};
  }
  __device__ SharedBoxes tokens(const ClusterShape& shape, const void* map, int rows) const {
    return {map, rank / shape.tokens * (rows / shape.features), same_tokens, shape.features == 1};
  }
};

__device__ inline ClusterPeers cluster_peers(const ClusterShape& shape) {
  ClusterPeers out{static_cast<int32_t>(cluster_rank())};
  const int32_t token = out.rank % shape.tokens, feature = out.rank / shape.tokens;
  out.same_features = static_cast<uint16_t>(((1u << shape.tokens) - 1) << (feature * shape.tokens));
  out.same_tokens = 0;
  for (int32_t i = 0; i < shape.features; ++i) {
    out.same_tokens = static_cast<uint16_t>(out.same_tokens | 1u << (token + i * shape.tokens));
  }
  return out;
}

/// Warps' arrivals that free a stage: from all who read what a block copied.
__device__ inline uint32_t stage_readers(const ClusterShape& shape, uint32_t warps) {
  return warps * static_cast<uint32_t>(shape.tokens + shape.features - 1);
}

/// In every block that copies into it. By a warp whose lanes have read all of it.
template <int kStages>
__device__ void free_shared_stage(StagePipe<kStages>* pipe, uint32_t stage, uint32_t blocks) {
  if ((blocks >> lane_id() & 1) != 0) {
    barrier_arrive_at(&pipe->empty[stage], static_cast<uint32_t>(lane_id()));
  }
}

#endif

}  // namespace headrace::cuda
