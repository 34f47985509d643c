#include "engine/load/memory_plan.h"

#include <algorithm>
#include <iomanip>
#include <limits>
#include <sstream>
#include <string>

#include "base/check.h"
#include "base/checked_math.h"
#include "memory/raw_allocator.h"

namespace headrace::internal {

namespace {

/// Page-locked memory is lost to everyone else.
constexpr double kMostOfHost = 0.9;

std::string megabytes(size_t bytes) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << static_cast<double>(bytes) / (1 << 20) << " MiB";
  return out.str();
}

size_t less(size_t bytes, size_t taken) { return bytes - std::min(bytes, taken); }

size_t free_bytes(const MemoryRequest& request) {
  return less(request.free_bytes, request.promised_bytes);
}

// Of what was free in the beginning, F, and n replicas each may take u * F / n. The b before have
// done so at most, so that F * (1 - b * u / n) is free now.
size_t total_budget(const MemoryRequest& request) {
  const int32_t all = request.sharers + request.sharers_before;
  if (request.total_ratio > 0) {
    const size_t whole = memory_budget({request.total_bytes, request.total_bytes},
                                       {request.total_ratio, request.leftover_bytes, 0});
    return std::min(whole / static_cast<size_t>(all),
                    free_bytes(request) / static_cast<size_t>(request.sharers));
  }
  const double u = request.utilization;
  return static_cast<size_t>(u * static_cast<double>(free_bytes(request)) /
                             (all - request.sharers_before * u));
}

std::string describe_budget(const MemoryRequest& request) {
  std::string others;
  if (const int32_t all = request.sharers + request.sharers_before; all > 1) {
    others = str_cat(", for ", all, " replicas");
    if (request.sharers < all) {
      others += str_cat(", of which ", request.sharers_before, " have been loaded");
    }
  }
  if (request.promised_bytes > 0) {
    others += str_cat(", without the ", megabytes(request.promised_bytes),
                      " that other models of this process may still fill (give them a smaller "
                      "kv_cache_bytes)");
  }
  if (request.total_ratio > 0) {
    return str_cat("total_memory_ratio ", request.total_ratio, " of ",
                   megabytes(request.total_bytes), " less ", megabytes(request.leftover_bytes),
                   ", as far as it is free: ", megabytes(free_bytes(request)), others);
  }
  return str_cat("memory_utilization ", request.utilization, " of ", megabytes(free_bytes(request)),
                 " free", others);
}

const char* share_option(const MemoryRequest& request) {
  return request.total_ratio > 0 ? "total_memory_ratio" : "memory_utilization";
}

// The driver takes memory for kernels and recorded steps, too, after the cache has been made.
size_t headroom(const MemoryRequest& request) {
  return std::min(request.total_bytes / 64, size_t{512} << 20);
}

size_t measured_budget_for_kv(const MemoryRequest& request) {
  const size_t budget = total_budget(request);
  const size_t promised = request.lora_bytes + request.media_bytes;
  const size_t fixed = request.taken_bytes + promised;
  const size_t spared = headroom(request) + promised;
  const size_t left = std::min(less(budget, fixed), less(request.free_now, spared));
  if (left < request.block_bytes) {
    throw_error(ErrorCode::kOutOfMemory, "the model has taken ", megabytes(request.taken_bytes),
                " for weights, scratch and its largest steps, and sets ",
                megabytes(request.lora_bytes), " aside for adapters and ",
                megabytes(request.media_bytes), " for encoded images; of the ", megabytes(budget),
                " that it may take (", describe_budget(request), ") and the ",
                megabytes(request.free_now), " that are free, a KV cache of at least ",
                megabytes(request.block_bytes), " doesn't fit: lower max_num_batched_tokens, ",
                "max_num_seqs or max_model_len, free memory or raise ", share_option(request), ".");
  }
  return left;
}

int32_t to_blocks(size_t blocks) {
  return static_cast<int32_t>(
      std::min<size_t>(blocks, static_cast<size_t>(std::numeric_limits<int32_t>::max())));
}

// Snapshots that are of use beside so many blocks: one each interval, and some of each sequence at
// the ends of prompts and where they part.
size_t useful_snapshots(const MemoryRequest& request, size_t blocks) {
  constexpr size_t kEach = 4;
  if (request.state_slot_bytes == 0 || !request.keeps_snapshots) return 0;
  return blocks * static_cast<size_t>(request.groups.block_size) /
             static_cast<size_t>(request.snapshot_interval) +
         kEach * static_cast<size_t>(request.max_num_seqs);
}

size_t slot_bytes(const MemoryRequest& request, int32_t slots) {
  return static_cast<size_t>(slots) * request.state_slot_bytes;
}

// Blocks and slots.
void plan_host(const MemoryRequest& request, MemoryPlan& plan) {
  if (request.swap_space <= 0) return;
  const auto bytes = static_cast<size_t>(request.swap_space * static_cast<double>(1 << 30));
  const size_t free = request.host_free_bytes / static_cast<size_t>(request.host_sharers);
  const auto most = static_cast<size_t>(kMostOfHost * static_cast<double>(free));
  if (bytes > most) {
    const std::string each =
        request.host_sharers > 1
            ? str_cat(" for each of the ", request.host_sharers, " devices or replicas")
            : "";
    throw_error(ErrorCode::kOutOfMemory, "swap_space is ", request.swap_space, " GiB", each,
                ", but it may take no more than ", megabytes(most), ", nine tenths of the ",
                megabytes(free), " of main memory that are free", each,
                ": lower it or free memory.");
  }
  if (bytes < request.host_block_bytes) {
    throw_error(ErrorCode::kLimitExceeded, "swap_space is ", request.swap_space,
                " GiB, less than one KV block of ", request.host_block_bytes,
                " bytes: raise it, lower block_size, or set it to 0 (off).");
  }
  const size_t useful = useful_snapshots(request, bytes / request.host_block_bytes);
  if (useful > 0) {
    const size_t most_slots = bytes / 2 / request.state_slot_bytes;
    plan.num_host_state_slots = to_blocks(std::min(useful, most_slots));
  }
  const size_t left = bytes - slot_bytes(request, plan.num_host_state_slots);
  plan.num_host_blocks = to_blocks(left / request.host_block_bytes);
}

size_t budget_for_kv(const MemoryRequest& request, const MemoryPlan& plan) {
  if (request.taken_bytes > 0) return measured_budget_for_kv(request);
  const size_t budget = total_budget(request);
  const size_t host_bytes =
      request.device_is_host
          ? static_cast<size_t>(plan.num_host_blocks) * request.host_block_bytes +
                slot_bytes(request, plan.num_host_state_slots)
          : 0;
  const size_t fixed = request.weight_bytes + request.scratch_bytes + request.lora_bytes +
                       request.media_bytes + host_bytes;
  if (fixed >= budget || budget - fixed < request.block_bytes) {
    throw_error(ErrorCode::kOutOfMemory, "the model needs ", megabytes(request.weight_bytes),
                " for weights, ", megabytes(request.scratch_bytes), " for scratch, ",
                megabytes(request.lora_bytes), " for adapters, ", megabytes(request.media_bytes),
                " for encoded images (encoder_cache_bytes), ", megabytes(host_bytes),
                " for swap_space and at least ", megabytes(request.block_bytes),
                " for its KV cache, but may take ", megabytes(budget), " (",
                describe_budget(request), "): free memory, raise ", share_option(request),
                host_bytes > 0 ? " or lower swap_space." : " or lower max_num_batched_tokens.");
  }
  return budget - fixed;
}

// Slots of running sequences and of one's drafts, or those that are asked for.
int32_t least_slots(const MemoryRequest& request) {
  if (request.state_slot_bytes == 0) return 0;
  const int32_t least = request.max_num_seqs + request.draft_slots;
  if (request.num_state_slots == 0) return least;
  if (request.num_state_slots < least) {
    const std::string drafts = request.draft_slots == 0 ? ""
                                                        : str_cat(" and one's guessed tokens ",
                                                                  request.draft_slots, " more");
    throw_error(ErrorCode::kLimitExceeded, "num_state_slots is ", request.num_state_slots,
                ", but max_num_seqs ", request.max_num_seqs, " sequences need one each", drafts,
                ", which are ", least, ": raise it, lower max_num_seqs",
                request.draft_slots == 0 ? "." : " or guess fewer tokens.");
  }
  return request.num_state_slots;
}

size_t budget_behind_slots(const MemoryRequest& request, size_t budget, int32_t slots) {
  if (slots == 0) return budget;
  const auto bytes = checked_mul(static_cast<uint64_t>(slots), request.state_slot_bytes);
  if (!bytes || *bytes > budget - request.block_bytes) {
    throw_error(ErrorCode::kOutOfMemory, "the states of ", request.max_num_seqs,
                " sequences (max_num_seqs), and of ", request.draft_slots, " guessed tokens, need ",
                slots, " slots of ", megabytes(request.state_slot_bytes), " (",
                megabytes(bytes.value_or(std::numeric_limits<size_t>::max())),
                "), and a KV cache at least ", megabytes(request.block_bytes), ", but ",
                megabytes(budget), " are left for both (", describe_budget(request), "): lower ",
                request.num_state_slots > 0 ? "num_state_slots" : "max_num_seqs",
                ", free memory or raise ", share_option(request), ".");
  }
  return budget - *bytes;
}

int32_t requested_blocks(const MemoryRequest& request, size_t budget) {
  const size_t blocks = request.num_kv_blocks > 0 ? static_cast<size_t>(request.num_kv_blocks)
                                                  : request.kv_cache_bytes / request.block_bytes;
  if (blocks == 0) {
    throw_error(ErrorCode::kLimitExceeded, "kv_cache_bytes is ", request.kv_cache_bytes,
                ", less than one KV block of ", request.block_bytes,
                " bytes: raise it or lower block_size.");
  }
  const auto bytes = checked_mul(static_cast<uint64_t>(to_blocks(blocks)), request.block_bytes);
  if (!bytes || *bytes > budget) {
    throw_error(ErrorCode::kOutOfMemory, "a KV cache of ", to_blocks(blocks), " blocks (",
                megabytes(bytes.value_or(std::numeric_limits<size_t>::max())), ") exceeds the ",
                megabytes(budget), " that ", share_option(request),
                " leaves for it: lower num_kv_blocks or kv_cache_bytes, or raise ",
                share_option(request), ".");
  }
  return to_blocks(blocks);
}

// For snapshots, and drafts of all sequences: beside the most blocks that there may be, of what the
// least slots leave of the budget.
int32_t more_slots(const MemoryRequest& request, size_t budget, int32_t blocks, bool by_option) {
  const size_t drafts = request.state_slot_bytes == 0
                            ? 0
                            : static_cast<size_t>(request.draft_slots) *
                                  static_cast<size_t>(request.max_num_seqs - 1);
  const size_t useful = useful_snapshots(request, static_cast<size_t>(blocks)) + drafts;
  if (useful == 0) return 0;
  const size_t all_blocks = static_cast<size_t>(blocks) * request.block_bytes;
  size_t bytes = std::max(budget / 2, budget - all_blocks);
  if (by_option) {
    bytes = std::min(budget - all_blocks, all_blocks);
  } else {
    const int64_t longest = request.groups.most_blocks(std::max(1, request.max_model_len));
    bytes = std::min(bytes, less(budget, static_cast<size_t>(longest) * request.block_bytes));
  }
  return to_blocks(std::min(useful, bytes / request.state_slot_bytes));
}

// Blocks that max_num_seqs sequences of full length can use.
size_t useful_blocks(const MemoryRequest& request, int32_t max_model_len) {
  return static_cast<size_t>(request.max_num_seqs) *
         static_cast<size_t>(request.groups.most_blocks(max_model_len));
}

[[noreturn]] void refuse_length(const MemoryRequest& request, int32_t blocks, int64_t tokens,
                                bool by_option) {
  throw_error(by_option ? ErrorCode::kLimitExceeded : ErrorCode::kOutOfMemory, "max_model_len ",
              request.max_model_len, " needs a KV cache of ",
              request.groups.most_blocks(request.max_model_len), " blocks, but ",
              by_option ? "the one asked for" : "the one that fits the memory", " has ", blocks,
              ", which hold ", tokens, " tokens",
              by_option ? ": raise kv_cache_bytes or num_kv_blocks, or lower max_model_len."
                        : str_cat(": lower max_model_len, raise ", share_option(request),
                                  " or free memory."));
}

}  // namespace

