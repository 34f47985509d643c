#include <algorithm>

#include "backend/checks/op_checks.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/weights/packed_lora.h"
#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {

namespace {

// Rows that one task takes: enough to read A and B from the caches, few enough to share out.
constexpr int64_t kTaskRows = 32;
constexpr int64_t kGrainBytes = 64 * 1024;

const LoraFormat& lora_format(const LoraKernels& kernels, DType storage) {
  if (storage == DType::kBF16) return kernels.bf16;
  return storage == DType::kF16 ? kernels.f16 : kernels.f32;
}

const CpuLora& as_cpu(const PackedLora& lora) {
  const auto* packed = dynamic_cast<const CpuLora*>(&lora);
  HEADRACE_CHECK(packed != nullptr, "the adapter was packed by another backend");
  return *packed;
}

/// Some rows of one group, and a block of A or a panel of B.
struct LoraTask {
  const CpuLora* lora;
  const CpuLora::Part* part;
  int64_t piece;        ///< block or panel of the part
  const int32_t* rows;  ///< [count] of x and out
  int64_t count;
  int64_t scratch_row;  ///< of the first
};

/// A product of all groups cut into tasks, found by number.
class LoraTasks {
 public:
  using Pieces = int64_t CpuLora::Part::*;

  LoraTasks(std::span<const LoraGroup> groups, Pieces pieces) : groups_(groups), pieces_(pieces) {
    for (const LoraGroup& group : groups) count_ += chunks(group) * pieces_of(group);
  }

  int64_t count() const noexcept { return count_; }

  LoraTask find(int64_t number) const {
    int64_t scratch_row = 0;
    for (const LoraGroup& group : groups_) {
      const int64_t own = chunks(group) * pieces_of(group);
      if (number < own) return find_in(group, number, scratch_row);
      number -= own;
      scratch_row += static_cast<int64_t>(group.rows.size());
    }
    HEADRACE_CHECK(false, number);
    return {};
  }

 private:
  static int64_t chunks(const LoraGroup& group) {
    return ceil_div(static_cast<int64_t>(group.rows.size()), kTaskRows);
  }

  int64_t pieces_of(const LoraGroup& group) const {
    int64_t count = 0;
    for (const CpuLora::Part& part : as_cpu(*group.lora).parts()) count += part.*pieces_;
    return count;
  }

  LoraTask find_in(const LoraGroup& group, int64_t number, int64_t scratch_row) const {
    const CpuLora& lora = as_cpu(*group.lora);
    const int64_t first = number % chunks(group) * kTaskRows;
    int64_t piece = number / chunks(group);
    const CpuLora::Part* part = lora.parts().data();
    for (; piece >= part->*pieces_; ++part) piece -= part->*pieces_;
    const auto rows = static_cast<int64_t>(group.rows.size());
    return {&lora,
            part,
            piece,
            group.rows.data() + first,
            std::min(kTaskRows, rows - first),
            scratch_row + first};
  }

  std::span<const LoraGroup> groups_;
  Pieces pieces_;
  int64_t count_ = 0;
};

}  // namespace

std::unique_ptr<PackedLora> CpuBackend::pack_lora(const LoraSpec& spec) {
  return pack_cpu_lora(spec, *isa_->lora, memory_);
}

void CpuBackend::lora(TensorView x, std::span<const LoraGroup> groups, TensorView scratch,
                      TensorView out) {
  check_lora(x, groups, scratch, out);
  if (reserving_) return;
  const LoraKernels& kernels = *isa_->lora;
  const auto run = [&](const LoraTasks& tasks, const auto& body) {
    size_t bytes = 1;
    for (const LoraGroup& group : groups) bytes += group.lora->bytes() / 2;
    const int64_t grain = kGrainBytes * tasks.count() / static_cast<int64_t>(bytes) + 1;
    pool_.parallel_for(tasks.count(), grain, [&](int64_t begin, int64_t end, int32_t) {
      for (int64_t i = begin; i < end; ++i) body(tasks.find(i));
    });
  };

  run(LoraTasks(groups, &CpuLora::Part::blocks), [&](const LoraTask& task) {
    const auto element = static_cast<int64_t>(dtype_size(task.lora->storage()));
    lora_format(kernels, task.lora->storage())
        .shrink({.x = x.row<float>(0),
                 .x_stride = x.row_stride,
                 .rows = task.rows,
                 .count = task.count,
                 .k = x.cols(),
                 .block = task.part->a + task.piece * x.cols() * kernels.lanes * element,
                 .t = scratch.row<float>(task.scratch_row) + task.part->scratch_column +
                      task.piece * kernels.lanes,
                 .t_stride = scratch.row_stride});
  });
  run(LoraTasks(groups, &CpuLora::Part::panels), [&](const LoraTask& task) {
    const auto element = static_cast<int64_t>(dtype_size(task.lora->storage()));
    const CpuLora::Part& part = *task.part;
    const int64_t column = task.piece * kernels.panel_cols;
    lora_format(kernels, task.lora->storage())
        .expand({.t = scratch.row<float>(task.scratch_row) + part.scratch_column,
                 .t_stride = scratch.row_stride,
                 .rows = task.rows,
                 .count = task.count,
                 .rank = part.rank,
                 .panel = part.b + task.piece * part.rank * kernels.panel_cols * element,
                 .scale = part.scale,
                 .out = out.row<float>(0) + part.column + column,
                 .out_stride = out.row_stride,
                 .cols = static_cast<int32_t>(
                     std::min<int64_t>(kernels.panel_cols, part.cols - column))});
  });
}

}  // namespace headrace
