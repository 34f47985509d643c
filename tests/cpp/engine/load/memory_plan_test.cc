#include "engine/load/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cpp/engine/expect_error.h"
#include "headrace/status.h"

namespace headrace::internal {
namespace {

constexpr size_t kMiB = 1 << 20;

MemoryRequest base() {
  MemoryRequest request;
  request.free_bytes = 1000 * kMiB;
  request.utilization = 0.5;
  request.weight_bytes = 100 * kMiB;
  request.scratch_bytes = 100 * kMiB;
  request.block_bytes = kMiB;
  request.groups.block_size = 64;
  request.max_num_seqs = 4;
  request.model_max_len = 1000;
  return request;
}

std::string refusal(const MemoryRequest& request, ErrorCode code) {
  try {
    plan_memory(request);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "was accepted";
  return "";
}

void expect_mentions(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
}

TEST(MemoryPlan, TakesWhatTheSequencesCanUse) {
  const MemoryPlan plan = plan_memory(base());
  EXPECT_EQ(plan.num_kv_blocks, 4 * 16) << "4 sequences of 1000 tokens in blocks of 64";
  EXPECT_EQ(plan.max_model_len, 1000);
}

TEST(MemoryPlan, TakesNoMoreThanTheBudget) {
  MemoryRequest request = base();
  request.max_num_seqs = 64;
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 300);
  request.model_max_len = 1 << 20;
  const MemoryPlan plan = plan_memory(request);
  EXPECT_EQ(plan.num_kv_blocks, 300);
  EXPECT_EQ(plan.max_model_len, 300 * 64) << "as far as the cache goes";
}

TEST(MemoryPlan, WhatOtherModelsMayStillFillIsNotFree) {
  MemoryRequest request = base();
  request.max_num_seqs = 64;
  request.promised_bytes = 400 * kMiB;
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 100) << "half of 600, less 200";
  request.promised_bytes = 2000 * kMiB;
  expect_mentions(refusal(request, ErrorCode::kOutOfMemory),
                  {"0.5 of 0.0 MiB free", "2000.0 MiB that other models", "kv_cache_bytes"});
}

TEST(MemoryPlan, WhatHasBeenTakenCounts) {
  MemoryRequest request = base();
  request.max_num_seqs = 64;
  request.total_bytes = 6400 * kMiB;  // of which 100 are kept free
  request.taken_bytes = 320 * kMiB;
  request.free_now = 600 * kMiB;
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 180);
  request.free_now = 150 * kMiB;
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 50) << "another process has taken the rest";
  request.lora_bytes = 20 * kMiB;
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 30);
  request.free_now = 100 * kMiB;
  expect_mentions(refusal(request, ErrorCode::kOutOfMemory),
                  {"320.0 MiB", "20.0 MiB aside", "500.0 MiB", "max_num_batched_tokens"});
}

TEST(MemoryPlan, HostBlocksOfAGpuTakeNothingOfItsMemory) {
  MemoryRequest request = base();
  request.max_num_seqs = 64;
  request.device_is_host = false;
  request.host_free_bytes = 4096 * kMiB;
  request.host_block_bytes = 2 * kMiB;
  EXPECT_EQ(plan_memory(request).num_host_blocks, 0);
  request.swap_space = 1;
  EXPECT_EQ(plan_memory(request).num_host_blocks, 512);
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 300);
  request.swap_space = 3.75;
  expect_mentions(refusal(request, ErrorCode::kOutOfMemory),
                  {"swap_space is 3.75 GiB", "3686.4 MiB", "4096.0 MiB", "lower it"});
  request.swap_space = 0.001;
  expect_mentions(refusal(request, ErrorCode::kLimitExceeded),
                  {"swap_space is 0.001 GiB", "2097152", "raise it"});
}

TEST(MemoryPlan, HostBlocksOfTheCpuAreInItsBudget) {
  MemoryRequest request = base();
  request.max_num_seqs = 64;
  request.host_free_bytes = request.free_bytes;
  request.host_block_bytes = kMiB;
  request.swap_space = 0.125;
  EXPECT_EQ(plan_memory(request).num_host_blocks, 128);
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 300 - 128);
  request.swap_space = 0.5;
  expect_mentions(refusal(request, ErrorCode::kOutOfMemory),
                  {"512.0 MiB for swap_space", "lower swap_space"});
}

