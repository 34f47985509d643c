#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv/kv_groups.h"

namespace headrace::internal {

/// What a model asks for, in bytes and tokens. 0 of an option means: choose.
struct MemoryRequest {
  size_t free_bytes = 0;      ///< of the device, before the model is loaded
  size_t promised_bytes = 0;  ///< of these, what other models of this process have, but not touched
  size_t total_bytes = 0;     ///< of the device
  double utilization = 0.9;   ///< share of what is free that the model may take
  /// Replicas that are still to be loaded into the memory, this one among them, and those that
  /// have been: each may take as much of what the first one found.
  int32_t sharers = 1, sharers_before = 0;
  /// Devices and replicas that host blocks are still to be taken for, where nobody knows it of the
  /// others.
  int32_t host_sharers = 1;
  double total_ratio = 0;  ///< > 0: instead, of what is there but `leftover_bytes`
  size_t leftover_bytes = 0;
  size_t weight_bytes = 0;  ///< packed
  size_t scratch_bytes = 0;
  size_t lora_bytes = 0;   ///< set aside for adapters
  size_t media_bytes = 0;  ///< likewise for the encoder cache
  /// > 0: what the device has given for weights, scratch and the largest steps, instead of the two
  /// above; free_now is what it has left then.
  size_t taken_bytes = 0;
  size_t free_now = 0;
  size_t block_bytes = 0;            ///< of one KV block
  KvGroups groups;                   ///< of the cache
  size_t state_slot_bytes = 0;       ///< of a slot, or a host slot; 0: the model has no states
  int32_t draft_slots = 0;           ///< that a sequence may have beside its own: its most drafts
  bool keeps_snapshots = false;      ///< the prefix cache is on
  int32_t snapshot_interval = 2048;  ///< SchedulerConfig's
  int32_t num_state_slots = 0;       ///< option
  int32_t max_num_seqs = 64;
  int32_t model_max_len = 0;    ///< the model's max_position_embeddings
  int32_t max_model_len = 0;    ///< option
  int32_t num_kv_blocks = 0;    ///< option
  size_t kv_cache_bytes = 0;    ///< option
  double swap_space = 0;        ///< option: GiB of main memory for host blocks and slots
  size_t host_block_bytes = 0;  ///< of one of them
  size_t host_free_bytes = 0;   ///< of main memory
  bool device_is_host = true;   ///< main memory is the device's: host blocks are in the budget
};

struct MemoryPlan {
  int32_t num_kv_blocks = 0;
  int32_t num_host_blocks = 0;
  int32_t num_state_slots = 0;
  int32_t num_host_state_slots = 0;
  int32_t max_model_len = 0;
};

/// Divides the memory. Of a model with states, each of max_num_seqs sequences has its slot, and one
/// of them slots for its drafts. Of what they leave, snapshots and the others' drafts get half, or
/// what blocks can't use, but no more than are of use, and blocks the rest. Where the size of the
/// KV cache is an option, they get no more bytes than it has. swap_space is shared likewise. Throws
/// Error(kOutOfMemory) when the budget, or main memory, can't hold what was asked for, and
/// Error(kLimitExceeded) when max_model_len is larger than a KV cache of the given size, swap_space
/// smaller than a block, or num_state_slots too few for the sequences; all name the numbers and the
/// remedy.
MemoryPlan plan_memory(const MemoryRequest& request);

/// What several devices ask for as one request, of those that have their memory in common.
MemoryRequest sum_of(const std::vector<MemoryRequest>& requests);

/// Divides the memory of devices that compute a model together: each has a part of every block and
/// slot, so that there are as many as the tightest one holds. Throws likewise.
MemoryPlan plan_ranks(const std::vector<MemoryRequest>& requests);

}  // namespace headrace::internal
