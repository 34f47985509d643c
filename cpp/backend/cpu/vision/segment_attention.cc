#include <algorithm>

#include "backend/checks/op_checks_vision.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "base/checked_math.h"

namespace headrace {
namespace {

static_assert(kSegmentHeadDim == kMaxSegmentHead);

/// From as many tasks on that share keys and values, these are packed before: with fewer it costs
/// more to go to memory once more than to have each task pack them itself.
constexpr int64_t kManyPieces = 8;
/// Tiles that a thread packs at once, at least.
constexpr int64_t kTilesToPack = 4;
// As many tasks for each thread are enough to share them out evenly.
constexpr int64_t kManyTasks = 4;
/// Bytes of keys and values that are packed before they are used, for each thread and in all.
constexpr int64_t kPackedThreadBytes = int64_t{8} << 20;
constexpr int64_t kMaxPackedBytes = int64_t{64} << 20;
/// Rows of a task are a multiple of it: whole blocks of queries on every ISA.
constexpr int64_t kTaskRowUnit = 32;

/// A segment with queries. Its tasks are pieces of them: all of a head, then those of the next one.
/// So are its tiles of keys.
struct Segment {
  int64_t first_key, end_key;
  int64_t first_query;  ///< row of args.q
  int64_t queries;
  int64_t task_rows;  ///< queries of a task, but for the last one of a head
  int64_t pieces;     ///< tasks of a head
  int64_t first_task;
  int64_t tiles;  ///< of a head
  int64_t first_tile;
};

/// Calls visit(segment) for every segment that has queries; task rows are yet to be chosen.
template <class Visit>
void for_each_segment(const SegmentAttention& args, const Visit& visit) {
  const int64_t first = args.first, end = first + args.q.rows();
  int64_t start = 0;
  for (const int32_t next : args.segment_ends) {
    const int64_t from = std::max(start, first), to = std::min<int64_t>(next, end);
    if (from < to) visit(Segment{start, next, from - first, to - from});
    start = next;
  }
}

/// Most queries of a task.
int64_t choose_task_rows(const SegmentAttention& args, int64_t threads) {
  int64_t rows = kSegmentTaskRows;
  const auto tasks = [&] {
    int64_t count = 0;
    for_each_segment(args, [&](const Segment& segment) {
      count += ceil_div(segment.queries, rows) * args.heads;
    });
    return count;
  };
  while (threads > 1 && rows > kTaskRowUnit && tasks() < kManyTasks * threads) rows /= 2;
  return rows;
}

/// The segment that number `number` of all tasks, or of all tiles, belongs to.
const Segment& segment_of(std::span<const Segment> segments, int64_t Segment::* first,
                          int64_t number) {
  return *(std::upper_bound(segments.begin(), segments.end(), number,
                            [&](int64_t n, const Segment& s) { return n < s.*first; }) -
           1);
}

/// Neighbouring heads, perhaps of several segments, that are computed together.
struct Group {
  int64_t first_task, end_task;
  int64_t first_tile, end_tile;
};

class SegmentRun {
 public:
  SegmentRun(const SegmentAttention& args, int64_t tile_floats, int64_t threads)
      : args_(args),
        tile_floats_(tile_floats),
        threads_(threads),
        task_rows_(choose_task_rows(args, threads)) {
    for_each_segment(args, [&](const Segment& found) {
      const Segment segment = cut(found);
      ++count_;
      packs_ = packs_ || segment.pieces >= kManyPieces;
      most_tiles_ = std::max(most_tiles_, segment.tiles);
      tiles_ += segment.tiles * args_.heads;
    });
  }

  size_t segment_bytes() const { return round_up(count_ * sizeof(Segment), size_t{64}); }
  /// Of a group, at most; 0 where tasks pack keys and values themselves.
  size_t packed_bytes() const {
    return packs_ ? static_cast<size_t>(group_tiles() * tile_floats_) * sizeof(float) : 0;
  }
  bool packs() const { return packs_; }

  void place(Segment* segments, float* packed) {
    segments_ = {segments, count_};
    packed_ = packed;
    int64_t tasks = 0, tiles = 0;
    for_each_segment(args_, [&](const Segment& found) {
      Segment& segment = *segments++ = cut(found);
      segment.first_task = tasks;
      segment.first_tile = tiles;
      tasks += segment.pieces * args_.heads;
      tiles += segment.tiles * args_.heads;
    });
  }

  /// Calls visit(group) for one group after the other; without packing there is one.
  template <class Visit>
  void for_each_group(const Visit& visit) const {
    Group group{};
    for (const Segment& segment : segments_) {
      for (int32_t head = 0; head < args_.heads; ++head) {
        if (packs_ && group.end_tile + segment.tiles - group.first_tile > group_tiles()) {
          visit(group);
          group = {group.end_task, group.end_task, group.end_tile, group.end_tile};
        }
        group.end_task += segment.pieces;
        group.end_tile += segment.tiles;
      }
    }
    visit(group);
  }

