#include <algorithm>

#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/op_checks.h"
#include "backend/cpu/packed_panels.h"
#include "backend/cpu/quant_panels.h"
#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {

/// A product cut into tasks: blocks of rows x panels. All in bytes, rows and panels.
struct LinearPlan {
  int64_t row_bytes;   ///< of packed activations
  int64_t tile_rows;   ///< rows that pass a panel at once
  int64_t block_rows;  ///< rows that meet a panel together: whole tiles
  int64_t blocks;
  int64_t panels;
  int64_t activation_bytes;   ///< of all packed rows, rounded up to a cache line
  int64_t accumulator_bytes;  ///< per thread
};

namespace {

// Packed activations of a block of rows, which stay in the second-level cache while panels pass.
constexpr int64_t kBlockBytes = 768 * 1024;
constexpr int64_t kMaxBlockRows = 384;

// With few rows reading weights takes as long as arithmetic: smaller tiles spread it more evenly.
constexpr int64_t kFewRows = 16, kFewRowsTile = 4;

/// Even shares of `count`, none above `most`.
int64_t even_share(int64_t count, int64_t most) { return ceil_div(count, ceil_div(count, most)); }

LinearPlan plan_linear(int64_t rows, int64_t row_bytes, int64_t panels, int64_t most_tile,
                       int64_t panel_cols) {
  LinearPlan plan;
  if (rows <= kFewRows) most_tile = std::min(most_tile, kFewRowsTile);
  plan.row_bytes = row_bytes;
  const int64_t most = std::clamp(kBlockBytes / plan.row_bytes, 4 * most_tile, kMaxBlockRows);
  const int64_t even_block = even_share(rows, most);
  plan.tile_rows = even_share(even_block, most_tile);
  plan.block_rows = round_up(even_block, plan.tile_rows);
  plan.blocks = ceil_div(rows, plan.block_rows);
  plan.panels = panels;
  plan.activation_bytes = round_up(rows * plan.row_bytes, int64_t{64});
  plan.accumulator_bytes = plan.block_rows * panel_cols * static_cast<int64_t>(sizeof(float));
  return plan;
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

template <class PackRows, class Product>
void CpuBackend::multiply_panels(const LinearOperands& op, const PanelCut& cut,
                                 const LinearPlan& plan, const PackRows& pack_rows,
                                 const Product& product) {
  const auto threads = static_cast<int64_t>(pool_.num_threads());
  std::byte* activations =
      scratch(static_cast<size_t>(plan.activation_bytes + threads * plan.accumulator_bytes));
  std::byte* accumulators = activations + plan.activation_bytes;

  const int64_t rows = op.x.rows();
  for_rows(ceil_div(rows, plan.tile_rows), plan.tile_rows * plan.row_bytes,
           [&](int64_t begin, int64_t end) {
             const int64_t first = begin * plan.tile_rows;
             const int64_t last = std::min(end * plan.tile_rows, rows);
             pack_rows(first, last - first, activations + first * plan.row_bytes);
           });

  const float* bias_data = op.bias.data == nullptr ? nullptr : op.bias.as<float>();
  const int64_t panel_outputs = cut.panel_outputs();
  pool_.parallel_for(plan.blocks * plan.panels, 1, [&](int64_t task, int64_t, int32_t thread) {
    const int64_t panel = task % plan.panels;
    const int64_t first_row = task / plan.panels * plan.block_rows;
    const int64_t first_output = panel * panel_outputs;
    PanelTask job;
    job.activations = activations + first_row * plan.row_bytes;
    job.rows = std::min(plan.block_rows, rows - first_row);
    job.tile_rows = plan.tile_rows;
    job.accumulators = reinterpret_cast<float*>(accumulators + thread * plan.accumulator_bytes);
    job.bias = bias_data == nullptr ? nullptr : bias_data + first_output;
    job.up_bias = bias_data == nullptr ? nullptr : job.bias + cut.outputs();
    job.out = op.out.row<float>(first_row) + first_output;
    job.out_stride = op.out.row_stride;
    job.cols = static_cast<int32_t>(std::min(panel_outputs, cut.outputs() - first_output));
    job.up_column = cut.outputs();
    job.epilogue = op.epilogue;
    product(panel, job);
  });
}

void CpuBackend::run_linear(const TensorView& x, const PackedWeight& packed, const TensorView& bias,
                            const TensorView& out, PanelEpilogue epilogue) {
  HEADRACE_CHECK(is_gate_up(packed) == (epilogue != PanelEpilogue::kStore),
                 "the weight was packed for another use");
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
  const LinearPlan plan = plan_linear(op.x.rows(), row_bytes, weight.num_panels(),
                                      kernels.tile_rows, kernels.panel_cols);
  multiply_panels(
      op, weight.cut(), plan,
      [&](int64_t first, int64_t rows, void* packed) {
        format.pack_rows(op.x.row<float>(first), op.x.row_stride, rows, op.x.cols(), plan.tile_rows,
                         packed);
      },
      [&](int64_t panel, PanelTask& task) {
        task.panel = weight.panel(panel);
        task.k_groups = weight.k_groups();
        format.panel_product(task);
      });
}

void CpuBackend::run_quantized(const LinearOperands& op, const QuantPanels& weight) {
  const QuantKernels& kernels = *isa_->quant;
  const QuantFormat& format = weight.format();
  const LinearPlan plan =
      plan_linear(op.x.rows(), quant_row_bytes(kernels, format, weight.k_groups()),
                  weight.cut().num_panels(), kernels.tile_rows, kernels.panel_cols);
  multiply_panels(
      op, weight.cut(), plan,
      [&](int64_t first, int64_t rows, void* packed) {
        kernels.pack_rows(
            {op.x.row<float>(first), op.x.row_stride, rows, op.x.cols(), plan.tile_rows, format},
            packed);
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

void CpuBackend::linear_silu_mul(TensorView x, const PackedWeight& weight, TensorView bias,
                                 TensorView out) {
  run_linear(x, weight, bias, out, PanelEpilogue::kSiluMul);
}

}  // namespace headrace
