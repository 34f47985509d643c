#include "engine/guess/drafter.h"

#include <algorithm>

namespace headrace::internal {

void GuessBatch::clear() {
  for (auto* rows : {&token_ids_, &positions_, &rope_lens_, &logit_rows_}) rows->clear();
  for (auto& axis : rope_axes_) axis.clear();
  has_axes_ = false;
  slices_.clear();
  drawing_.clear();
}

void GuessBatch::add(const Drafter::Request& request, int32_t first,
                     std::span<const int32_t> tokens, bool draws) {
  add(request.text, first, tokens);
  if (!draws) return;
  logit_rows_.push_back(num_rows() - 1);
  drawing_.push_back(&request);
}

void GuessBatch::add(const GuessText& text, int32_t first, std::span<const int32_t> tokens) {
  slices_.push_back({num_rows(), static_cast<int32_t>(tokens.size()), first, text.blocks});
  for (const int32_t token : tokens) {
    std::array<int32_t, 3> axes = {first, first, first};
    if (text.rope != nullptr) {
      axes = text.rope->at(first);
      has_axes_ = true;
    }
    for (size_t i = 0; i < axes.size(); ++i) rope_axes_[i].push_back(axes[i]);
    token_ids_.push_back(token);
    positions_.push_back(first++);
    rope_lens_.push_back(std::max(text.num_prompt_tokens, first));
  }
}

StepBatch GuessBatch::step() {
  StepBatch out{token_ids_, positions_, rope_lens_, slices_, logit_rows_};
  if (!has_axes_) return out;
  rope_positions_.clear();
  for (const auto& axis : rope_axes_) {
    rope_positions_.insert(rope_positions_.end(), axis.begin(), axis.end());
  }
  out.rope_positions = rope_positions_;
  return out;
}

void GuessBatch::draw(const Sample& sample) {
  if (drawing_.empty()) return;
  sample_rows_.clear();
  for (const Drafter::Request* request : drawing_) {
    const auto ahead = static_cast<int32_t>(request->guesses->size());
    sample_rows_.push_back(
        request->sampler->guess_row(static_cast<int32_t>(sample_rows_.size()), ahead));
  }
  if (results_.size() < drawing_.size()) results_.resize(drawing_.size());
  sample(sample_rows_, std::span(results_).first(drawing_.size()));
  for (size_t i = 0; i < drawing_.size(); ++i) drawing_[i]->guesses->push_back(results_[i].token);
}

}  // namespace headrace::internal
