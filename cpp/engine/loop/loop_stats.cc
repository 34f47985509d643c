#include "engine/loop/loop_stats.h"

namespace headrace::internal {

void note_scheduler(const SchedulerStats& now, const SchedulerStats& start, ModelStats& out) {
  out.waiting_requests = now.waiting;
  out.running_requests = now.running;
  out.total_kv_blocks = now.total_blocks;
  out.free_kv_blocks = now.free_blocks;
  out.cached_kv_blocks = now.cached_blocks;
  out.cached_host_kv_blocks = now.cached_host_blocks;
  out.total_state_slots = now.state_slots;
  out.cached_state_slots = now.snapshots;
  out.free_state_slots = now.free_state_slots;
  out.cached_host_state_slots = now.host_snapshots;
  out.snapshots_saved = now.snapshots_written - start.snapshots_written;
  out.snapshots_evicted = now.snapshots_evicted - start.snapshots_evicted;
  out.snapshots_restored = now.snapshots_restored - start.snapshots_restored;
  out.prefix_unused_tokens = (now.prefix_found_tokens - now.prefix_hit_tokens) -
                             (start.prefix_found_tokens - start.prefix_hit_tokens);
  out.preemptions = now.preemptions - start.preemptions;
  out.interruptions = now.interruptions - start.interruptions;
  out.prefix_hit_tokens = now.prefix_hit_tokens - start.prefix_hit_tokens;
  out.prefix_miss_tokens = now.prefix_miss_tokens - start.prefix_miss_tokens;
  out.prefix_host_hit_tokens = now.prefix_host_hit_tokens - start.prefix_host_hit_tokens;
  out.kv_blocks_to_host = now.moved_to_host - start.moved_to_host;
  out.kv_blocks_from_host = now.moved_from_host - start.moved_from_host;
}

}  // namespace headrace::internal
