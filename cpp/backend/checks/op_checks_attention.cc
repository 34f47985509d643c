#include "backend/checks/op_checks_attention.h"

#include <cmath>

#include "backend/checks/op_checks_state.h"
#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {
namespace {

void check_step_matrix(const StepBatch& batch, const TensorView& x, int64_t cols) {
  HEADRACE_CHECK(x.shape.rank() == 2 && x.dtype == DType::kF32, x.shape.rank(), " ",
                 dtype_name(x.dtype));
  HEADRACE_CHECK(x.rows() == static_cast<int64_t>(batch.positions.size()) && x.cols() == cols,
                 x.rows(), " x ", x.cols());
  HEADRACE_CHECK(x.row_stride >= cols && (x.data != nullptr || x.rows() == 0), x.row_stride);
}

/// Blocks [first, last] of every sequence's table of the group exist.
template <class First>
void check_blocks(const StepBatch& batch, const KvCache& cache, int32_t group, const First& first) {
  const int64_t block_size = cache.block_size();
  for (const SeqSlice& seq : batch.seqs) {
    HEADRACE_CHECK(seq.blocks.has(group), group, " of ", seq.blocks.num_tables());
    const std::span<const int32_t> table = seq.blocks[group];
    const int64_t end = keys_end(seq);
    HEADRACE_CHECK(static_cast<int64_t>(table.size()) * block_size >= end, end, " tokens in ",
                   table.size(), " blocks");
    for (int64_t i = first(seq) / block_size; i < ceil_div(end, block_size); ++i) {
      const int32_t block = table[static_cast<size_t>(i)];
      HEADRACE_CHECK(block >= 0 && block < cache.num_blocks(), block, " of ", cache.num_blocks());
    }
  }
}

void check_norm(const TensorView& weight, DType act, const QkvSpec& spec, int32_t num_heads) {
  if (weight.data == nullptr) return;
  HEADRACE_CHECK(weight.dtype == act || weight.dtype == DType::kF32, dtype_name(weight.dtype));
  const int64_t heads = spec.norm == QkNorm::kRow ? num_heads : 1;
  HEADRACE_CHECK(weight.shape.elements() == heads * spec.head_dim, weight.shape.elements());
}

}  // namespace

bool storable_kv(DType dtype) noexcept {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 ||
         dtype == DType::kI8 || dtype == DType::kF8E4M3 || dtype == DType::kU4;
}

void check_cache_layout(const CacheLayout& layout, int32_t num_blocks) {
  HEADRACE_CHECK(!layout.groups.empty() && !layout.layers.empty() && num_blocks >= 0, num_blocks);
  HEADRACE_CHECK(layout.block_size >= 16 && layout.block_size % 16 == 0, layout.block_size);
  for (const CacheGroup& group : layout.groups) {
    const PagedRows& rows = group.rows;
    HEADRACE_CHECK(rows.num_kv_heads > 0 && rows.window >= 0 && group.num_layers > 0,
                   rows.num_kv_heads, " heads, ", group.num_layers, " layers");
    const int32_t largest = rows.latent ? kLargestLatent : kLargestHead;
    HEADRACE_CHECK(rows.key_dim >= 16 && rows.key_dim <= largest && rows.key_dim % 16 == 0,
                   rows.key_dim);
    HEADRACE_CHECK(!rows.latent || (rows.num_kv_heads == 1 && dtype_size(rows.dtype) > 1),
                   rows.num_kv_heads, " x ", dtype_name(rows.dtype));
    HEADRACE_CHECK(rows.value_dim == rows.key_dim, rows.value_dim);
    HEADRACE_CHECK(storable_kv(rows.dtype) && rows.dtype == layout.dtype(), dtype_name(rows.dtype));
  }
  for (const CachePlace& place : layout.layers) {
    if (place.group < 0) continue;
    HEADRACE_CHECK(place.group < layout.num_groups(), place.group);
    const CacheGroup& group = layout.groups[static_cast<size_t>(place.group)];
    HEADRACE_CHECK(place.slot >= 0 && place.slot < group.num_layers, place.slot);
  }
  check_state_layout(layout);
}

