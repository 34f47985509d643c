#include <algorithm>

#include "backend/contract/op_checks_vision.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "base/checked_math.h"

namespace headrace {
namespace {

static_assert(kSegmentHeadDim == kMaxSegmentHead);

// As many tasks for each thread are enough to share them out evenly.
constexpr int64_t kManyTasks = 4;
/// Rows of a task are a multiple of it: whole blocks of queries on every ISA.
constexpr int64_t kTaskRowUnit = 32;

/// A segment with queries. Its tasks are pieces of them: all of a head, then those of the next one.
struct Segment {
  int64_t first_key, end_key;
  int64_t first_query;  ///< row of args.q
  int64_t queries;
  int64_t task_rows;  ///< queries of a task, but for the last one of a head
  int64_t pieces;     ///< tasks of a head
  int64_t first_task;
};

/// Calls visit(segment) for every segment that has queries; task rows are yet to be chosen.
template <class Visit>
void for_each_segment(const SegmentAttention& args, const Visit& visit) {
  const int64_t first = args.first, end = first + args.q.rows();
  int64_t start = 0;
  for (const int32_t next : args.segment_ends) {
    const int64_t from = std::max(start, first), to = std::min<int64_t>(next, end);
    if (from < to) visit(Segment{start, next, from - first, to - from, 0, 0, 0});
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

/// Of all segments with their tasks, the one whose task it is.
const Segment& segment_of(std::span<const Segment> segments, int64_t task) {
  return *(std::upper_bound(segments.begin(), segments.end(), task,
                            [](int64_t t, const Segment& s) { return t < s.first_task; }) -
           1);
}

SegmentTask make_task(const SegmentAttention& args, const Segment& segment, int64_t number) {
  const int64_t column = number / segment.pieces * args.head_dim;
  const int64_t skipped = number % segment.pieces * segment.task_rows;
  const int64_t row = segment.first_query + skipped;
  SegmentTask task{};
  task.queries = args.q.row<float>(row) + column;
  task.query_stride = args.q.row_stride;
  task.num_queries = static_cast<int32_t>(std::min(segment.task_rows, segment.queries - skipped));
  task.keys = args.k.row<float>(segment.first_key) + column;
  task.key_stride = args.k.row_stride;
  task.values = args.v.row<float>(segment.first_key) + column;
  task.value_stride = args.v.row_stride;
  task.num_keys = static_cast<int32_t>(segment.end_key - segment.first_key);
  task.head_dim = args.head_dim;
  task.scale = args.scale;
  task.out = args.out.row<float>(row) + column;
  task.out_stride = args.out.row_stride;
  return task;
}

}  // namespace

void CpuBackend::segment_attention(const SegmentAttention& args) {
  check_segment_attention(args);
  constexpr size_t kAlign = 64;
  const size_t worker_bytes =
      round_up(static_cast<size_t>(segment_scratch_floats()) * sizeof(float), kAlign);
  const size_t segment_offset = worker_bytes * static_cast<size_t>(pool_.num_threads());
  size_t count = 0;
  for_each_segment(args, [&](const Segment&) { ++count; });
  std::byte* const memory = scratch(segment_offset + count * sizeof(Segment));
  if (reserving_) return;

  auto* const segments = reinterpret_cast<Segment*>(memory + segment_offset);
  const int64_t most_rows = choose_task_rows(args, pool_.num_threads());
  int64_t tasks = 0;
  count = 0;
  for_each_segment(args, [&](Segment segment) {
    // Equal pieces, as nearly as whole blocks of queries allow.
    segment.task_rows =
        round_up(ceil_div(segment.queries, ceil_div(segment.queries, most_rows)), kTaskRowUnit);
    segment.pieces = ceil_div(segment.queries, segment.task_rows);
    segment.first_task = tasks;
    tasks += segment.pieces * args.heads;
    segments[count++] = segment;
  });
  const auto attend =
      args.products == DType::kBF16 ? isa_->segments->attend_bf16 : isa_->segments->attend_f32;
  pool_.parallel_for(tasks, 1, [&](int64_t i, int64_t, int32_t thread) {
    const Segment& segment = segment_of({segments, count}, i);
    SegmentTask task = make_task(args, segment, i - segment.first_task);
    task.scratch = reinterpret_cast<float*>(memory + static_cast<size_t>(thread) * worker_bytes);
    attend(task);
  });
}

}  // namespace headrace