  SegmentTile tile(const Group& group, int64_t number) const {
    const Segment& segment = segment_of(segments_, &Segment::first_tile, number);
    const int64_t local = number - segment.first_tile;
    const int64_t column = local / segment.tiles * args_.head_dim;
    const int64_t key = segment.first_key + local % segment.tiles * kSegmentTileKeys;
    const int64_t keys = std::min<int64_t>(kSegmentTileKeys, segment.end_key - key);
    return {args_.k.row<float>(key) + column,
            args_.k.row_stride,
            args_.v.row<float>(key) + column,
            args_.v.row_stride,
            static_cast<int32_t>(keys),
            args_.head_dim,
            packed_ + (number - group.first_tile) * tile_floats_};
  }

  SegmentTask task(const Group& group, int64_t number) const {
    const Segment& segment = segment_of(segments_, &Segment::first_task, number);
    const int64_t head = (number - segment.first_task) / segment.pieces;
    const int64_t skipped = (number - segment.first_task) % segment.pieces * segment.task_rows;
    const int64_t row = segment.first_query + skipped, column = head * args_.head_dim;
    const int64_t tiles_before = segment.first_tile + head * segment.tiles - group.first_tile;
    SegmentTask task{};
    task.queries = args_.q.row<float>(row) + column;
    task.query_stride = args_.q.row_stride;
    task.num_queries = static_cast<int32_t>(std::min(segment.task_rows, segment.queries - skipped));
    task.keys = args_.k.row<float>(segment.first_key) + column;
    task.key_stride = args_.k.row_stride;
    task.values = args_.v.row<float>(segment.first_key) + column;
    task.value_stride = args_.v.row_stride;
    task.num_keys = static_cast<int32_t>(segment.end_key - segment.first_key);
    task.head_dim = args_.head_dim;
    task.scale = args_.scale;
    task.tiles = packs_ ? packed_ + tiles_before * tile_floats_ : nullptr;
    task.out = args_.out.row<float>(row) + column;
    task.out_stride = args_.out.row_stride;
    return task;
  }

 private:
  /// Equal pieces, as nearly as whole blocks of queries allow.
  Segment cut(Segment segment) const {
    segment.task_rows =
        round_up(ceil_div(segment.queries, ceil_div(segment.queries, task_rows_)), kTaskRowUnit);
    segment.pieces = ceil_div(segment.queries, segment.task_rows);
    segment.tiles = ceil_div<int64_t>(segment.end_key - segment.first_key, kSegmentTileKeys);
    return segment;
  }
  /// Most tiles of a group.
  int64_t group_tiles() const {
    const int64_t bytes = std::min(threads_ * kPackedThreadBytes, kMaxPackedBytes);
    const int64_t fitting = bytes / (tile_floats_ * static_cast<int64_t>(sizeof(float)));
    return std::min(tiles_, std::max(fitting, most_tiles_));
  }

  const SegmentAttention& args_;
  int64_t tile_floats_, threads_, task_rows_;
  size_t count_ = 0;
  bool packs_ = false;
  int64_t tiles_ = 0, most_tiles_ = 0;  ///< in all, and of one head of a segment
  std::span<const Segment> segments_;
  float* packed_ = nullptr;
};

}  // namespace

void CpuBackend::segment_attention(const SegmentAttention& args) {
  check_segment_attention(args);
  const SegmentProducts& kernels =
      args.products == DType::kBF16 ? isa_->segments->bf16 : isa_->segments->f32;
  SegmentRun run(args, kernels.tile_floats(args.head_dim), pool_.num_threads());
  const size_t worker_bytes =
      round_up(static_cast<size_t>(segment_scratch_floats()) * sizeof(float), size_t{64});
  const size_t segment_offset = worker_bytes * static_cast<size_t>(pool_.num_threads());
  const size_t packed_offset = segment_offset + run.segment_bytes();
  std::byte* const memory = scratch(packed_offset + run.packed_bytes());
  if (reserving_) return;

  run.place(reinterpret_cast<Segment*>(memory + segment_offset),
            reinterpret_cast<float*>(memory + packed_offset));
  run.for_each_group([&](const Group& group) {
    if (run.packs()) {
      pool_.parallel_for(group.end_tile - group.first_tile, kTilesToPack,
                         [&](int64_t begin, int64_t end, int32_t) {
                           for (int64_t i = begin; i < end; ++i)
                             kernels.pack(run.tile(group, group.first_tile + i));
                         });
    }
    pool_.parallel_for(
        group.end_task - group.first_task, 1, [&](int64_t i, int64_t, int32_t thread) {
          SegmentTask task = run.task(group, group.first_task + i);
          task.scratch =
              reinterpret_cast<float*>(memory + static_cast<size_t>(thread) * worker_bytes);
          kernels.attend(task);
        });
  });
}

}  // namespace headrace
