#pragma once

// Attention on sm_90a: how a block shares its work out, and the two warps that copy tiles of keys
// and of values into shared memory for the warpgroups that multiply (attention_sm90.cu).

#include "cuda/device/hopper.cuh"
#include "cuda/kernels/attention/attention_kernels.cuh"
#include "cuda/kernels/linear/tensor_map.h"

namespace headrace::cuda::wgmma {

inline constexpr int kGroupThreads = 128;
inline constexpr int kGroups = 2;  // warpgroups that multiply; one more copies
inline constexpr int kThreads = (kGroups + 1) * kGroupThreads;
inline constexpr int kConsumers = kGroups * kGroupThreads;
inline constexpr int kGroupRows = 64;
inline constexpr int kRowBytes = 2 * kBoxColumns;
inline constexpr int kBarrierBytes = 1024;  // keeps what follows aligned
static_assert(kGroups * kGroupRows == kWgmmaRows && kGroupRows == kLongRows);

// Registers of a thread that copies, and of one that multiplies; together what the launch has
// taken.
inline constexpr int kCopyRegisters = 40, kMultiplyRegisters = 232;
static_assert(kGroupThreads * kCopyRegisters + kConsumers * kMultiplyRegisters <=
              (64 << 10) / kThreads / 8 * 8 * kThreads);

// Named barriers: a group's turn to multiply, and a group's own. 0 is the block's.
inline constexpr int kTurn = 1, kWithin = kTurn + kGroups;

template <class T_, int kHeadDim_>
struct Config {
  using T = T_;
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kBoxes = kHeadDim / kBoxColumns;
  // Each group takes 64 rows; or, where a row's sums are too many for registers, both take the same
  // rows, and half of the columns each.
  static constexpr bool kSharesRows = kHeadDim > 128;
  static constexpr int kColumns = kSharesRows ? kHeadDim / kGroups : kHeadDim;  // of a group
  // Two kinds of loops would need more registers than there are.
  static constexpr bool kAlwaysMasks = kHeadDim > 128;
  static constexpr int kStages = kHeadDim > 128 ? 2 : 4;               // of keys, and of values
  static constexpr int kQueryBytes = kBoxes * kGroupRows * kRowBytes;  // of 64 rows
  static constexpr int kAllQueries = (kSharesRows ? 1 : kGroups) * kQueryBytes;
  static constexpr int kTileBytes = kBoxes * kTileKeys * kRowBytes;  // of keys or values
  static constexpr int kHeldVectors = kColumns / 8 * kGroupThreads;  // of a group
  static constexpr int kSharedBytes =
      kBarrierBytes + kAllQueries + 2 * kStages * kTileBytes + kGroups * kHeldVectors * 16;
  static_assert(kSharedBytes <= 227 << 10);
};

template <class C>
using Task = AttentionTask<typename C::T, typename C::T>;

#if defined(HEADRACE_HOPPER)

/// Stages that hold the block's tiles in turn: full once a tile has landed, empty again once both
/// groups have multiplied by it.
template <int kStages, int kBytes>
struct Ring {
  uint64_t* full;
  uint64_t* empty;
  char* memory;

  /// A place for tile n of the block.
  __device__ char* wait_empty(uint32_t n) const {
    barrier_wait(&empty[n % kStages], n / kStages % 2 ^ 1);
    return memory + n % kStages * kBytes;
  }
  /// Tile n.
  __device__ const char* wait_full(uint32_t n) const {
    barrier_wait(&full[n % kStages], n / kStages % 2);
    return memory + n % kStages * kBytes;
  }
  __device__ uint64_t* full_barrier(uint32_t n) const { return &full[n % kStages]; }
  /// By each warp of the groups.
  __device__ void free(uint32_t n) const {
    if (lane_id() == 0) barrier_arrive(&empty[n % kStages]);
  }
  /// By one thread.
  __device__ void init() const {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&full[i], 1);
      barrier_init(&empty[i], kConsumers / kWarp);
    }
  }
};

template <class C>
struct Shared {
  struct Head {
    uint64_t keys_full[C::kStages], keys_empty[C::kStages];
    uint64_t values_full[C::kStages], values_empty[C::kStages];
    uint64_t values_landed;  // of a tile that the copying warp has to finish
    uint32_t never_written;  // see finish_first()
    float scale;             // the task's: see read_behind()
    float no_score;          // kNoScore: the same
  };
  static_assert(sizeof(Head) <= kBarrierBytes);
  Head* head;
  char* queries;                         // [group][box of columns][row], as products take them
  Ring<C::kStages, C::kTileBytes> keys;  // tiles: [box of columns][key]
  Ring<C::kStages, C::kTileBytes> values;
  float4* held;  // [group][four columns' sums][lane]

  __device__ explicit Shared(char* memory)
      : head(reinterpret_cast<Head*>(memory)),
        queries(memory + kBarrierBytes),
        keys{head->keys_full, head->keys_empty, queries + C::kAllQueries},
        values{head->values_full, head->values_empty, keys.memory + C::kStages * C::kTileBytes},
        held(reinterpret_cast<float4*>(values.memory + C::kStages * C::kTileBytes)) {}

  /// The calling lane's first four sums of the splits before; the next four lie kGroupThreads
  /// behind.
  __device__ float4* lane_held(int group) const {
    return held + group * C::kHeldVectors + static_cast<int>(threadIdx.x) % kGroupThreads;
  }
};