TEST(MemoryPlan, TheTotalMayBeShared) {
  MemoryRequest request = base();
  request.max_num_seqs = 64;
  request.total_bytes = 1200 * kMiB;
  request.total_ratio = 0.75;
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 900 - 200);
  request.leftover_bytes = 400 * kMiB;
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 600 - 200) << "(total - leftover) x ratio";
  request.free_bytes = 550 * kMiB;
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 550 - 200) << "others hold the rest";
  request.leftover_bytes = 1300 * kMiB;
  expect_mentions(refusal(request, ErrorCode::kOutOfMemory),
                  {"0.0 MiB", "total_memory_ratio 0.75 of 1200.0 MiB", "1300.0 MiB", "550.0 MiB"});
}

TEST(MemoryPlan, ExplicitSizesWin) {
  MemoryRequest request = base();
  request.kv_cache_bytes = 10 * kMiB + 5;
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 10);
  EXPECT_EQ(plan_memory(request).max_model_len, 640);
  request.num_kv_blocks = 3;
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 3) << "over kv_cache_bytes";
  request.max_model_len = 192;
  EXPECT_EQ(plan_memory(request).max_model_len, 192);
}

TEST(MemoryPlan, MayGoBeyondTheModelsLength) {
  MemoryRequest request = base();
  request.max_model_len = 2000;
  EXPECT_EQ(plan_memory(request).max_model_len, 2000);
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 4 * 32);
}

TEST(MemoryPlan, RefusesALengthThatDoesNotFit) {
  MemoryRequest request = base();
  request.max_model_len = 20000;
  expect_mentions(refusal(request, ErrorCode::kOutOfMemory),
                  {"max_model_len 20000", "313 blocks", "300", "19200", "lower max_model_len"});
  request.num_kv_blocks = 100;
  expect_mentions(refusal(request, ErrorCode::kLimitExceeded),
                  {"max_model_len 20000", "313 blocks", "100", "6400", "num_kv_blocks"});
}

// What the message asks for suffices, and one block less does not.
TEST(MemoryPlan, GroupsOfLayersShareTheBlocks) {
  MemoryRequest request = base();
  request.groups.windows = {0, 128, 128};
  request.groups.step_rows = 32;
  request.max_model_len = 6400;
  request.num_kv_blocks = 100 + 2 * 5 - 1;  // 127 + 64 positions, and two blocks
  expect_mentions(refusal(request, ErrorCode::kLimitExceeded),
                  {"6400 needs a KV cache of 110 blocks", "has 109", "hold 6336 tokens"});
  request.num_kv_blocks = 110;
  EXPECT_EQ(plan_memory(request).max_model_len, 6400);
}

TEST(MemoryPlan, RefusesWhatTheBudgetCannotHold) {
  MemoryRequest request = base();
  request.weight_bytes = 450 * kMiB;
  expect_mentions(refusal(request, ErrorCode::kOutOfMemory),
                  {"450.0 MiB", "100.0 MiB", "500.0 MiB", "memory_utilization"});
  request = base();
  request.num_kv_blocks = 301;
  expect_mentions(refusal(request, ErrorCode::kOutOfMemory), {"301", "300.0 MiB"});
  request.num_kv_blocks = std::numeric_limits<int32_t>::max();
  request.block_bytes = size_t{1} << 62;
  refusal(request, ErrorCode::kOutOfMemory);
  request = base();
  request.kv_cache_bytes = 10;
  expect_mentions(refusal(request, ErrorCode::kLimitExceeded), {"kv_cache_bytes is 10", "1048576"});
}

/// 4 sequences with states of 10 MiB; 300 MiB are left for them and for blocks.
MemoryRequest with_states() {
  MemoryRequest request = base();
  request.state_slot_bytes = 10 * kMiB;
  request.keeps_snapshots = true;
  request.model_max_len = 64 * 64;
  return request;
}

