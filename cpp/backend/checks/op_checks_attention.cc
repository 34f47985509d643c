#include "backend/checks/op_checks_attention.h"

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

void check_heads(int32_t num_heads, int32_t num_kv_heads, int32_t head_dim, const KvCache& cache,
                 int32_t layer) {
  const KvCacheSpec& spec = cache.spec();
  HEADRACE_CHECK(num_kv_heads == spec.num_kv_heads && head_dim == spec.head_dim, num_kv_heads,
                 " x ", head_dim, " in a cache of ", spec.num_kv_heads, " x ", spec.head_dim);
  HEADRACE_CHECK(num_heads > 0 && num_heads % num_kv_heads == 0, num_heads, " on ", num_kv_heads);
  HEADRACE_CHECK(layer >= 0 && layer < spec.num_layers, layer, " of ", spec.num_layers);
}

/// Blocks [first, last] of every sequence's table exist.
template <class First>
void check_blocks(const StepBatch& batch, const KvCache& cache, const First& first) {
  const int64_t block_size = cache.spec().block_size;
  for (const SeqSlice& seq : batch.seqs) {
    const int64_t end = static_cast<int64_t>(seq.start_pos) + seq.num_rows;
    HEADRACE_CHECK(static_cast<int64_t>(seq.blocks.size()) * block_size >= end, end, " tokens in ",
                   seq.blocks.size(), " blocks");
    for (int64_t i = first(seq) / block_size; i < ceil_div(end, block_size); ++i) {
      const int32_t block = seq.blocks[static_cast<size_t>(i)];
      HEADRACE_CHECK(block >= 0 && block < cache.num_blocks(), block, " of ", cache.num_blocks());
    }
  }
}

void check_norm(const TensorView& weight, int32_t head_dim) {
  if (weight.data == nullptr) return;
  HEADRACE_CHECK(weight.dtype == DType::kF32 && weight.shape.elements() == head_dim,
                 weight.shape.elements());
}

}  // namespace

bool storable_kv(DType dtype) noexcept {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 ||
         dtype == DType::kI8 || dtype == DType::kF8E4M3 || dtype == DType::kU4;
}

void check_kv_spec(const KvCacheSpec& spec, int32_t num_blocks) {
  HEADRACE_CHECK(spec.num_layers > 0 && spec.num_kv_heads > 0 && num_blocks >= 0);
  HEADRACE_CHECK(spec.head_dim >= 16 && spec.head_dim <= 256 && spec.head_dim % 16 == 0,
                 spec.head_dim);
  HEADRACE_CHECK(spec.block_size >= 16 && spec.block_size % 16 == 0, spec.block_size);
  HEADRACE_CHECK(storable_kv(spec.dtype), dtype_name(spec.dtype));
}

void check_rope_kv_write(const StepBatch& batch, const TensorView& qkv, const QkvSpec& spec,
                         const RopeSpec& rope, const TensorView& rope_table, const KvCache& cache,
                         int32_t layer) {
  check_heads(spec.num_heads, spec.num_kv_heads, spec.head_dim, cache, layer);
  check_step_matrix(batch, qkv,
                    (static_cast<int64_t>(spec.num_heads) + 2 * spec.num_kv_heads) * spec.head_dim);
  HEADRACE_CHECK(
      rope.rotary_dim >= 0 && rope.rotary_dim % 2 == 0 && rope.rotary_dim <= spec.head_dim,
      rope.rotary_dim);
  if (rope.rotary_dim > 0) check_step_matrix(batch, rope_table, rope.rotary_dim);
  check_norm(spec.q_norm, spec.head_dim);
  check_norm(spec.k_norm, spec.head_dim);
  check_blocks(batch, cache, [](const SeqSlice& seq) { return seq.start_pos; });
}

void check_attention(const StepBatch& batch, const TensorView& q, const AttentionSpec& spec,
                     const KvCache& cache, int32_t layer, const TensorView& out) {
  check_heads(spec.num_heads, spec.num_kv_heads, spec.head_dim, cache, layer);
  const int64_t cols = static_cast<int64_t>(spec.num_heads) * spec.head_dim;
  check_step_matrix(batch, q, cols);
  check_step_matrix(batch, out, cols);
  HEADRACE_CHECK(spec.window >= 0 && (spec.causal || spec.window == 0), spec.window);
  if (layer > 0) return;
  check_blocks(batch, cache, [&](const SeqSlice& seq) {
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
