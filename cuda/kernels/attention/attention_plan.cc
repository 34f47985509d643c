#include "cuda/kernels/attention/attention_plan.h"

#include <algorithm>
#include <utility>

namespace headrace::cuda {
namespace {

int32_t divide_up(int32_t a, int32_t b) { return (a + b - 1) / b; }

/// All rows from row `row` of the slice on that see the same way, over all keys from the first on
/// that the first of them sees.
AttentionItem item_at(const SeqSlice& seq, int32_t sequence, int32_t row,
                      const AttentionShape& shape) {
  const int32_t position = seq.start_pos + row;
  const SightRun sight = sight_at(seq, position);
  AttentionItem out{sequence, seq.first_row + row, sight.end - position, position,
                    seq.start_pos + seq.num_rows};
  out.first_split = first_key(position, shape.window) / kSplitKeys;
  out.seen = sight.seen;
  return out;
}

void add_long(const SeqSlice& seq, int32_t sequence, const AttentionShape& shape,
              AttentionPlan* plan) {
  const int32_t rows = shape.long_rows / shape.part_heads();
  for (int32_t r = 0; r < seq.num_rows;) {
    AttentionItem item = item_at(seq, sequence, r, shape);
    item.num_rows = std::min(rows, item.num_rows);
    item.end_split = divide_up(end_key(item, item.position + item.num_rows - 1, shape), kSplitKeys);
    plan->long_items.push_back(item);
    r += item.num_rows;
  }
}

/// Whether its rows see the same way, and its partial results fit. Kernels of short items take
/// what is ahead of an item's rows for what earlier steps wrote, so that it has all of a step's.
bool add_short(const SeqSlice& seq, int32_t sequence, const AttentionShape& shape,
               int64_t max_partials, AttentionPlan* plan) {
  AttentionItem item = item_at(seq, sequence, 0, shape);
  if (item.num_rows < seq.num_rows) return false;
  const int32_t first = item.first_split, last = item.position + item.num_rows - 1;
  const int32_t end = divide_up(end_key(item, last, shape), kSplitKeys);
  const bool alone = end - first == 1;
  if (!alone && int64_t{plan->num_partials} + end - first > max_partials) return false;
  for (int32_t split = first; split < end; ++split) {
    item.first_split = split;
    item.end_split = split + 1;
    item.partial = alone ? -1 : plan->num_partials++;
    plan->short_items.push_back(item);
  }
  return true;
}

uint32_t units_of(const AttentionShape& shape) {
  return static_cast<uint32_t>(shape.num_kv_heads * shape.parts());
}

/// Rows make the order, and so the list, the same every time.
void sort_longest_first(const AttentionShape& shape, std::span<AttentionItem> items) {
  std::ranges::sort(items, [&](const AttentionItem& a, const AttentionItem& b) {
    const int32_t tiles_a = tiles_of_item(a, shape), tiles_b = tiles_of_item(b, shape);
    return tiles_a != tiles_b ? tiles_a > tiles_b : a.row < b.row;
  });
}

void make_group(std::span<AttentionItem> items) {
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].ahead = static_cast<int32_t>(i);
    items[i].group_items = static_cast<int32_t>(items.size());
  }
}

/// From items in the order of rows, so that a sequence's lie together.
void group_sequences(const AttentionShape& shape, std::span<AttentionItem> items) {
  for (size_t begin = 0, end = 0; begin < items.size(); begin = end) {
    while (end < items.size() && items[end].sequence == items[begin].sequence) ++end;
    const std::span<AttentionItem> own = items.subspan(begin, end - begin);
    sort_longest_first(shape, own);
    make_group(own);
  }
}

/// In units of an even share of all tiles. Tiles that a block reads alone take longer: from an
/// H100's times of 8 prompts of 2,048 tokens, of which later ones say less (docs/lab).
double expected_time(std::span<const AttentionItem> items, const AttentionShape& shape) {
  constexpr double kAlone = 0.27;
  const AttentionBalance balance = attention_balance(items, shape);
  return balance.busiest * (1.0 + kAlone * balance.alone);
}

/// Three orders: the longest of all items first, with all heads of each; head by head through each
/// sequence; head by head through all of them. The first shares out best. In the others the blocks
/// that run beside each other read the same keys.
void order_long(const AttentionShape& shape, std::vector<AttentionItem>* items) {
  if (items->size() * units_of(shape) <= static_cast<size_t>(shape.blocks)) {  // all at once
    return sort_longest_first(shape, *items);
  }
  std::vector<AttentionItem> sequences = *items;
  sort_longest_first(shape, *items);
  std::vector<AttentionItem> all = *items;
  group_sequences(shape, sequences);
  make_group(all);
  double best = expected_time(*items, shape);
  for (std::vector<AttentionItem>* other : {&sequences, &all}) {
    const double time = expected_time(*other, shape);
    if (time >= best) continue;
    best = time;
    std::swap(*items, *other);
  }
}

}  // namespace

AttentionBalance attention_balance(std::span<const AttentionItem> long_items,
                                   const AttentionShape& shape) {
  const uint32_t units = units_of(shape);
  const uint32_t pieces = static_cast<uint32_t>(long_items.size()) * units;
  const uint32_t blocks = std::min(static_cast<uint32_t>(shape.blocks), pieces);
  if (pieces == 0) return {};
  int32_t sequences = 0;
  for (const AttentionItem& item : long_items) sequences = std::max(sequences, item.sequence + 1);
  /// The most tiles of a sequence's head that a round has read, for all of them.
  struct Read {
    uint32_t round = 0;
    int32_t tiles = 0;
  };
  std::vector<Read> reads(static_cast<size_t>(sequences) * units);
  std::vector<int64_t> busy(blocks);
  int64_t all = 0, alone = 0;
  for (uint32_t round = 0; round * blocks < pieces; ++round) {
    for (uint32_t block = 0; block < blocks; ++block) {
      const uint32_t p = piece_of_round(round, block, blocks);
      if (p >= pieces) continue;
      const PieceAt piece = piece_at(long_items.data(), p, units);
      const AttentionItem& item = long_items[piece.item];
      const int32_t tiles = tiles_of_item(item, shape);
      busy[block] += tiles;
      all += tiles;
      Read& read = reads[static_cast<size_t>(item.sequence) * units + piece.unit];
      if (read.round != round + 1) read = {round + 1, 0};
      alone += std::max(tiles - read.tiles, 0);
      read.tiles = std::max(tiles, read.tiles);
    }
  }
  const auto most = static_cast<double>(std::ranges::max(busy));
  return {most * blocks / static_cast<double>(all),
          static_cast<double>(alone) / static_cast<double>(all)};
}

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
  order_long(shape, &plan->long_items);
}

}  // namespace headrace::cuda