/// Tiles [begin, end) of keys that the piece's rows see.
struct TileRange {
  int32_t begin, end;
};

__device__ inline TileRange tiles_of(KeyRange seen) {
  return {seen.first / kTileKeys, divide_up(seen.end, kTileKeys)};
}

/// What a lane of a copying warp copies of a tile, which lies in the cache in parts: a block's
/// keys, or the whole tile where blocks are larger. It has one part's columns of one box.
struct TileBox {
  bool seen;       ///< by the piece: some key of it
  int32_t number;  ///< the block's in the cache
  int32_t place;   ///< of the part's first key in its block
};

/// A lane's boxes of a piece's tiles, tile after tile.
template <class C>
class TileBoxes {
 public:
  __device__ TileBoxes(const Task<C>& task, const AttentionPiece& piece, KeyRange seen,
                       int32_t tile)
      : task_(task),
        table_(task.block_tables + piece.item.sequence * task.table_stride),
        seen_(seen),
        kv_head_(piece.kv_head),
        parts_(kTileKeys / rows()),
        position_(tile * kTileKeys + part() * rows()),
        block_(position_ / size()),
        place_(position_ - block_ * size()) {
    static_assert(kTileKeys / 8 * C::kBoxes <= kWarp);
  }

  /// Of the next tile. Nothing waits for the block's number until it is used.
  __device__ TileBox next() {
    TileBox box{false, 0, place_};
    box.seen = part() < parts_ && position_ < seen_.end && position_ + rows() > seen_.first;
    if (box.seen) box.number = table_[block_];
    position_ += kTileKeys;
    if (size() <= kTileKeys) {
      block_ += parts_;
    } else if ((place_ += kTileKeys) == size()) {
      place_ = 0;
      ++block_;
    }
    return box;
  }

  /// Starts copies of what the piece sees of a tile of keys or values. By the whole warp.
  __device__ void copy(const TileBox& box, const TensorMap* map, char* to, uint64_t* full) const {
    const int32_t bytes = rows() * kRowBytes, column = lane_id() % C::kBoxes;
    const int32_t row = box.number * task_.layout.block_stride + kv_head_ * size() + box.place;
    const int32_t count = __popc(__ballot_sync(kAllLanes, box.seen));
    if (lane_id() == 0) barrier_expect_bytes(full, static_cast<uint32_t>(count * bytes));
    __syncwarp();
    if (!box.seen) return;
    copy_box(to + column * kTileKeys * kRowBytes + part() * bytes, map, column * kBoxColumns, row,
             full);
  }

 private:
  __device__ static int32_t part() { return lane_id() / C::kBoxes; }
  __device__ int32_t size() const { return task_.layout.block_size; }
  __device__ int32_t rows() const { return least(size(), kTileKeys); }  // of a part

  const Task<C>& task_;
  const int32_t* table_;
  KeyRange seen_;
  int32_t kv_head_;
  int32_t parts_;          // of a tile
  int32_t position_;       // of the first key of the lane's part
  int32_t block_, place_;  // where it is: which of the sequence's blocks, and where in it
};

/// Zeros in the tile's rows that aren't in [first, end): nothing times 0 is to be NaN.
template <class C>
__device__ void clear_rows(char* tile, int32_t first, int32_t end) {
  HEADRACE_NO_UNROLL
  for (int i = lane_id(); i < C::kTileBytes / 16; i += kWarp) {
    const int row = i / (kRowBytes / 16) % kTileKeys;
    if (row < first || row >= end) *reinterpret_cast<uint4*>(tile + i * 16) = {0, 0, 0, 0};
  }
  shared_writes_fence();
  __syncwarp();
}

/// One warp's work: fills stage after stage of keys, or of values, as the groups free them.
template <class C>
__device__ void copy_tiles(const Task<C>& task, const TensorMap* map, bool of_values,
                           const Shared<C>& shared) {
  const Ring<C::kStages, C::kTileBytes> ring = of_values ? shared.values : shared.keys;
  uint64_t* const landed = &shared.head->values_landed;
  uint32_t n = 0, finished = 0;
  for_each_piece(task, [&](const AttentionPiece& piece) {
    const KeyRange seen = keys_of(piece.item, task.shape);
    const TileRange tiles = tiles_of(seen);
    TileBoxes<C> boxes(task, piece, seen, tiles.begin);
    TileBox next = boxes.next();
    HEADRACE_NO_UNROLL
    for (int32_t tile = tiles.begin; tile < tiles.end; ++tile, ++n) {
      const TileBox box = next;
      next = boxes.next();  // on its way while this tile waits for room
      char* const to = ring.wait_empty(n);
      const int32_t first = seen.first - tile * kTileKeys, end = seen.end - tile * kTileKeys;
      const bool done = !of_values || (first <= 0 && end >= kTileKeys);
      boxes.copy(box, map, to, done ? ring.full_barrier(n) : landed);
      if (done) continue;
      barrier_wait(landed, finished++ % 2);
      clear_rows<C>(to, first, end);
      if (lane_id() == 0) barrier_arrive(ring.full_barrier(n));
    }
  });
}

#endif

}  // namespace headrace::cuda::wgmma
