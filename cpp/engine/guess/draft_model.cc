#include "engine/guess/draft_model.h"

#include <algorithm>
#include <utility>

namespace headrace::internal {

namespace {

uint64_t extend(uint64_t hash, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    hash = (hash ^ (static_cast<uint32_t>(token) + 1)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

std::span<const int32_t> part(std::span<const int32_t> tokens, int32_t first, int32_t end) {
  return tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
}

}  // namespace

DraftModel::DraftModel(std::unique_ptr<StepRunner> runner, const Limits& limits)
    : runner_(std::move(runner)), limits_(limits), tags_(static_cast<size_t>(limits.num_blocks)) {}

/// Known tokens whose keys and values are there; never the last, whose logits are wanted.
int32_t DraftModel::find_computed(const Request& request) const {
  const auto known = static_cast<int32_t>(request.tokens.size());
  uint64_t hash = 0;
  int32_t computed = 0;
  for (const int32_t block : request.text.blocks[0]) {
    const Tag& tag = tags_[static_cast<size_t>(block)];
    const int32_t end = computed + tag.filled;
    if (tag.filled == 0 || end > known) break;
    hash = extend(hash, part(request.tokens, computed, end));
    if (hash != tag.hash) break;
    computed = end;
    if (tag.filled < limits_.block_size) break;
  }
  return std::min(computed, known - 1);
}

/// Positions [first, end) of known tokens are about to be computed.
void DraftModel::tag(const Request& request, int32_t first, int32_t end) {
  const int32_t size = limits_.block_size;
  const auto begin = first / size * size;
  uint64_t hash = extend(0, part(request.tokens, 0, begin));
  for (int32_t start = begin; start < static_cast<int32_t>(request.text.blocks.size()) * size;
       start += size) {
    Tag& tag =
        tags_[static_cast<size_t>(request.text.blocks[0][static_cast<size_t>(start / size)])];
    const int32_t stop = std::min(start + size, end);
    if (stop <= start) {
      tag = {};  // guesses may be written there
      continue;
    }
    hash = extend(hash, part(request.tokens, start, stop));
    tag = {hash, stop - start};
  }
}

int32_t DraftModel::guess(std::span<const Request> requests) {
  const int32_t read = read_known(requests);
  while (!batch_.empty()) {
    draw();
    const std::vector<const Request*> drawn(batch_.drawing().begin(), batch_.drawing().end());
    batch_.clear();
    for (const Request* request : drawn) {
      const auto count = static_cast<int32_t>(request->guesses->size());
      if (count == request->most) continue;
      const auto position = static_cast<int32_t>(request->tokens.size()) + count - 1;
      batch_.add(*request, position, std::span(*request->guesses).last(1), true);
    }
  }
  return read;
}

void DraftModel::forget() { std::fill(tags_.begin(), tags_.end(), Tag{}); }

/// The batch of what is known but not computed yet, as far as there is room.
int32_t DraftModel::read_known(std::span<const Request> requests) {
  batch_.clear();
  int32_t rows_left = limits_.max_rows;
  for (const Request& request : requests) {
    request.guesses->clear();
    const auto known = static_cast<int32_t>(request.tokens.size());
    const int32_t first = find_computed(request);
    const int32_t end = std::min(known, first + rows_left);
    const bool has_logits = std::cmp_less(batch_.drawing().size(), runner_->max_logit_rows());
    if (end <= first || (end == known && !has_logits)) continue;
    tag(request, first, end);
    *request.read = end;
    batch_.add(request, first, part(request.tokens, first, end), end == known);
    rows_left -= end - first;
  }
  return limits_.max_rows - rows_left;
}

void DraftModel::draw() {
  const TensorView logits = runner_->forward(batch_.step(), {});
  batch_.draw([&](std::span<const SampleRow> rows, std::span<SampleResult> results) {
    runner_->sample(logits, rows, results);
  });
}

}  // namespace headrace::internal