MemoryPlan plan_memory(const MemoryRequest& request) {
  MemoryPlan plan;
  plan_host(request, plan);
  plan.num_state_slots = least_slots(request);
  const size_t budget =
      budget_behind_slots(request, budget_for_kv(request, plan), plan.num_state_slots);
  const bool by_option = request.num_kv_blocks > 0 || request.kv_cache_bytes > 0;
  const int32_t wanted_len =
      request.max_model_len > 0 ? request.max_model_len : request.model_max_len;
  plan.num_kv_blocks =
      by_option
          ? requested_blocks(request, budget)
          : to_blocks(std::min(useful_blocks(request, wanted_len), budget / request.block_bytes));
  if (request.num_state_slots == 0) {
    const int32_t more = more_slots(request, budget, plan.num_kv_blocks, by_option);
    plan.num_state_slots =
        to_blocks(static_cast<size_t>(plan.num_state_slots) + static_cast<size_t>(more));
    const size_t left = budget - slot_bytes(request, more);
    plan.num_kv_blocks = std::min(plan.num_kv_blocks, to_blocks(left / request.block_bytes));
  }

  // Both together are counted in an int32.
  plan.num_host_blocks =
      std::min(plan.num_host_blocks, std::numeric_limits<int32_t>::max() - plan.num_kv_blocks);
  const int64_t tokens = request.groups.most_tokens(plan.num_kv_blocks);
  if (request.max_model_len > tokens) {
    refuse_length(request, plan.num_kv_blocks, tokens, by_option);
  }
  plan.max_model_len = static_cast<int32_t>(std::min<int64_t>(wanted_len, tokens));
  return plan;
}

