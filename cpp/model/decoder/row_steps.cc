#include "model/decoder/row_steps.h"

#include <cstddef>

#include "base/check.h"

namespace headrace {

RowSteps::RowSteps(int32_t max_rows) {
  const auto most = static_cast<size_t>(max_rows);
  for (std::vector<int32_t>* list : {&token_ids_, &positions_, &rope_lens_}) list->reserve(most);
  rope_positions_.reserve(3 * most);
  seqs_.reserve(most);
}

StepBatch RowSteps::choose(std::span<const int32_t> rows) {
  StepBatch out = step_;
  out.room = 0;
  out.draws = {};
  if (rows.size() == step_.positions.size()) return out;
  for (std::vector<int32_t>* list : {&token_ids_, &positions_, &rope_lens_, &rope_positions_}) {
    list->clear();
  }
  seqs_.clear();
  size_t seq = 0;
  for (const int32_t row : rows) {
    while (row >= step_.seqs[seq].first_row + step_.seqs[seq].num_rows) ++seq;
    const SeqSlice& from = step_.seqs[seq];
    const auto index = static_cast<size_t>(row);
    SeqSlice& one = seqs_.emplace_back(from);
    one.first_row = static_cast<int32_t>(positions_.size());
    one.num_rows = 1;
    one.start_pos = from.start_pos + row - from.first_row;
    token_ids_.push_back(0);
    positions_.push_back(step_.positions[index]);
    rope_lens_.push_back(step_.rope_lens[index]);
  }
  for (size_t axis = 0; axis < 3 && !step_.rope_positions.empty(); ++axis) {
    const auto all = step_.rope_positions.subspan(axis * step_.positions.size());
    for (const int32_t row : rows) rope_positions_.push_back(all[static_cast<size_t>(row)]);
  }
  out.token_ids = token_ids_;
  out.positions = positions_;
  out.rope_lens = rope_lens_;
  out.rope_positions = rope_positions_;
  out.seqs = seqs_;
  out.logit_rows = {};
  out.drawn = {};
  out.given = {};
  out.modalities = {};
  return out;
}

}  // namespace headrace
