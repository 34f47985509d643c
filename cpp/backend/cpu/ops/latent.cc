#include "backend/checks/op_checks_attention.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/kv/kv_cache.h"
#include "backend/cpu/ops/panel_product.h"
#include "backend/cpu/ops/panel_runs.h"
#include "backend/cpu/ops/token_places.h"
#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {

void CpuBackend::latent_write(TensorView q, TensorView kv, const LatentSpec& spec,
                              const RopeSpec& rope, TensorView rope_table, KvCache& cache,
                              int32_t layer, TensorView out) {
  check_latent_write(step_, q, kv, spec, rope, rope_table, cache, layer, out);
  const auto& tiled = dynamic_cast<const CpuKvCache&>(cache);
  const KvFormat& format = tiled.format(*isa_->attention);
  HEADRACE_CHECK(format.write_latent != nullptr, dtype_name(cache.dtype()));
  auto* places =
      reinterpret_cast<TokenPlace*>(scratch(sizeof(TokenPlace) * step_.positions.size()));
  find_places(step_, cache.layout().place(layer).group, cache.block_size(), places);
  LatentTask common{};
  common.rank = spec.rank;
  common.rope_dim = spec.rope_dim;
  common.row_dim = spec.row_dim();
  common.norm = spec.norm.as<float>();
  common.norm_eps = spec.norm_eps;
  common.interleaved = rope.style == RopeStyle::kInterleaved;
  common.num_heads = spec.num_heads;
  common.query_step = spec.query_dim();
  common.cache = tiled.find_head(layer, 0).layer;
  const int64_t numbers = kv.cols() + int64_t{spec.num_heads} * spec.rope_dim;
  constexpr int64_t kNumberCost = 16;  // rotating and converting
  for_rows(q.rows(), numbers * kNumberCost, [&](int64_t begin, int64_t end) {
    LatentTask task = common;
    for (int64_t row = begin; row < end; ++row) {
      task.row = kv.row<float>(row);
      task.cos_sin = rope_table.row<float>(row);
      task.queries = q.row<float>(row) + spec.nope_dim;
      task.out = out.row<float>(row);
      task.block = places[row].block;
      task.slot = places[row].slot;
      format.write_latent(task);
    }
  });
}

void CpuBackend::grouped_linear(const GroupedLinear& args) {
  check_grouped_linear(args);
  const PanelProduct product(args.weight, *isa_);
  const PanelWeight& weight = product.weight();
  HEADRACE_CHECK(!weight.cut().gate_up, "the weight was packed for another use");
  const int64_t rows = args.x.rows(), groups = weight.experts(), row_bytes = product.row_bytes();
  const RowBlocks blocks = product.blocks_of(rows);
  const int64_t group_bytes = round_up(rows * row_bytes, int64_t{64});
  const int64_t accumulator_bytes = accumulators_of(product, blocks.block_rows);
  const auto threads = static_cast<int64_t>(pool_.num_threads());
  std::byte* const activations =
      scratch(static_cast<size_t>(groups * group_bytes + threads * accumulator_bytes));
  std::byte* const accumulators = activations + groups * group_bytes;
  if (rows == 0) return;
  const int64_t tiles = ceil_div(rows, blocks.tile_rows);
  for_rows(groups * tiles, blocks.tile_rows * (row_bytes + weight.k() * 4),
           [&](int64_t begin, int64_t end) {
             for (int64_t unit = begin; unit < end; ++unit) {
               const int64_t group = unit / tiles, first = unit % tiles * blocks.tile_rows;
               product.pack_rows(args.x.columns(group * args.x_step, weight.k()), first,
                                 std::min(blocks.tile_rows, rows - first), blocks.tile_rows,
                                 activations + group * group_bytes + first * row_bytes);
             }
           });
  if (reserving_) return;
  const int64_t rounds = ceil_div(rows, blocks.block_rows), panels = weight.num_panels();
  const int64_t outputs = weight.cut().panel_outputs();
  pool_.parallel_rounds(rounds, groups * panels, [&](int64_t block, int64_t unit, int32_t thread) {
    const int64_t group = unit / panels, panel = unit % panels, first = block * blocks.block_rows;
    PanelTask task{};
    task.activations = activations + group * group_bytes + first * row_bytes;
    task.rows = std::min(blocks.block_rows, rows - first);
    task.tile_rows = blocks.tile_rows;
    task.accumulators = reinterpret_cast<float*>(accumulators + thread * accumulator_bytes);
    task.out = args.out.row<float>(first) + group * args.out_step + panel * outputs;
    task.out_stride = args.out.row_stride;
    task.cols = static_cast<int32_t>(std::min(outputs, weight.n() - panel * outputs));
    task.epilogue = PanelEpilogue::kStore;
    product.multiply(group, panel, task);
  });
}

}  // namespace headrace