MemoryRequest sum_of(const std::vector<MemoryRequest>& requests) {
  MemoryRequest out = requests.front();
  for (size_t i = 1; i < requests.size(); ++i) {
    const MemoryRequest& other = requests[i];
    out.weight_bytes += other.weight_bytes;
    out.scratch_bytes += other.scratch_bytes;
    out.lora_bytes += other.lora_bytes;
    out.media_bytes += other.media_bytes;
    out.block_bytes += other.block_bytes;
    out.host_block_bytes += other.host_block_bytes;
    out.state_slot_bytes += other.state_slot_bytes;
    out.kv_cache_bytes += other.kv_cache_bytes;
    out.swap_space += other.swap_space;
  }
  return out;
}

MemoryPlan plan_ranks(const std::vector<MemoryRequest>& requests) {
  if (requests.front().device_is_host) return plan_memory(sum_of(requests));
  MemoryPlan out = plan_memory(requests.front());
  for (size_t i = 1; i < requests.size(); ++i) {
    const MemoryPlan other = plan_memory(requests[i]);
    out.num_kv_blocks = std::min(out.num_kv_blocks, other.num_kv_blocks);
    out.num_host_blocks = std::min(out.num_host_blocks, other.num_host_blocks);
    out.num_state_slots = std::min(out.num_state_slots, other.num_state_slots);
    out.num_host_state_slots = std::min(out.num_host_state_slots, other.num_host_state_slots);
    out.max_model_len = std::min(out.max_model_len, other.max_model_len);
  }
  return out;
}

}  // namespace headrace::internal