TEST(MemoryPlan, StatesOfRunningSequencesComeFirst) {
  MemoryRequest request = with_states();
  request.keeps_snapshots = false;
  EXPECT_EQ(plan_memory(request).num_state_slots, 4);
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 256) << "all that are of use";
  request.draft_slots = 26;
  expect_mentions(refusal(request, ErrorCode::kOutOfMemory),
                  {"4 sequences", "26 guessed", "30 slots of 10.0 MiB (300.0 MiB)", "1.0 MiB",
                   "300.0 MiB are left", "lower max_num_seqs", "memory_utilization"});
}

TEST(MemoryPlan, DraftsHaveSlotsAsFarAsThereIsRoom) {
  MemoryRequest request = with_states();
  request.keeps_snapshots = false;
  request.draft_slots = 3;
  EXPECT_EQ(plan_memory(request).num_state_slots, 4 * (1 + 3)) << "all: 90 of 230 MiB";
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 140);
  request.draft_slots = 7;
  EXPECT_EQ(plan_memory(request).num_state_slots, 4 + 7 + 9) << "95 of 190 MiB";
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 100);
  request.keeps_snapshots = true;
  EXPECT_EQ(plan_memory(request).num_state_slots, 4 + 7 + 9) << "shared with snapshots";
  request.num_kv_blocks = 20;
  EXPECT_EQ(plan_memory(request).num_state_slots, 4 + 7 + 2) << "no more bytes than blocks";
}

TEST(MemoryPlan, SnapshotsHaveHalfOfTheRest) {
  MemoryRequest request = with_states();
  MemoryPlan plan = plan_memory(request);
  EXPECT_EQ(plan.num_state_slots, 4 + 13) << "130 of 260 MiB";
  EXPECT_EQ(plan.num_kv_blocks, 130);
  request.max_model_len = 200 * 64;  // its blocks come before snapshots
  plan = plan_memory(request);
  EXPECT_EQ(plan.num_state_slots, 4 + 6);
  EXPECT_EQ(plan.num_kv_blocks, 200);
  EXPECT_EQ(plan.max_model_len, 200 * 64);
}

TEST(MemoryPlan, TakesNoMoreSnapshotsThanAreOfUse) {
  MemoryRequest request = with_states();
  request.state_slot_bytes = kMiB;
  MemoryPlan plan = plan_memory(request);
  EXPECT_EQ(plan.num_state_slots, 4 + 256 * 64 / 2048 + 4 * 4);
  EXPECT_EQ(plan.num_kv_blocks, 256);
  request.state_slot_bytes = 10 * kMiB;
  request.model_max_len = 640;  // 40 blocks
  plan = plan_memory(request);
  EXPECT_EQ(plan.num_state_slots, 4 + 1 + 4 * 4) << "more than half, which blocks can't use";
  EXPECT_EQ(plan.num_kv_blocks, 40);
}

TEST(MemoryPlan, SizesOfStatesAndBlocksMayBeOptions) {
  MemoryRequest request = with_states();
  request.kv_cache_bytes = 30 * kMiB;
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 30);
  EXPECT_EQ(plan_memory(request).num_state_slots, 4 + 3) << "no more bytes than blocks";
  request.num_state_slots = 9;
  EXPECT_EQ(plan_memory(request).num_state_slots, 9);
  request.kv_cache_bytes = 0;
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 210);
  request.num_state_slots = 30;
  expect_mentions(refusal(request, ErrorCode::kOutOfMemory), {"30 slots", "lower num_state_slots"});
  request.num_state_slots = 3;
  request.draft_slots = 1;
  expect_mentions(refusal(request, ErrorCode::kLimitExceeded),
                  {"num_state_slots is 3", "max_num_seqs 4", "1 more", "5: raise it"});
  request.num_state_slots = 5;
  EXPECT_EQ(plan_memory(request).num_state_slots, 5);
}

TEST(MemoryPlan, HostSlotsShareSwapSpace) {
  MemoryRequest request = with_states();
  request.device_is_host = false;
  request.host_free_bytes = 4096 * kMiB;
  request.host_block_bytes = 2 * kMiB;
  request.swap_space = 0.125;
  EXPECT_EQ(plan_memory(request).num_host_state_slots, 6) << "of 64 MiB";
  EXPECT_EQ(plan_memory(request).num_host_blocks, 34);
  request.device_is_host = true;
  EXPECT_EQ(plan_memory(request).num_state_slots, 4 + 6) << "half of 300 - 128 - 40 MiB";
  request.keeps_snapshots = false;
  EXPECT_EQ(plan_memory(request).num_host_state_slots, 0);
  EXPECT_EQ(plan_memory(request).num_host_blocks, 64);
}

