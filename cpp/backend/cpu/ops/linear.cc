#include <algorithm>
#include <utility>

#include "backend/checks/op_checks.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/ops/panel_product.h"
#include "backend/cpu/ops/panel_runs.h"
#include "backend/cpu/weights/quant_panels.h"
#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {

struct CpuBackend::LinearOperands {
  const TensorView& x;
  const TensorView& bias;
  const TensorView& out;
  PanelEpilogue epilogue;
  GateSpec gate;  ///< kGateMul only
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
  task.gate = op.gate;
  return task;
}

void CpuBackend::read_ahead(int64_t rows) {
  const PackedWeight* const expected = std::exchange(expected_, nullptr);
  if (expected == nullptr || rows > kFewRows) return;
  const PanelWeight& weight = panels_of(*expected);
  const int64_t panels = weight.num_panels();
  const int64_t runs = count_runs(panels, weight.panel_bytes(), pool_.num_threads());
  for (int32_t thread = 0; thread < pool_.num_threads(); ++thread) {
    const int64_t first = panels * pool_.first_of(thread, runs) / runs;
    const int64_t left = (panels - first) * weight.panel_bytes();
    pool_.read_ahead(thread, weight.panel(first), static_cast<size_t>(std::min(left, kAheadBytes)));
  }
}

void CpuBackend::multiply_panels(const LinearOperands& op, const PanelProduct& product) {
  const int64_t rows = op.x.rows(), row_bytes = product.row_bytes();
  const RowBlocks blocks = product.blocks_of(rows);
  const auto threads = static_cast<int64_t>(pool_.num_threads());
  const int64_t activation_bytes = round_up(rows * row_bytes, int64_t{64}) + kGapBytes;
  const int64_t accumulator_bytes = accumulators_of(product, blocks.block_rows);
  std::byte* activations =
      scratch(static_cast<size_t>(activation_bytes + threads * accumulator_bytes));
  std::byte* accumulators = activations + activation_bytes;

  const int64_t touched_bytes = row_bytes + op.x.cols() * static_cast<int64_t>(sizeof(float));
  for_rows(ceil_div(rows, blocks.tile_rows), blocks.tile_rows * touched_bytes,
           [&](int64_t begin, int64_t end) {
             const int64_t first = begin * blocks.tile_rows;
             const int64_t last = std::min(end * blocks.tile_rows, rows);
             product.pack_rows(op.x, first, last - first, blocks.tile_rows,
                               activations + first * row_bytes);
           });

  if (reserving_) return;
  read_ahead(rows);
  const PanelWeight& weight = product.weight();
  const int64_t panels = weight.num_panels();
  const int64_t runs = count_runs(panels, weight.panel_bytes(), threads);
  const int64_t rounds = ceil_div(rows, blocks.block_rows);
  pool_.parallel_rounds(rounds, runs, [&](int64_t block, int64_t run, int32_t thread) {
    const int64_t first_row = block * blocks.block_rows;
    for (int64_t panel = panels * run / runs; panel < panels * (run + 1) / runs; ++panel) {
      PanelTask task = panel_task(op, weight.cut(), panel, first_row);
      task.activations = activations + first_row * row_bytes;
      task.rows = std::min(blocks.block_rows, rows - first_row);
      task.tile_rows = blocks.tile_rows;
      task.accumulators = reinterpret_cast<float*>(accumulators + thread * accumulator_bytes);
      product.multiply(0, panel, task);
    }
  });
}

void CpuBackend::run_linear(const TensorView& x, const PackedWeight& packed, const TensorView& bias,
                            const TensorView& out, PanelEpilogue epilogue, const GateSpec& gate) {
  const bool makes_gate_up =
      epilogue == PanelEpilogue::kGateMul || epilogue == PanelEpilogue::kGateUp;
  const PanelProduct product(packed, *isa_);
  HEADRACE_CHECK(product.weight().cut().gate_up == makes_gate_up,
                 "the weight was packed for another use");
  check_linear(x, packed, bias, out,
               epilogue == PanelEpilogue::kGateMul ? packed.n() / 2 : packed.n());
  if (x.rows() == 0) return;
  const auto* quantized = dynamic_cast<const QuantPanels*>(&packed);
  const bool reorders = quantized != nullptr && quantized->order() != nullptr;
  const TensorView input = reorders ? reordered(x, quantized->order()) : x;
  multiply_panels({input, bias, out, epilogue, gate}, product);
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

void CpuBackend::linear(TensorView x, const PackedWeight& weight, TensorView bias, TensorView out) {
  run_linear(x, weight, bias, out,
             panels_of(weight).cut().gate_up ? PanelEpilogue::kGateUp : PanelEpilogue::kStore);
}

// A sum of two numbers has the same bits in either order.
void CpuBackend::linear_add_rms_norm(const LinearAddNorm& args) {
  check_add_rms_norm(args.residual, args.delta, args.norm, args.out);
  run_linear(args.x, args.weight, args.bias, args.residual, PanelEpilogue::kAdd);
  rms_norm(args.residual, args.norm, args.eps, args.out);
}

void CpuBackend::linear_gate_mul(TensorView x, const PackedWeight& weight, TensorView bias,
                                 const GateSpec& spec, TensorView out) {
  check_gate(spec);
  run_linear(x, weight, bias, out, PanelEpilogue::kGateMul, spec);
}

}  // namespace headrace
