#include "sched/sequence.h"

#include <algorithm>
#include <utility>

#include "base/checked_math.h"

namespace headrace {

Sequence::Sequence(SeqId id_in, SeqSpec spec_in, const KvGroups& groups_in,
                   const SchedulerConfig& config)
    : id(id_in),
      spec(std::move(spec_in)),
      num_prompt(static_cast<int32_t>(spec.prompt.size())),
      groups(groups_in),
      block_size(groups_in.block_size),
      has_state(config.num_state_slots > 0),
      snapshot_interval(config.snapshot_interval),
      tokens(std::move(spec.prompt)),
      blocks(groups_in.size()),
      ready_until(spec.ready_until) {}

int32_t Sequence::least_end() const noexcept {
  const int32_t next = next_position();
  if (!spec.whole_items) return next + 1;
  const auto at = static_cast<size_t>(next);
  const auto items = spec.identity.media_in(at, at + 1);
  return items.empty() ? next + 1 : items.front().last;
}

int32_t Sequence::uncut_end(int32_t end) const noexcept {
  if (!spec.whole_items || end <= 0) return end;
  const auto last = static_cast<size_t>(end) - 1;
  const auto items = spec.identity.media_in(last, last + 1);
  if (items.empty() || items.front().last == end) return end;
  return std::max(items.front().first, next_position());
}

int32_t Sequence::lacking_columns() const noexcept {
  return std::max(0, ceil_div(least_end(), block_size) - num_columns());
}

int32_t Sequence::columns_ahead() const noexcept {
  // The last token of the output is never computed.
  const int64_t most = int64_t{num_prompt} + std::max(spec.max_tokens, 1) - 1;
  const int64_t ahead = std::min<int64_t>(most, int64_t{length()} + block_size);
  return static_cast<int32_t>(ceil_div<int64_t>(ahead, block_size));
}

int32_t Sequence::blocks_wanted(int32_t computed_tokens, int32_t taken) const noexcept {
  const int32_t columns = columns_ahead();
  int64_t wanted = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const int64_t most = groups.held_columns(g, columns, length() - computed_tokens);
    wanted += std::max<int64_t>(0, most - blocks.held(g) - taken);
  }
  return static_cast<int32_t>(wanted);
}

int32_t Sequence::last_snapshot(int32_t end) const noexcept {
  int32_t last = end / snapshot_interval * snapshot_interval;
  // Not behind the whole prompt: the same prompt could not begin there.
  const int32_t prompt_end = (num_prompt - 1) / block_size * block_size;
  for (const int32_t position : {prompt_end, branch}) {
    if (position <= end) last = std::max(last, position);
  }
  return last;
}

int32_t Sequence::ending_sequence(int32_t output_count) const {
  if (output_count < spec.min_tokens && !spec.stop_sequences_anywhere) return -1;
  const int32_t first = spec.stop_sequences_anywhere ? 0 : num_prompt;
  const std::span text = std::span(tokens).subspan(static_cast<size_t>(first));
  const auto& stops = spec.stop_sequences;
  const auto found = std::ranges::find_if(stops, [&](const std::vector<int32_t>& stop) {
    return stop.size() <= text.size() && std::ranges::equal(text.last(stop.size()), stop);
  });
  return found == stops.end() ? -1 : static_cast<int32_t>(found - stops.begin());
}

Sequence::Ending Sequence::end_after_last_token() const {
  const int32_t count = num_tokens() - num_prompt;
  if (count >= spec.min_tokens && std::ranges::binary_search(spec.end_tokens, tokens.back())) {
    return {.end = SeqEnd::kStopToken};
  }
  const int32_t stop = ending_sequence(count);
  if (stop >= 0) return {.end = SeqEnd::kStopSequence, .stop_sequence = stop};
  return {.end = count >= spec.max_tokens ? SeqEnd::kLength : SeqEnd::kNone};
}

}  // namespace headrace