TEST(MemoryPlan, RanksHavePartsOfEachSlot) {
  MemoryRequest first = with_states(), second = with_states();
  first.state_slot_bytes = 5 * kMiB;
  EXPECT_EQ(plan_ranks({first, second}).num_state_slots, 4 + 1) << "15 MiB each, half of 40";
  first.device_is_host = second.device_is_host = false;
  EXPECT_EQ(plan_ranks({first, second}).num_state_slots, 4 + 13) << "as the second one";
}

/// What each of `count` replicas may take of `free`, of which those before it have taken theirs.
std::vector<size_t> shares(MemoryRequest request, int32_t count) {
  std::vector<size_t> out;
  request.block_bytes = 1 << 10;
  request.groups.block_size = 16;
  request.max_num_seqs = 64;
  request.model_max_len = 1 << 24;
  for (int32_t i = 0; i < count; ++i) {
    request.sharers = count - i;
    request.sharers_before = i;
    out.push_back(size_t{1024} * static_cast<size_t>(plan_memory(request).num_kv_blocks));
    request.free_bytes -= out.back();
  }
  return out;
}

TEST(ReplicaMemory, SharesAreEqualAndNoMoreThanOneWouldTake) {
  constexpr size_t kFree = size_t{1} << 30;
  for (const int32_t count : {1, 2, 4, 7}) {
    for (const double share : {0.1, 0.5, 0.9, 1.0}) {
      MemoryRequest request;
      request.free_bytes = kFree;
      request.total_bytes = 2 * kFree;
      request.utilization = share;
      const auto expect_shares = [&](double whole) {
        size_t sum = 0;
        for (const size_t own : shares(request, count)) {
          EXPECT_NEAR(static_cast<double>(own), whole / count, 4096) << count << " " << share;
          sum += own;
        }
        EXPECT_LE(static_cast<double>(sum), whole + 1);
      };
      expect_shares(share * kFree);
      request.total_ratio = share;
      expect_shares(std::min(2 * share, 1.0) * kFree);
    }
  }
}

TEST(ReplicaMemory, AnErrorSaysWhoSharesIt) {
  MemoryRequest request;
  request.free_bytes = request.total_bytes = size_t{1} << 30;
  request.utilization = 0.5;
  request.weight_bytes = size_t{512} << 20;
  request.block_bytes = 1 << 10;
  request.sharers = 1;
  request.sharers_before = 1;
  testing::expect_error(ErrorCode::kOutOfMemory, {"for 2 replicas, of which 1 have been loaded"},
                        [&] { plan_memory(request); });
}

TEST(ReplicaMemory, IsSharedByThoseThatAreToCome) {
  MemoryRequest request;
  request.free_bytes = request.total_bytes = size_t{10} << 20;
  request.host_free_bytes = size_t{10} << 20;
  request.utilization = 0.8;
  request.weight_bytes = size_t{1} << 20;
  request.block_bytes = request.host_block_bytes = 1 << 10;
  request.groups.block_size = 16;
  request.max_num_seqs = 1;
  request.model_max_len = 1 << 20;
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 7 << 10);
  request.sharers = 2;
  EXPECT_EQ(plan_memory(request).num_kv_blocks, 3 << 10);
  request.sharers = 8;
  testing::expect_error(ErrorCode::kOutOfMemory, {"8 replicas"}, [&] { plan_memory(request); });
  request.sharers = 1;
  request.device_is_host = false;
  request.swap_space = 6.0 / 1024;
  EXPECT_EQ(plan_memory(request).num_host_blocks, 6 << 10);
  request.host_sharers = 2;
  testing::expect_error(ErrorCode::kOutOfMemory, {"swap_space", "for each of the"},
                        [&] { plan_memory(request); });
}

}  // namespace
}  // namespace headrace::internal
