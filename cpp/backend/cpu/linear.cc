#include <algorithm>
#include <utility>

#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/op_checks.h"
#include "backend/cpu/packed_panels.h"
#include "backend/cpu/quant_panels.h"
#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {

/// A product cut into tasks: blocks of rows x runs of panels. All in bytes, rows and panels.
struct LinearPlan {
  int64_t row_bytes;   ///< of packed activations
  int64_t tile_rows;   ///< rows that pass a panel at once
  int64_t block_rows;  ///< rows that meet a panel together: whole tiles
  int64_t blocks;
  int64_t panel_bytes;
  int64_t activation_bytes;   ///< of all packed rows, and a gap
  int64_t accumulator_bytes;  ///< per thread, and a gap
};

namespace {

// Packed activations of a block of rows, which stay in the second-level cache while panels pass.
constexpr int64_t kBlockBytes = 512 * 1024;
constexpr int64_t kMaxBlockRows = 384;

// Threads that count tasks off wait for each other's caches, as long as it takes to read some KiB:
// as few runs of panels as let a thread help another, and small ones of large weights.
constexpr int64_t kRunsPerThread = 4;
constexpr int64_t kRunBytes = 512 * 1024;

// With few rows reading weights takes as long as arithmetic: smaller tiles spread it more evenly.
constexpr int64_t kFewRows = 16, kFewRowsTile = 4;

// Between what threads read together and what each of them writes: the hardware's prefetchers read
// beyond their stream, and would take lines away from the thread that is writing them.
constexpr int64_t kGapBytes = 16 * 1024;

// Of a thread's share of the next weight: what the wait for others at the end of an operation is
// worth, and a quarter of a second-level cache of 1 MiB or more.
constexpr int64_t kAheadBytes = 256 * 1024;

/// Even shares of `count`, none above `most`.
int64_t even_share(int64_t count, int64_t most) { return ceil_div(count, ceil_div(count, most)); }

int64_t count_runs(int64_t panels, int64_t panel_bytes, int64_t threads) {
  const int64_t large = ceil_div(panels * panel_bytes, kRunBytes);
  const int64_t runs = std::max(kRunsPerThread * threads, large / threads * threads);
  return std::min(runs, panels);
}

LinearPlan plan_linear(int64_t rows, int64_t row_bytes, int64_t panel_bytes, int64_t most_tile,
                       int64_t panel_cols) {
  LinearPlan plan;
  plan.panel_bytes = panel_bytes;
  if (rows <= kFewRows) most_tile = std::min(most_tile, kFewRowsTile);
  plan.row_bytes = row_bytes;
  const int64_t most = std::clamp(kBlockBytes / plan.row_bytes, 4 * most_tile, kMaxBlockRows);
  const int64_t even_block = even_share(rows, most);
  plan.tile_rows = even_share(even_block, most_tile);
  plan.block_rows = round_up(even_block, plan.tile_rows);
  plan.blocks = ceil_div(rows, plan.block_rows);
  plan.activation_bytes = round_up(rows * plan.row_bytes, int64_t{64}) + kGapBytes;
  plan.accumulator_bytes =
      plan.block_rows * panel_cols * static_cast<int64_t>(sizeof(float)) + kGapBytes;
  return plan;
}

/// Rows [first, first + rows) of x.
RowsToPack rows_to_pack(const TensorView& x, int64_t first, int64_t rows, const LinearPlan& plan) {
  return {x.row<float>(first), x.row_stride,           rows, x.cols(),
          plan.tile_rows,      x.rows() - first - rows};
}

/// How a weight's panels lie.
struct PanelSpan {
  const std::byte* first;
  int64_t bytes;
  int64_t count;
};

PanelSpan panel_span(const PackedWeight& weight) {
  const auto* data = static_cast<const std::byte*>(weight.data());
  if (const auto* quantized = dynamic_cast<const QuantPanels*>(&weight)) {
    return {data, quantized->panel_bytes(), quantized->cut().num_panels()};
  }
  const auto* dense = dynamic_cast<const PackedPanels*>(&weight);
  HEADRACE_CHECK(dense != nullptr);
  return {data, dense->panel_bytes(), dense->num_panels()};
}

bool is_gate_up(const PackedWeight& weight) {
  if (const auto* panels = dynamic_cast<const PackedPanels*>(&weight)) {
    return panels->layout().gate_up;
  }
  const auto* quantized = dynamic_cast<const QuantPanels*>(&weight);
  return quantized != nullptr && quantized->cut().gate_up;
}

}  // namespace

