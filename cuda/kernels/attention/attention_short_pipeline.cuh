#pragma once

// What a block of short pieces (attention_short.cuh) works with: the sizes of its stages, what its
// warps tell one another, copies on their way, queries.

#include "cuda/kernels/attention/attention_codes.cuh"
#include "cuda/kernels/attention/attention_merge.cuh"

namespace headrace::cuda::short_pieces {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = kWarps * kWarp;
inline constexpr int kTiles = kSplitKeys / kTileKeys;
inline constexpr int kSplitSteps = kSplitKeys / 16;  // products over a split's keys
inline constexpr int kTileSteps = kTileKeys / 16;
static_assert(kTiles == kWarps && kShortRows == 16);

/// What a block's warps tell one another.
struct Exchange {
  uint4 weights[kSplitSteps][kWarp];  // as products take them
  float totals[kTiles][kShortRows][4];
  float max[kTiles][kShortRows];  // of scores, unscaled
  uint32_t is_last;
  uint32_t unused[3];
};

/// The same of codes.
struct CodeExchange : Exchange {
  TileScales scales[2][kTiles];  // of the split under way and of the next one
  float zeros[kTiles][kShortRows][4];
};

/// Queries that registers have no room for, as products take them.
template <int kSteps>
using SharedQueries = uint4[kSteps][kWarp];

template <class T_, class Cache_, int kHeadDim_>
struct Config {
  using T = T_;
  using Cache = Cache_;
  static constexpr bool kCodes = CodeTraits<Cache>::kCodes;
  using Product = std::conditional_t<kCodes, F16, T>;  // what tensor cores take
  using Block = std::conditional_t<kCodes, CodeExchange, Exchange>;
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kVectorColumns = code_columns<Cache>();  // of 16 bytes
  static constexpr int kChunks = divide_up(kHeadDim, kVectorColumns);
  static constexpr int kSteps = kChunks * kVectorColumns / 16;
  static constexpr int kOwnChunks = divide_up(kChunks, kWarps);
  static constexpr int kOwnSums = kOwnChunks * kVectorColumns / 8;
  static constexpr bool kAllOwn = kOwnChunks * kWarps == kChunks;
  static constexpr bool kSharesQueries = kHeadDim > 128;
  static constexpr int kQueryBytes = kSharesQueries ? sizeof(SharedQueries<kSteps>) : 0;
  // A stage takes 4 KiB or so: rows of a tile's keys, or of a split's values in the warp's columns.
  static constexpr int kKeyRows = kCodes ? (kChunks > 8 ? 16 : 32) : kHeadDim > 128 ? 8 : 16;
  static constexpr int kValueRows = kCodes ? kTileKeys : 4 * kKeyRows;
  static constexpr int kKeyPieces = kTileKeys / kKeyRows;
  static constexpr int kValuePieces = kSplitKeys / kValueRows;
  static constexpr int kPieces = kKeyPieces + kValuePieces;
  using KeyPlaces = RowPlaces<kChunks>;
  using ValuePlaces = RowPlaces<kOwnChunks>;
  static constexpr int kStageBytes =
      greatest(kKeyRows * KeyPlaces::kStride, kValueRows* ValuePlaces::kStride) * 16;
  // On a card of sm_86 or sm_89 a block has 99 KiB.
  static constexpr int kStages =
      least(least(8, kPieces), (kCodes ? 72 << 10 : 80 << 10) / (kWarps * kStageBytes));
  static constexpr int kSharedBytes =
      static_cast<int>(sizeof(Block)) + kQueryBytes + kWarps * kStages * kStageBytes;
  // Of sm_90; more than three leave a thread too few registers.
  static constexpr int kBlocks = least(3, (227 << 10) / (kSharedBytes + 1024));
  static_assert(kStages >= 2 && kStages <= kPieces && kSharedBytes <= 99 << 10);
};

template <class C>
using Task = AttentionTask<typename C::T, typename C::Cache>;

/// Split number `n` of the list's: those of a sequence's head follow one another.
template <class C>
__device__ AttentionPiece split_at(const Task<C>& task, uint32_t n) {
  const auto items = static_cast<uint32_t>(*task.count);
  const auto unit = static_cast<int32_t>(n / items);
  return {task.items[n % items], unit / task.shape.parts(), unit % task.shape.parts()};
}

/// The same ahead of wait_for_previous(): what has been read before isn't asked.
template <class C>
__device__ AttentionPiece split_ahead_at(const Task<C>& task, uint32_t n) {
  const auto items = static_cast<uint32_t>(load_other(task.count));
  const auto unit = static_cast<int32_t>(n / items);
  static_assert(sizeof(AttentionItem) % sizeof(int32_t) == 0);
  constexpr int kWords = sizeof(AttentionItem) / sizeof(int32_t);
  const auto* const words = reinterpret_cast<const int32_t*>(task.items + n % items);
  int32_t item[kWords];
  HEADRACE_UNROLL
  for (int i = 0; i < kWords; ++i) item[i] = load_other(words + i);
  AttentionPiece piece{{}, unit / task.shape.parts(), unit % task.shape.parts()};
  __builtin_memcpy(&piece.item, item, sizeof(item));
  return piece;
}

/// A warp's stages: pieces of splits [next, end), each split's in order, ahead of their use.
///
/// The first ones are asked for ahead of wait_for_previous(), while the kernel before (RoPE and the
/// cache's write) is under way. That is safe for all that no kernel of this step writes: the lists
/// and block tables, which the host copies at the step's start, and keys and values of positions
/// ahead of the step's own rows of the sequence, which earlier steps wrote (a sequence shares
/// blocks with another only once the step that filled them has been committed). Kernels wait for
/// such a copy, and it for all kernels ahead of it, completely, so that all of this was in L2
/// before the first kernel of the step began. It is read past L1, which may have lines from before.
template <class C>
struct Pipeline {
  const Task<C>& task;
  typename C::Block& exchange;
  char* memory;
  uint32_t next, end;
  SplitRows rows, rows_ahead;
  int filled = 0, used = 0;

