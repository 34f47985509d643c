#include <algorithm>

#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/kv_cache.h"
#include "backend/cpu/op_checks_attention.h"
#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {
namespace {

/// Partial results are worth keeping up to this much memory.
constexpr int64_t kMaxPartialFloats = int64_t{16} << 20;

/// Rows of one sequence and query heads of one KV head that one task can hold.
struct Unit {
  const SeqSlice* seq;
  int32_t kv_head;
  int32_t first_head;  ///< of the query heads
  int32_t num_heads;
  int32_t first_row;  ///< of the sequence's rows
  int32_t num_rows;
  int32_t first_split;
  int32_t num_splits;
  int64_t first_task;     ///< when splits are tasks of their own
  int64_t first_partial;  ///< in floats
};

class UnitCutter {
 public:
  UnitCutter(const StepBatch& step, const AttentionSpec& spec) : step_(step), spec_(spec) {
    group_ = spec.num_heads / spec.num_kv_heads;
    // Equal shares of a group that is too large for one task.
    parts_ = ceil_div(group_, kMaxTaskRows);
    heads_ = ceil_div(group_, parts_);
    rows_ = std::max(1, kMaxTaskRows / heads_);
  }

  /// Calls visit(unit) for every unit; those that read the same keys follow each other.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const SeqSlice& seq : step_.seqs) {
      for (int32_t kv_head = 0; kv_head < spec_.num_kv_heads; ++kv_head) {
        for (int32_t head = 0; head < group_; head += heads_) {
          for (int32_t row = 0; row < seq.num_rows; row += rows_) {
            visit(unit(seq, kv_head, head, row));
          }
        }
      }
    }
  }

 private:
  Unit unit(const SeqSlice& seq, int32_t kv_head, int32_t head, int32_t row) const {
    Unit unit{};
    unit.seq = &seq;
    unit.kv_head = kv_head;
    unit.first_head = kv_head * group_ + head;
    unit.num_heads = std::min(heads_, group_ - head);
    unit.first_row = row;
    unit.num_rows = std::min(rows_, seq.num_rows - row);
    const int32_t position = seq.start_pos + row;
    const int32_t first_key =
        spec_.window > 0 && position >= spec_.window ? position - spec_.window + 1 : 0;
    unit.first_split = first_key / kSplitTokens;
    unit.num_splits = (position + unit.num_rows - 1) / kSplitTokens + 1 - unit.first_split;
    return unit;
  }

  const StepBatch& step_;
  const AttentionSpec& spec_;
  int32_t group_, parts_, heads_, rows_;
};

struct Totals {
  int64_t units = 0;
  int64_t splits = 0;
  int64_t partial_floats = 0;
};

AttentionTask task_of(const Unit& unit, const TensorView& q, const AttentionSpec& spec,
                      const KvLayerView& cache, const TensorView& out) {
  const int64_t row = unit.seq->first_row + unit.first_row;
  const int64_t column = static_cast<int64_t>(unit.first_head) * spec.head_dim;
  AttentionTask task{};
  task.queries = q.row<float>(row) + column;
  task.query_stride = q.row_stride;
  task.num_positions = unit.num_rows;
  task.num_heads = unit.num_heads;
  task.first_position = unit.seq->start_pos + unit.first_row;
  task.window = spec.window;
  task.scale = spec.scale;
  task.cache = &cache;
  task.blocks = unit.seq->blocks.data();
  task.kv_head = unit.kv_head;
  task.first_split = unit.first_split;
  task.end_split = unit.first_split + unit.num_splits;
  task.out = out.row<float>(row) + column;
  task.out_stride = out.row_stride;
  return task;
}

int64_t unit_partial_floats(const Unit& unit, int32_t head_dim) {
  return partial_floats(head_dim, unit.num_rows * unit.num_heads);
}

}  // namespace

void CpuBackend::attention(TensorView q, const AttentionSpec& spec, const KvCache& cache,
                           int32_t layer, TensorView out) {
  check_attention(step_, q, spec, cache, layer, out);
  const auto& tiled = dynamic_cast<const CpuKvCache&>(cache);
  const KvLayerView view = tiled.layer(layer);
  const AttentionKernels& kernels = *isa_->attention;
  const KvFormat& format = tiled.format(kernels);

  const UnitCutter cutter(step_, spec);
  Totals totals;
  cutter.for_each([&](const Unit& unit) {
    ++totals.units;
    totals.splits += unit.num_splits;
    totals.partial_floats += unit.num_splits * unit_partial_floats(unit, spec.head_dim);
  });
  // With few units (long decodes) the splits of a unit become tasks of their own.
  const int64_t threads = pool_.num_threads();
  const bool by_split = threads > 1 && totals.units < 4 * threads && totals.splits > totals.units &&
                        totals.partial_floats <= kMaxPartialFloats;

  constexpr int64_t kAlign = 64;
  const int64_t unit_bytes = round_up(totals.units * static_cast<int64_t>(sizeof(Unit)), kAlign);
  const int64_t worker_bytes = round_up(
      attention_scratch_floats(spec.head_dim) * static_cast<int64_t>(sizeof(float)), kAlign);
  const int64_t partial_bytes =
      by_split ? totals.partial_floats * static_cast<int64_t>(sizeof(float)) : 0;
  std::byte* memory =
      scratch(static_cast<size_t>(unit_bytes + worker_bytes * threads + partial_bytes));
  Unit* const units = reinterpret_cast<Unit*>(memory);
  std::byte* const workers = memory + unit_bytes;
  float* const partials = reinterpret_cast<float*>(workers + worker_bytes * threads);

  Totals placed;
  cutter.for_each([&](const Unit& unit) {
    Unit& to = units[placed.units++] = unit;
    to.first_task = placed.splits;
    to.first_partial = placed.partial_floats;
    placed.splits += unit.num_splits;
    placed.partial_floats += unit.num_splits * unit_partial_floats(unit, spec.head_dim);
  });

  if (!by_split) {
    pool_.parallel_for(totals.units, 1, [&](int64_t begin, int64_t, int32_t thread) {
      AttentionTask task = task_of(units[begin], q, spec, view, out);
      task.scratch = reinterpret_cast<float*>(workers + thread * worker_bytes);
      format.attend(task);
    });
    return;
  }
  pool_.parallel_for(totals.splits, 1, [&](int64_t begin, int64_t, int32_t thread) {
    const Unit& unit =
        *(std::upper_bound(units, units + totals.units, begin,
                           [](int64_t i, const Unit& u) { return i < u.first_task; }) -
          1);
    const int64_t split = begin - unit.first_task;
    AttentionTask task = task_of(unit, q, spec, view, out);
    task.scratch = reinterpret_cast<float*>(workers + thread * worker_bytes);
    task.first_split = unit.first_split + static_cast<int32_t>(split);
    task.end_split = task.first_split + 1;
    task.partials =
        partials + unit.first_partial + split * unit_partial_floats(unit, spec.head_dim);
    format.attend(task);
  });
  pool_.parallel_for(totals.units, 1, [&](int64_t begin, int64_t, int32_t) {
    const Unit& unit = units[begin];
    const AttentionTask task = task_of(unit, q, spec, view, out);
    kernels.merge({partials + unit.first_partial, unit.num_splits, unit.num_rows, unit.num_heads,
                   spec.head_dim, task.out, task.out_stride});
  });
}

}  // namespace headrace