struct CpuBackend::LinearOperands {
  const TensorView& x;
  const TensorView& bias;
  const TensorView& out;
  PanelEpilogue epilogue;
};

/// What of an operation a panel writes, for rows from `first_row` on.
PanelTask CpuBackend::panel_task(const LinearOperands& op, const PanelCut& cut, int64_t panel,
                                 int64_t first_row) {
  const float* bias = op.bias.data == nullptr ? nullptr : op.bias.as<float>();
  const int64_t outputs = cut.panel_outputs();
  const int64_t first = panel * outputs;
  PanelTask task{};
  task.bias = bias == nullptr ? nullptr : bias + first;
  task.up_bias = bias == nullptr ? nullptr : task.bias + cut.outputs();
  task.out = op.out.row<float>(first_row) + first;
  task.out_stride = op.out.row_stride;
  task.cols = static_cast<int32_t>(std::min(outputs, cut.outputs() - first));
  task.up_column = cut.outputs();
  task.epilogue = op.epilogue;
  return task;
}

void CpuBackend::read_ahead(int64_t rows) {
  const PackedWeight* const weight = std::exchange(expected_, nullptr);
  if (weight == nullptr || rows > kFewRows) return;
  const PanelSpan panels = panel_span(*weight);
  const int64_t runs = count_runs(panels.count, panels.bytes, pool_.num_threads());
  for (int32_t thread = 0; thread < pool_.num_threads(); ++thread) {
    const int64_t first = panels.count * pool_.first_of(thread, runs) / runs;
    const int64_t left = (panels.count - first) * panels.bytes;
    pool_.read_ahead(thread, panels.first + first * panels.bytes,
                     static_cast<size_t>(std::min(left, kAheadBytes)));
  }
}

template <class PackRows, class Product>
void CpuBackend::multiply_panels(const LinearOperands& op, const PanelCut& cut,
                                 const LinearPlan& plan, const PackRows& pack_rows,
                                 const Product& product) {
  const auto threads = static_cast<int64_t>(pool_.num_threads());
  std::byte* activations =
      scratch(static_cast<size_t>(plan.activation_bytes + threads * plan.accumulator_bytes));
  std::byte* accumulators = activations + plan.activation_bytes;

  const int64_t rows = op.x.rows();
  const int64_t touched_bytes = plan.row_bytes + op.x.cols() * static_cast<int64_t>(sizeof(float));
  for_rows(ceil_div(rows, plan.tile_rows), plan.tile_rows * touched_bytes,
           [&](int64_t begin, int64_t end) {
             const int64_t first = begin * plan.tile_rows;
             const int64_t last = std::min(end * plan.tile_rows, rows);
             pack_rows(first, last - first, activations + first * plan.row_bytes);
           });

  if (reserving_) return;
  read_ahead(rows);
  const int64_t panels = cut.num_panels();
  const int64_t runs = count_runs(panels, plan.panel_bytes, threads);
  pool_.parallel_rounds(plan.blocks, runs, [&](int64_t block, int64_t run, int32_t thread) {
    const int64_t first_row = block * plan.block_rows;
    for (int64_t panel = panels * run / runs; panel < panels * (run + 1) / runs; ++panel) {
      PanelTask task = panel_task(op, cut, panel, first_row);
      task.activations = activations + first_row * plan.row_bytes;
      task.rows = std::min(plan.block_rows, rows - first_row);
      task.tile_rows = plan.tile_rows;
      task.accumulators = reinterpret_cast<float*>(accumulators + thread * plan.accumulator_bytes);
      product(panel, task);
    }
  });
}