void check_cache_use(const StepBatch& batch, const KvCache& cache, const CacheUse& use) {
  const CacheLayout& layout = cache.layout();
  HEADRACE_CHECK(batch.cache == &cache, "the step's tables are of another cache");
  HEADRACE_CHECK(use.layer >= 0 && use.layer < layout.num_layers(), use.layer, " of ",
                 layout.num_layers());
  HEADRACE_CHECK(layout.place(use.layer).group >= 0, "layer ", use.layer, " keeps no rows");
  const PagedRows& rows = layout.rows(use.layer);
  HEADRACE_CHECK(use.num_kv_heads == rows.num_kv_heads && use.head_dim == rows.key_dim,
                 use.num_kv_heads, " x ", use.head_dim, " in a cache of ", rows.num_kv_heads, " x ",
                 rows.key_dim);
  HEADRACE_CHECK(use.num_heads > 0 && use.num_heads % use.num_kv_heads == 0, use.num_heads, " on ",
                 use.num_kv_heads);
}

void check_qkv_spec(const QkvSpec& spec, DType act) {
  check_norm(spec.q_norm, act, spec, spec.num_heads);
  check_norm(spec.k_norm, act, spec, spec.num_kv_heads);
  HEADRACE_CHECK(std::isfinite(spec.q_factor.beta) &&
                     (spec.q_factor.beta == 0.0f || spec.q_factor.original > 0),
                 spec.q_factor.beta, " and ", spec.q_factor.original);
}

void check_attention_spec(const AttentionSpec& spec) {
  HEADRACE_CHECK(spec.window >= 0, spec.window);
  HEADRACE_CHECK(spec.soft_cap >= 0.0f && std::isfinite(spec.soft_cap), spec.soft_cap);
  if (spec.sinks.data == nullptr) return;
  HEADRACE_CHECK(spec.sinks.dtype == DType::kF32 && spec.sinks.shape.elements() == spec.num_heads,
                 spec.sinks.shape.elements());
}

namespace {

void check_rope(const StepBatch& batch, const QkvSpec& spec, const RopeSpec& rope,
                const TensorView& rope_table) {
  HEADRACE_CHECK(
      rope.rotary_dim >= 0 && rope.rotary_dim % 2 == 0 && rope.rotary_dim <= spec.head_dim,
      rope.rotary_dim);
  if (rope.rotary_dim > 0) check_step_matrix(batch, rope_table, rope.rotary_dim);
  check_qkv_spec(spec, DType::kF32);
}

}  // namespace

void check_rope_queries(const StepBatch& batch, const TensorView& q, const QkvSpec& spec,
                        const RopeSpec& rope, const TensorView& rope_table) {
  HEADRACE_CHECK(spec.num_heads > 0 && spec.head_dim > 0, spec.num_heads, " x ", spec.head_dim);
  check_step_matrix(batch, q, int64_t{spec.num_heads} * spec.head_dim);
  check_rope(batch, spec, rope, rope_table);
}

void check_rope_kv_write(const StepBatch& batch, const TensorView& qkv, const QkvSpec& spec,
                         const RopeSpec& rope, const TensorView& rope_table, const KvCache& cache,
                         int32_t layer) {
  check_cache_use(batch, cache, {spec.num_heads, spec.num_kv_heads, spec.head_dim, layer});
  check_step_matrix(batch, qkv,
                    (static_cast<int64_t>(spec.num_heads) + 2 * spec.num_kv_heads) * spec.head_dim);
  check_rope(batch, spec, rope, rope_table);
  check_blocks(batch, cache, cache.layout().place(layer).group,
               [](const SeqSlice& seq) { return seq.start_pos; });
}

void check_grouped_linear(const GroupedLinear& args) {
  const int64_t groups = args.weight.experts(), n = args.weight.n(), k = args.weight.k();
  HEADRACE_CHECK(groups >= 1 && args.x_step >= k && args.out_step >= n, groups, " of ", n, " x ",
                 k);
  HEADRACE_CHECK(args.x.shape.rank() == 2 && args.out.shape.rank() == 2 &&
                     args.x.rows() == args.out.rows() && args.x.dtype == args.out.dtype,
                 args.x.rows(), " and ", args.out.rows());
  HEADRACE_CHECK(args.x.cols() >= (groups - 1) * args.x_step + k &&
                     args.out.cols() >= (groups - 1) * args.out_step + n,
                 args.x.cols(), " to ", args.out.cols());
}

