#include "engine/guess/mtp_drafter.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headrace::internal {

namespace {

void skip(UnreadRows& unread, int32_t position) {
  unread.rows.clear();
  unread.first = position;
}

}  // namespace

MtpDrafter::MtpDrafter(MtpRunner& runner, const Limits& limits) : runner_(runner), limits_(limits) {
  HEADRACE_CHECK(limits.most_unread >= 1 && limits.max_kept >= limits.most_unread,
                 limits.most_unread, " of ", limits.max_kept);
}

bool MtpDrafter::would_read(const UnreadRows& unread, int32_t first_position, size_t count) const {
  const size_t before = unread.end() == first_position ? unread.rows.size() : 0;
  return std::cmp_greater(before + count, limits_.most_unread);
}

bool MtpDrafter::has_kept(const UnreadRows& unread) const {
  return unread.rows.empty() ||
         unread.rows.front().kept + static_cast<uint64_t>(limits_.max_kept) >= num_kept_;
}

// Reading writes keys and values, each row by itself: the order doesn't matter. Rows of the step
// come first, as reading loses them.
int32_t MtpDrafter::take(std::span<const Computed> computed) {
  kept_rows_.clear();
  full_.clear();
  clear_batch();
  for (const Computed& rows : computed) {
    UnreadRows& unread = *rows.unread;
    if (unread.end() != rows.first_position || !has_kept(unread)) skip(unread, rows.first_position);
    size_t first = 0;
    if (would_read(unread, rows.first_position, rows.next_tokens.size())) {
      first = rows.next_tokens.size() - 1;  // the logits of the last one are the next guess
      if (!unread.rows.empty()) full_.push_back({rows, std::exchange(unread.rows, {})});
      add_computed(rows, first);
      unread.first = rows.first_position + static_cast<int32_t>(first);
    }
    for (size_t i = first; i < rows.next_tokens.size(); ++i) {
      unread.rows.push_back({num_kept_ + kept_rows_.size(), rows.next_tokens[i]});
      kept_rows_.push_back(rows.first_row + static_cast<int32_t>(i));
    }
  }
  keep_rows();
  const int32_t read = batch_.num_rows();
  if (read > 0) run(MtpInput::kStep);
  return read + read_full();
}

void MtpDrafter::keep_rows() {
  const std::span<const int32_t> rows = kept_rows_;
  const auto size = static_cast<uint64_t>(limits_.max_kept);
  HEADRACE_CHECK(rows.size() <= size, rows.size());
  const uint64_t at = num_kept_ % size;
  const size_t before_end = std::min<size_t>(rows.size(), size - at);
  num_kept_ += rows.size();
  if (before_end > 0) runner_.keep(rows.first(before_end), static_cast<int64_t>(at));
  if (before_end < rows.size()) runner_.keep(rows.subspan(before_end), 0);
}

/// Rows kept of requests that have too many of them.
int32_t MtpDrafter::read_full() {
  int32_t read = 0;
  clear_batch();
  for (const Full& full : full_) {
    const auto count = static_cast<int32_t>(full.rows.size());
    const UnreadRows unread{full.request.first_position - count, full.rows};
    if (!has_kept(unread) || count > limits_.max_rows) continue;
    if (batch_.num_rows() + count > limits_.max_rows) {
      run(MtpInput::kKept);
      clear_batch();
    }
    list_unread(unread);
    batch_.add(full.request.text, unread.first, next_tokens_);
    read += count;
  }
  if (!batch_.empty()) run(MtpInput::kKept);
  return read;
}

int32_t MtpDrafter::guess(std::span<const Request> requests) {
  const int32_t read = add_unread(requests);
  MtpInput input = MtpInput::kKept;
  while (!batch_.empty()) {
    const TensorView logits = run(input);
    batch_.draw([&](std::span<const SampleRow> rows, std::span<SampleResult> results) {
      runner_.sample(logits, rows, results);
    });
    input = MtpInput::kGuess;
    drawn_.assign(batch_.drawing().begin(), batch_.drawing().end());
    clear_batch();
    for (size_t i = 0; i < drawn_.size(); ++i) {
      const Request& request = *drawn_[i];
      const auto count = static_cast<int32_t>(request.guesses->size());
      if (count == request.most) continue;
      const auto position = static_cast<int32_t>(request.tokens.size()) + count - 2;
      batch_.add(request, position, std::span(*request.guesses).last(1), true);
      rows_.push_back(static_cast<int32_t>(i));
    }
  }
  return read;
}

/// All rows are as if others had taken their places, also those that were about to be kept.
void MtpDrafter::forget() {
  num_kept_ += static_cast<uint64_t>(limits_.max_kept) + kept_rows_.size() + 1;
}

int32_t MtpDrafter::add_unread(std::span<const Request> requests) {
  clear_batch();
  for (const Request& request : requests) {
    request.guesses->clear();
    UnreadRows& unread = *request.unread;
    const auto count = static_cast<int32_t>(unread.rows.size());
    const auto known = static_cast<int32_t>(request.tokens.size());
    if (count == 0 || unread.end() != known - 1 || !has_kept(unread) ||
        batch_.num_rows() + count > limits_.max_rows ||
        std::cmp_equal(batch_.drawing().size(), runner_.max_logit_rows())) {
      continue;
    }
    list_unread(unread);
    batch_.add(request, unread.first, next_tokens_, true);
    skip(unread, unread.end());
  }
  return batch_.num_rows();
}

void MtpDrafter::clear_batch() {
  batch_.clear();
  rows_.clear();
}

/// The first `count` rows of the step.
void MtpDrafter::add_computed(const Computed& computed, size_t count) {
  if (count == 0) return;
  for (size_t i = 0; i < count; ++i) {
    rows_.push_back(computed.first_row + static_cast<int32_t>(i));
  }
  batch_.add(computed.text, computed.first_position, computed.next_tokens.first(count));
}

/// Its rows' places in the ring, behind those of the batch, and their next tokens.
void MtpDrafter::list_unread(const UnreadRows& unread) {
  next_tokens_.clear();
  for (const UnreadRows::Row& row : unread.rows) {
    next_tokens_.push_back(row.next_token);
    rows_.push_back(static_cast<int32_t>(row.kept % static_cast<uint64_t>(limits_.max_kept)));
  }
}

TensorView MtpDrafter::run(MtpInput input) { return runner_.guess({batch_.step(), input, rows_}); }

}  // namespace headrace::internal
