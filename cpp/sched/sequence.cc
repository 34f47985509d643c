#include "sched/sequence.h"

#include <algorithm>
#include <utility>

#include "base/checked_math.h"

namespace headrace {

Sequence::Sequence(SeqId id_in, SeqSpec spec_in, int32_t block_size_in)
    : id(id_in),
      spec(std::move(spec_in)),
      num_prompt(static_cast<int32_t>(spec.prompt.size())),
      block_size(block_size_in),
      tokens(std::move(spec.prompt)) {}

int32_t Sequence::blocks_ahead() const noexcept {
  // The last token of the output is never computed.
  const int64_t most = int64_t{num_prompt} + spec.max_tokens - 1;
  const int64_t ahead = std::min<int64_t>(most, int64_t{num_tokens()} + block_size);
  return static_cast<int32_t>(ceil_div<int64_t>(ahead, block_size));
}

SeqEnd Sequence::end_after_last_token() const {
  const std::span output = std::span(tokens).subspan(static_cast<size_t>(num_prompt));
  const auto count = static_cast<int32_t>(output.size());
  if (count >= spec.min_tokens) {
    if (std::ranges::binary_search(spec.end_tokens, output.back())) return SeqEnd::kStopToken;
    for (const std::vector<int32_t>& stop : spec.stop_sequences) {
      if (stop.size() <= output.size() && std::ranges::equal(output.last(stop.size()), stop)) {
        return SeqEnd::kStopSequence;
      }
    }
  }
  return count >= spec.max_tokens ? SeqEnd::kLength : SeqEnd::kNone;
}

}  // namespace headrace