void check_latent(int64_t rows, const TensorView& q, const TensorView& kv, const LatentSpec& spec,
                  const RopeSpec& rope, const TensorView& rope_table, const KvCache& cache,
                  int32_t layer, const TensorView& out) {
  HEADRACE_CHECK(spec.num_heads > 0 && spec.rank > 0 && spec.nope_dim >= 0 && spec.rope_dim > 0 &&
                     spec.rope_dim % 2 == 0 && spec.row_dim() <= kLargestLatent,
                 spec.num_heads, " x ", spec.rank, " + ", spec.rope_dim);
  HEADRACE_CHECK(rope.rotary_dim == spec.rope_dim, rope.rotary_dim);
  HEADRACE_CHECK(cache.layout().rows(layer).latent, "layer ", layer, " keeps no latent rows");
  const auto check = [rows](const TensorView& x, int64_t cols) {
    HEADRACE_CHECK(x.shape.rank() == 2 && x.rows() == rows && x.cols() == cols, x.rows(), " x ",
                   x.cols(), " for ", cols);
  };
  check(q, int64_t{spec.num_heads} * spec.query_dim());
  check(kv, int64_t{spec.rank} + spec.rope_dim);
  check(out, int64_t{spec.num_heads} * spec.row_dim());
  check(rope_table, spec.rope_dim);
  HEADRACE_CHECK(spec.norm.data != nullptr && spec.norm.shape.elements() == spec.rank,
                 spec.norm.shape.elements());
}

void check_latent_write(const StepBatch& batch, const TensorView& q, const TensorView& kv,
                        const LatentSpec& spec, const RopeSpec& rope, const TensorView& rope_table,
                        const KvCache& cache, int32_t layer, const TensorView& out) {
  check_cache_use(batch, cache, {spec.num_heads, 1, spec.row_dim(), layer});
  check_latent(static_cast<int64_t>(batch.positions.size()), q, kv, spec, rope, rope_table, cache,
               layer, out);
  check_blocks(batch, cache, cache.layout().place(layer).group,
               [](const SeqSlice& seq) { return seq.start_pos; });
}

void check_attention(const StepBatch& batch, const TensorView& q, const AttentionSpec& spec,
                     const KvCache& cache, int32_t layer, const TensorView& out) {
  check_cache_use(batch, cache, {spec.num_heads, spec.num_kv_heads, spec.head_dim, layer});
  const int64_t cols = static_cast<int64_t>(spec.num_heads) * spec.head_dim;
  check_step_matrix(batch, q, cols);
  check_step_matrix(batch, out, cols);
  check_attention_spec(spec);
  const CachePlace& place = cache.layout().place(layer);
  if (place.slot > 0) return;
  check_blocks(batch, cache, place.group, [&](const SeqSlice& seq) {
    const int32_t window = spec.window == 0 ? seq.start_pos + 1 : spec.window;
    return seq.start_pos < window ? 0 : seq.start_pos - window + 1;
  });
}

void check_sample(const TensorView& logits, int32_t vocab_size, std::span<const SampleRow> rows,
                  std::span<const SampleResult> results) {
  HEADRACE_CHECK(logits.shape.rank() == 2 && logits.dtype == DType::kF32);
  HEADRACE_CHECK(vocab_size > 0 && vocab_size <= logits.cols(), vocab_size, " of ", logits.cols());
  HEADRACE_CHECK(rows.size() == results.size(), rows.size(), " rows, ", results.size(), " results");
  for (const SampleRow& row : rows) {
    HEADRACE_CHECK(row.logits_row >= 0 && row.logits_row < logits.rows(), row.logits_row, " of ",
                   logits.rows());
    HEADRACE_CHECK(row.forced_token < vocab_size, row.forced_token, " of ", vocab_size);
    HEADRACE_CHECK(row.greedy || row.temperature > 0.0f, row.temperature);
  }
}

}  // namespace headrace
