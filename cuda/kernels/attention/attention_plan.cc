#include "cuda/kernels/attention/attention_plan.h"

#include <algorithm>

namespace headrace::cuda {
namespace {

int32_t divide_up(int32_t a, int32_t b) { return (a + b - 1) / b; }

void add_long(const SeqSlice& seq, int32_t sequence, const AttentionShape& shape,
              AttentionPlan* plan) {
  const int32_t rows = shape.long_rows / shape.part_heads();
  const int32_t num_keys = seq.start_pos + seq.num_rows;
  for (int32_t r = 0; r < seq.num_rows; r += rows) {
    const int32_t count = std::min(rows, seq.num_rows - r), position = seq.start_pos + r;
    const int32_t end = end_key(position + count - 1, num_keys, shape.causal);
    plan->long_items.push_back({sequence, seq.first_row + r, count, position, num_keys,
                                first_key(position, shape.window) / kSplitKeys,
                                divide_up(end, kSplitKeys), -1});
  }
}

/// Whether its partial results fit.
bool add_short(const SeqSlice& seq, int32_t sequence, const AttentionShape& shape,
               int64_t max_partials, AttentionPlan* plan) {
  const int32_t first = first_key(seq.start_pos, shape.window) / kSplitKeys;
  const int32_t num_keys = seq.start_pos + seq.num_rows;
  const int32_t end = divide_up(num_keys, kSplitKeys);
  const bool alone = end - first == 1;
  if (!alone && int64_t{plan->num_partials} + end - first > max_partials) return false;
  for (int32_t split = first; split < end; ++split) {
    plan->short_items.push_back({sequence, seq.first_row, seq.num_rows, seq.start_pos, num_keys,
                                 split, split + 1, alone ? -1 : plan->num_partials++});
  }
  return true;
}

/// Of all sequences together: blocks that run beside each other then take pieces of about the same
/// length. Rows make the order, and so the list, the same every time.
void sort_longest_first(const AttentionShape& shape, std::vector<AttentionItem>* items) {
  std::ranges::sort(*items, [&](const AttentionItem& a, const AttentionItem& b) {
    const int32_t tiles_a = tiles_of_item(a, shape), tiles_b = tiles_of_item(b, shape);
    return tiles_a != tiles_b ? tiles_a > tiles_b : a.row < b.row;
  });
}

}  // namespace

void plan_attention(std::span<const SeqSlice> seqs, const AttentionShape& shape,
                    int64_t max_partials, AttentionPlan* plan) {
  plan->short_items.clear();
  plan->long_items.clear();
  plan->num_partials = 0;
  const int32_t short_rows = kShortRows / shape.part_heads();
  for (size_t i = 0; i < seqs.size(); ++i) {
    const auto sequence = static_cast<int32_t>(i);
    const bool is_short =
        seqs[i].num_rows <= short_rows && add_short(seqs[i], sequence, shape, max_partials, plan);
    if (!is_short) add_long(seqs[i], sequence, shape, plan);
  }
  sort_longest_first(shape, &plan->long_items);
}

}  // namespace headrace::cuda