  __device__ Pipeline(const Task<C>& of, typename C::Block& block, char* stages, uint32_t first,
                      uint32_t behind)
      : task(of), exchange(block), memory(stages), next(first), end(behind), rows{}, rows_ahead{} {
    // Over codes it doesn't pay: an H100 lost 6 % of 64 decodes at 8k.
    if constexpr (C::kCodes) wait_for_previous();
    const int32_t old = resolve();
    HEADRACE_UNROLL
    for (int piece = 0; piece < C::kStages - 1; ++piece) {
      if (last_key(piece) > old) wait_for_previous();
      load(piece);
    }
    wait_for_previous();
  }

  /// Behind the last key of the split that a piece has to do with.
  __device__ static int32_t last_key(int piece) {
    return piece < C::kKeyPieces ? (warp_id() + 1) * kTileKeys
                                 : (piece - C::kKeyPieces + 1) * C::kValueRows;
  }

  /// Finds the rows of the split that will be loaded behind the present one. Returns how many of
  /// its keys, from its first place on, earlier steps wrote.
  __device__ int32_t resolve() {
    rows_ahead = {};
    int32_t old = 0;
    if (next < end) {
      const AttentionPiece piece = split_ahead_at<C>(task, next);
      rows_ahead = split_rows<true>(task, piece, piece.item.first_split);
      old = piece.item.position - piece.item.first_split * kSplitKeys;
    }
    ++next;
    return old;
  }

  __device__ void load(int piece) {
    if (piece == 0) {
      rows = rows_ahead;
      if constexpr (C::kCodes) {
        copy_scales(task, rows, warp_id(), exchange.scales[(next + 1) % 2][warp_id()]);
      }
      resolve();
    }
    char* const to = memory + filled * C::kStageBytes;
    filled = filled + 1 == C::kStages ? 0 : filled + 1;
    if (piece < C::kKeyPieces) {
      copy_rows<C::kKeyRows, C::kChunks, C::kChunks>(
          task.keys, rows, warp_id() * kTileKeys + piece * C::kKeyRows, 0, to);
    } else if (C::kAllOwn || warp_id() * C::kOwnChunks < C::kChunks) {
      copy_rows<C::kValueRows, C::kOwnChunks, C::kChunks>(task.values, rows,
                                                          (piece - C::kKeyPieces) * C::kValueRows,
                                                          warp_id() * C::kOwnChunks, to);
    }
    copy_async_commit();
  }

  /// The next piece, number `piece` of its split; the one before isn't used any more.
  __device__ const char* take(int piece) {
    copy_async_wait<C::kStages - 2>();
    __syncwarp();
    load((piece + C::kStages - 1) % C::kPieces);
    const char* const stage = memory + used * C::kStageBytes;
    used = used + 1 == C::kStages ? 0 : used + 1;
    return stage;
  }
};

/// The rows that a block works on, and their queries.
template <class C>
struct Queries {
  SharedQueries<C::kSteps>& shared;
  uint32_t own[C::kSharesQueries ? 1 : C::kSteps][4];
  LaneRows rows{};
  CodeQueries<typename C::Cache> codes;  // of codes alone
  int32_t row = -1, kv_head = -1, part = -1;

  __device__ explicit Queries(char* memory)
      : shared(*reinterpret_cast<SharedQueries<C::kSteps>*>(memory)) {}

  /// By the whole block, all of which has met since it last used them.
  __device__ void load(const Task<C>& task, const AttentionPiece& piece) {
    if (row == piece.item.row && kv_head == piece.kv_head && part == piece.part) return;
    row = piece.item.row;
    kv_head = piece.kv_head;
    part = piece.part;
    rows = lane_rows(task.shape, piece, 0);
    if constexpr (C::kCodes) codes.template load<C::kHeadDim>(task, piece, rows);
    if constexpr (C::kSharesQueries) {
      for (int step = warp_id(); step < C::kSteps; step += kWarps) {
        uint32_t a[4];
        load_step(task, piece, step, a);
        shared[step][lane_id()] = {a[0], a[1], a[2], a[3]};
      }
      __syncthreads();
    } else {
      HEADRACE_UNROLL
      for (int step = 0; step < C::kSteps; ++step) {
        load_step(task, piece, step, own[step]);
      }
    }
  }
  __device__ void load_step(const Task<C>& task, const AttentionPiece& piece, int step,
                            uint32_t (&a)[4]) const {
    if constexpr (C::kCodes) {
      code_query<C::kHeadDim>(task, piece, rows, codes, step, a);
    } else {
      load_query<C::kHeadDim>(task, piece, rows, step, a);
    }
  }
  __device__ void get(int step, int lane, uint32_t (&a)[4]) const {
    if constexpr (C::kSharesQueries) {
      const uint4 query = shared[step][lane];
      a[0] = query.x;
      a[1] = query.y;
      a[2] = query.z;
      a[3] = query.w;
    } else {
      HEADRACE_UNROLL
      for (int i = 0; i < 4; ++i) a[i] = own[step][i];
    }
  }
};

}  // namespace headrace::cuda::short_pieces
