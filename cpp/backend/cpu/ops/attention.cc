#include <algorithm>

#include "backend/checks/op_checks_attention.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/kv/kv_cache.h"
#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {
namespace {

static_assert(kMaxHeadDim == kLargestHead && kMaxLatent == kLargestLatent);

/// Partial results are worth keeping up to this much memory.
constexpr int64_t kMaxPartialFloats = int64_t{16} << 20;

// As many tasks for each thread are enough to share them out evenly.
constexpr int64_t kManyTasks = 4;

/// Rows of one sequence and query heads of one KV head that one task can hold; or one row and the
/// query heads of several KV heads.
struct Unit {
  const SeqSlice* seq;
  int32_t kv_head;
  int32_t num_kv_heads;
  int32_t first_head;  ///< of the query heads
  int32_t num_heads;
  int32_t first_row;  ///< of the sequence's rows
  int32_t num_rows;
  int32_t seen;          ///< SightRun's of its rows
  int32_t end_position;  ///< of the keys that some row sees
  int32_t first_split;
  int32_t num_splits;
  int64_t first_task;     ///< when splits are tasks of their own
  int64_t first_partial;  ///< in floats
};

class UnitCutter {
 public:
  /// `joins`: sequences with one row have units of several KV heads, which read the blocks of the
  /// cache in order, where that is faster.
  UnitCutter(const StepBatch& step, const AttentionSpec& spec, bool by_head, bool joins)
      : step_(step), spec_(spec), by_head_(by_head) {
    group_ = spec.num_heads / spec.num_kv_heads;
    joined_ = joins && !by_head && group_ <= kMaxJoinedGroup
                  ? std::min({spec.num_kv_heads, kMaxTaskHeads, kMaxTaskRows / group_})
                  : 1;
    // Equal shares of a group that is too large for one task.
    parts_ = ceil_div(group_, kMaxTaskRows);
    heads_ = ceil_div(group_, parts_);
    rows_ = std::max(1, kMaxTaskRows / heads_);
  }

  /// Calls visit(unit) for every unit; those that read the same keys follow each other, and by
  /// head all of a KV head: as many, with as many splits, as of any other.
  template <class Visit>
  void for_each(const Visit& visit) const {
    const int32_t heads = spec_.num_kv_heads;
    if (by_head_) {
      for (int32_t kv_head = 0; kv_head < heads; ++kv_head) {
        for (const SeqSlice& seq : step_.seqs) for_each(seq, kv_head, visit);
      }
      return;
    }
    for (const SeqSlice& seq : step_.seqs) {
      if (seq.num_rows == 1 && joined_ > 1) {
        for (int32_t kv_head = 0; kv_head < heads; kv_head += joined_) {
          visit(joined_unit(seq, kv_head));
        }
        continue;
      }
      for (int32_t kv_head = 0; kv_head < heads; ++kv_head) for_each(seq, kv_head, visit);
    }
  }

  /// Most KV heads of a unit.
  int32_t joined() const { return joined_; }

 private:
  template <class Visit>
  void for_each(const SeqSlice& seq, int32_t kv_head, const Visit& visit) const {
    for (int32_t head = 0; head < group_; head += heads_) {
      for (int32_t row = 0; row < seq.num_rows;) {
        const Unit next = unit(seq, kv_head, head, row);
        visit(next);
        row += next.num_rows;
      }
    }
  }

  Unit joined_unit(const SeqSlice& seq, int32_t kv_head) const {
    Unit unit = this->unit(seq, kv_head, 0, 0);
    unit.num_kv_heads = std::min(joined_, spec_.num_kv_heads - kv_head);
    unit.num_heads = unit.num_kv_heads * group_;
    return unit;
  }

  Unit unit(const SeqSlice& seq, int32_t kv_head, int32_t head, int32_t row) const {
    Unit unit{};
    unit.seq = &seq;
    unit.kv_head = kv_head;
    unit.num_kv_heads = 1;
    unit.first_head = kv_head * group_ + head;
    unit.num_heads = std::min(heads_, group_ - head);
    unit.first_row = row;
    const int32_t position = seq.start_pos + row;
    const SightRun sight = sight_at(seq, position);
    unit.num_rows = std::min(rows_, sight.end - position);
    unit.seen = sight.seen;
    const int32_t first_key =
        spec_.window > 0 && position >= spec_.window ? position - spec_.window + 1 : 0;
    unit.first_split = first_key / kSplitTokens;
    unit.end_position = attention_end(spec_, position + unit.num_rows - 1,
                                      seq.start_pos + seq.num_rows, sight.seen);
    unit.num_splits = (unit.end_position - 1) / kSplitTokens + 1 - unit.first_split;
    return unit;
  }

  const StepBatch& step_;
  const AttentionSpec& spec_;
  bool by_head_;
  int32_t group_, parts_, heads_, rows_;
  int32_t joined_;  ///< KV heads of a sequence's only row in one unit
};

/// Work to share out, in key-by-row splits, and what its partial results take.
struct Totals {
  int64_t units = 0;
  int64_t splits = 0;
  int64_t partial_floats = 0;
  int64_t work = 0;
  int64_t largest_work = 0;

