#include "engine/replica/router.h"

#include <algorithm>
#include <utility>

namespace headrace::internal {

int64_t cacheable_columns(const SchedulerConfig& config) {
  return (int64_t{config.num_blocks} + config.num_host_blocks) /
         static_cast<int64_t>(config.windows.size());
}

Router::Router(const std::vector<int64_t>& num_columns, int32_t block_size, bool caches_prefixes)
    : block_size_(block_size), caches_prefixes_(caches_prefixes) {
  for (const int64_t columns : num_columns) {
    replicas_.push_back({std::make_shared<Workload>(0), PrefixTrace(static_cast<size_t>(columns))});
  }
}

std::optional<Router::Choice> Router::choose(const SeqSpec& spec,
                                             const std::function<bool(size_t)>& open) {
  std::vector<uint64_t> hashes;
  if (caches_prefixes_) hashes = prefix_hashes(spec, block_size_);
  const auto prompt_rows = static_cast<int64_t>(spec.prompt.size());
  const int64_t output_rows = std::min<int64_t>(spec.max_tokens, kExpectedOutput);

  const MutexLock lock(mutex_);
  std::optional<size_t> best;
  int64_t best_rows = 0, best_own = 0;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (!open(i)) continue;
    const size_t found = spec.read_prefix_cache ? replicas_[i].trace.match(hashes) : 0;
    // The last token of a prompt is always computed.
    const int64_t own =
        std::max<int64_t>(1, prompt_rows - static_cast<int64_t>(found) * block_size_);
    const int64_t rows = *replicas_[i].load + own;
    if (best && rows >= best_rows) continue;
    best = i;
    best_rows = rows;
    best_own = own;
  }
  if (!best) return std::nullopt;
  Known& replica = replicas_[*best];
  replica.trace.note(hashes);
  return Choice{*best, Booking(replica.load, best_own, output_rows)};
}

void Router::forget_prefixes() {
  const MutexLock lock(mutex_);
  for (Known& replica : replicas_) replica.trace.clear();
}

}  // namespace headrace::internal