void CpuBackend::run_linear(const TensorView& x, const PackedWeight& packed, const TensorView& bias,
                            const TensorView& out, PanelEpilogue epilogue) {
  const bool makes_gate_up =
      epilogue == PanelEpilogue::kSiluMul || epilogue == PanelEpilogue::kGateUp;
  HEADRACE_CHECK(is_gate_up(packed) == makes_gate_up, "the weight was packed for another use");
  check_linear(x, packed, bias, out,
               epilogue == PanelEpilogue::kSiluMul ? packed.n() / 2 : packed.n());
  if (x.rows() == 0) return;
  const LinearOperands op{x, bias, out, epilogue};
  if (const auto* quantized = dynamic_cast<const QuantPanels*>(&packed)) {
    run_quantized(op, *quantized);
  } else {
    const auto* weight = dynamic_cast<const PackedPanels*>(&packed);
    HEADRACE_CHECK(weight != nullptr && !weight->layout().row_major,
                   "the weight was packed for another use");
    run_dense(op, *weight);
  }
}

void CpuBackend::run_dense(const LinearOperands& op, const PackedPanels& weight) {
  const LinearKernels& kernels = *isa_->linear;
  const LinearFormat& format = linear_format(kernels, weight.storage());
  const int64_t row_bytes = weight.k_groups() * format.group * format.activation_bytes;
  const LinearPlan plan = plan_linear(op.x.rows(), row_bytes, weight.panel_bytes(),
                                      kernels.tile_rows, kernels.panel_cols);
  multiply_panels(
      op, weight.cut(), plan,
      [&](int64_t first, int64_t rows, void* packed) {
        format.pack_rows(rows_to_pack(op.x, first, rows, plan), packed);
      },
      [&](int64_t panel, PanelTask& task) {
        task.panel = weight.panel(panel);
        task.k_groups = weight.k_groups();
        format.panel_product(task);
      });
}

TensorView CpuBackend::reordered(const TensorView& x, const int32_t* order) {
  const int64_t rows = x.rows(), k = x.cols();
  const auto row_bytes = k * static_cast<int64_t>(sizeof(float));
  auto* out = reinterpret_cast<float*>(grow(reordered_, static_cast<size_t>(rows * row_bytes)));
  for_rows(rows, row_bytes, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* from = x.row<float>(row);
      for (int64_t i = 0; i < k; ++i) out[row * k + i] = from[order[i]];
    }
  });
  return TensorView(out, DType::kF32, {rows, k});
}

void CpuBackend::run_quantized(const LinearOperands& op, const QuantPanels& weight) {
  const QuantKernels& kernels = *isa_->quant;
  const QuantFormat& format = weight.format();
  const TensorView x = weight.order() == nullptr ? op.x : reordered(op.x, weight.order());
  const int64_t most_tile = op.x.rows() > kFewRows ? kernels.many_tile_rows : kernels.tile_rows;
  const LinearPlan plan =
      plan_linear(op.x.rows(), quant_row_bytes(kernels, format, weight.k_groups()),
                  weight.panel_bytes(), most_tile, kernels.panel_cols);
  multiply_panels(
      op, weight.cut(), plan,
      [&](int64_t first, int64_t rows, void* packed) {
        kernels.pack_rows({rows_to_pack(x, first, rows, plan), format}, packed);
      },
      [&](int64_t panel, PanelTask& task) {
        task.panel = weight.panel(panel);
        task.k_groups = weight.k_groups();
        kernels.panel_product(task, format);
      });
}

void CpuBackend::linear(TensorView x, const PackedWeight& weight, TensorView bias, TensorView out) {
  run_linear(x, weight, bias, out,
             is_gate_up(weight) ? PanelEpilogue::kGateUp : PanelEpilogue::kStore);
}

// A sum of two numbers has the same bits in either order.
void CpuBackend::linear_add_rms_norm(const LinearAddNorm& args) {
  check_add_rms_norm(args.residual, args.delta, args.norm, args.out);
  run_linear(args.x, args.weight, args.bias, args.residual, PanelEpilogue::kAdd);
  rms_norm(args.residual, args.norm, args.eps, args.out);
}

void CpuBackend::linear_silu_mul(TensorView x, const PackedWeight& weight, TensorView bias,
                                 TensorView out) {
  run_linear(x, weight, bias, out, PanelEpilogue::kSiluMul);
}

}  // namespace headrace