  void add(const Unit& unit, int64_t unit_floats) {
    const int64_t unit_work = int64_t{unit.num_splits} * unit.num_rows * unit.num_heads;
    ++units;
    splits += unit.num_splits;
    partial_floats += unit_floats;
    work += unit_work;
    largest_work = std::max(largest_work, unit_work);
  }
  /// Would one unit (a long decode) keep the other threads waiting?
  bool is_lopsided(int64_t threads) const {
    return threads > 1 && splits > units && largest_work * 2 * threads > work;
  }
  bool has_enough_tasks(int64_t threads) const {
    return threads == 1 || (is_lopsided(threads) ? splits : units) >= kManyTasks * threads;
  }
};

class AttentionRun {
 public:
  AttentionRun(const TensorView& q, const AttentionSpec& spec, const CpuKvCache& cache,
               int32_t layer, const TensorView& out)
      : q_(q),
        spec_(spec),
        cache_(cache),
        layer_(layer),
        group_(cache.layout().place(layer).group),
        out_(out) {}

  AttentionTask task(const Unit& unit) const {
    const int64_t row = unit.seq->first_row + unit.first_row;
    const int64_t column = static_cast<int64_t>(unit.first_head) * spec_.head_dim;
    const CpuKvCache::HeadPlace place = cache_.find_head(layer_, unit.kv_head);
    AttentionTask task{};
    task.queries = q_.row<float>(row) + column;
    task.query_stride = q_.row_stride;
    task.num_positions = unit.num_rows;
    task.num_heads = unit.num_heads;
    task.num_kv_heads = unit.num_kv_heads;
    task.first_position = unit.seq->start_pos + unit.first_row;
    task.end_position = unit.end_position;
    task.causal = spec_.causal;
    task.seen = unit.seen;
    task.window = spec_.window;
    task.scale = spec_.scale;
    task.soft_cap = spec_.soft_cap;
    if (spec_.sinks.data != nullptr) task.sinks = spec_.sinks.as<float>() + unit.first_head;
    task.cache = place.layer;
    task.blocks = unit.seq->blocks[group_].data();
    task.kv_head = place.head;
    task.first_split = unit.first_split;
    task.end_split = unit.first_split + unit.num_splits;
    task.out = out_.row<float>(row) + column;
    task.out_stride = out_.row_stride;
    return task;
  }

  /// Brings a unit's queries and results closer: in a prefill they lie in memory.
  void fetch(const Unit& unit) const {
    constexpr int64_t kLineFloats = 16;
    const int64_t first = static_cast<int64_t>(unit.first_head) * spec_.head_dim;
    const int64_t end = first + static_cast<int64_t>(unit.num_heads) * spec_.head_dim;
    for (int64_t i = 0; i < unit.num_rows; ++i) {
      const int64_t row = unit.seq->first_row + unit.first_row + i;
      for (int64_t column = first; column < end; column += kLineFloats) {
        __builtin_prefetch(q_.row<float>(row) + column, 0, 2);
        __builtin_prefetch(out_.row<float>(row) + column, 0, 2);
      }
    }
  }

  /// Of one split.
  int64_t partial_size(const Unit& unit) const {
    return partial_floats(spec_.head_dim, unit.num_rows * unit.num_heads);
  }

  /// Part `part` of `unit.num_kv_heads`.
  MergeTask merge_task(const Unit& unit, int32_t part, float* partials) const {
    const AttentionTask whole = task(unit);
    const int32_t heads = unit.num_heads / unit.num_kv_heads;
    return {.partials = partials + unit.first_partial,
            .num_splits = unit.num_splits,
            .partial_rows = unit.num_rows * unit.num_heads,
            .first_row = part * heads,
            .num_positions = unit.num_rows,
            .num_heads = heads,
            .head_dim = spec_.head_dim,
            .sinks = whole.sinks == nullptr ? nullptr : whole.sinks + part * heads,
            .out = whole.out + int64_t{part} * heads * spec_.head_dim,
            .out_stride = whole.out_stride};
  }

 private:
  const TensorView& q_;
  const AttentionSpec& spec_;
  const CpuKvCache& cache_;
  int32_t layer_, group_;
  const TensorView& out_;
};

/// The unit whose splits include task `task`.
const Unit& unit_of(const Unit* units, int64_t count, int64_t task) {
  return *(std::upper_bound(units, units + count, task,
                            [](int64_t t, const Unit& unit) { return t < unit.first_task; }) -
           1);
}

/// Bounds for every step of as many rows, whoever they belong to, at positions no later than the
/// last row's: each row a unit of its own; and partial results of a lopsided step, whose work is
/// less than 2 * threads that of one unit.
Totals most_totals(const StepBatch& step, const AttentionSpec& spec, int64_t threads) {
  const int64_t splits = step.positions.back() / kSplitTokens + 1;
  Totals most;
  most.units = static_cast<int64_t>(step.positions.size()) * spec.num_heads;
  most.partial_floats = std::min(2 * threads * splits * partial_floats(spec.head_dim, kMaxTaskRows),
                                 kMaxPartialFloats);
  return most;
}

/// Where things lie in the op's scratch memory.
struct ScratchLayout {
  size_t worker_offset;
  size_t worker_bytes;
  size_t partial_offset;
  size_t bytes;

  ScratchLayout(const Totals& totals, bool by_split, const PagedRows& rows, size_t threads) {
    constexpr size_t kAlign = 64;
    worker_offset = round_up(static_cast<size_t>(totals.units) * sizeof(Unit), kAlign);
    const int64_t worker_floats = attention_scratch_floats(rows.key_dim, rows.latent);
    worker_bytes = round_up(static_cast<size_t>(worker_floats) * sizeof(float), kAlign);
    partial_offset = worker_offset + worker_bytes * threads;
    const int64_t floats = by_split ? totals.partial_floats : 0;
    bytes = partial_offset + static_cast<size_t>(floats) * sizeof(float);
  }
};

}  // namespace

void CpuBackend::attention(TensorView q, const AttentionSpec& spec, const KvCache& cache,
                           int32_t layer, TensorView out) {
  check_attention(step_, q, spec, cache, layer, out);
  const auto& tiled = dynamic_cast<const CpuKvCache&>(cache);
  const AttentionKernels& kernels = *isa_->attention;
  const KvFormat& format = tiled.format(kernels);
  const PagedRows& rows = cache.layout().rows(layer);
  const bool by_head = tiled.num_parts() > 1;
  const AttentionRun run(q, spec, tiled, layer, out);
  if (reserving_) {
    const Totals most = most_totals(step_, spec, pool_.num_threads());
    scratch(ScratchLayout(most, true, rows, static_cast<size_t>(pool_.num_threads())).bytes);
    return;
  }

  const auto total = [&](const UnitCutter& cutter) {
    Totals sum;
    cutter.for_each(
        [&](const Unit& unit) { sum.add(unit, unit.num_splits * run.partial_size(unit)); });
    return sum;
  };
  const bool joins = total({step_, spec, by_head, true}).has_enough_tasks(pool_.num_threads());
  const UnitCutter cutter(step_, spec, by_head, joins);
  const Totals totals = total(cutter);
  const bool by_split =
      totals.is_lopsided(pool_.num_threads()) && totals.partial_floats <= kMaxPartialFloats;
  const ScratchLayout layout(totals, by_split, rows, static_cast<size_t>(pool_.num_threads()));
  std::byte* const memory = scratch(layout.bytes);
  auto* const units = reinterpret_cast<Unit*>(memory);
  auto* const partials = reinterpret_cast<float*>(memory + layout.partial_offset);
  const auto worker = [&](int32_t thread) {
    return reinterpret_cast<float*>(memory + layout.worker_offset +
                                    static_cast<size_t>(thread) * layout.worker_bytes);
  };

  Totals placed;
  cutter.for_each([&](const Unit& unit) {
    Unit& to = units[placed.units] = unit;
    to.first_task = placed.splits;
    to.first_partial = placed.partial_floats;
    placed.add(unit, unit.num_splits * run.partial_size(unit));
  });
  // Each group of threads has the tasks of the KV heads near it.
  const auto run_tasks = [&](int64_t count, const auto& body) {
    if (!by_head) {
      pool_.parallel_for(count, 1, [&](int64_t i, int64_t, int32_t thread) { body(i, thread); });
      return;
    }
    const int64_t share = count / spec.num_kv_heads;
    pool_.parallel_rounds(
        share, spec.num_kv_heads,
        [&](int64_t i, int64_t kv_head, int32_t thread) { body(kv_head * share + i, thread); });
  };
  if (!by_split) {
    run_tasks(totals.units, [&](int64_t i, int32_t thread) {
      AttentionTask task = run.task(units[i]);
      task.scratch = worker(thread);
      if (i + 1 < totals.units) run.fetch(units[i + 1]);
      format.attend(task);
    });
    return;
  }
  run_tasks(totals.splits, [&](int64_t i, int32_t thread) {
    const Unit& unit = unit_of(units, totals.units, i);
    const int64_t split = i - unit.first_task;
    AttentionTask task = run.task(unit);
    task.scratch = worker(thread);
    task.first_split += static_cast<int32_t>(split);
    task.end_split = task.first_split + 1;
    task.partials = partials + unit.first_partial + split * run.partial_size(unit);
    format.attend(task);
  });
  const int32_t parts = cutter.joined();
  run_tasks(totals.units * parts, [&](int64_t i, int32_t) {
    const Unit& unit = units[i / parts];
    const auto part = static_cast<int32_t>(i % parts);
    if (part < unit.num_kv_heads) kernels.merge(run.merge_task(unit, part, partials));
  });
}

}  // namespace headrace
