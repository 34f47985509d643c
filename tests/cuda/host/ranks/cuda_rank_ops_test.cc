// Several GPUs of a fake runtime that compute together: what Backend says of ranks, on the CUDA
// backend. Their kernels have tests of their own (tests/cuda/kernels/ranks_test.cc).

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/ranks/rank_group.h"
#include "cuda/host/support/emulated_gpu.h"
#include "cuda/host/trials/kernel_trials.h"
#include "headrace/status.h"

namespace headrace::cuda {
namespace {

using Floats = std::vector<float>;

class CudaRanks : public ::testing::Test {
 protected:
  /// `last_fails`: this one of its trials' launches does on the last GPU; 0: it has no trials.
  void open(int32_t count, int last_fails = 0) {
    group_ = std::make_shared<RankGroup>(count);
    gpu_.api.add_devices(count - 1);
    for (int32_t rank = 0; rank < count; ++rank) {
      gpu_.plain_kernels = gpu_.try_kernels = last_fails > 0 && rank + 1 == count;
      if (gpu_.try_kernels) gpu_.api.fail("kernel", 98, last_fails);
      backends_.push_back(gpu_.backend(DType::kF32, 0, rank));
      backends_.back()->join(group_, rank);
    }
  }

  /// part(backend, rank) by a thread for each rank. What one throws ends all; its text is kept.
  void each_rank(const std::function<void(CudaBackend&, size_t)>& part) {
    errors_.assign(backends_.size(), "");
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < backends_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          part(*backends_[rank], rank);
        } catch (const Error& error) {
          errors_[rank] = error.what();
          group_->fail(static_cast<int32_t>(rank));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  /// A matrix on the device.
  static TensorView put(CudaBackend& backend, const Floats& values, int64_t rows,
                        Backend::Buffer* owner) {
    *owner = backend.allocate(values.size() * sizeof(float));
    backend.upload(values.data(), owner->data, owner->bytes);
    return {owner->data, DType::kF32, {rows, static_cast<int64_t>(values.size()) / rows}};
  }
  static Floats read(CudaBackend& backend, const TensorView& x) {
    Floats out(static_cast<size_t>(x.shape.elements()));
    backend.read_back(x.data, out.data(), out.size() * sizeof(float));
    return out;
  }

  void expect_rows_of_drawn_tokens();

  EmulatedGpu gpu_;
  std::shared_ptr<RankGroup> group_;
  std::vector<std::shared_ptr<CudaBackend>> backends_;
  std::vector<std::string> errors_;
};

Floats numbers(size_t count, size_t seed) {
  Floats out(count);
  for (size_t i = 0; i < count; ++i) {
    out[i] = 1.0f / static_cast<float>((i * 7919 + seed * 104729) % 997 + 1);
  }
  return out;
}

TEST_F(CudaRanks, SumsAndColumnsOfAllRanks) {
  open(3);
  std::vector<Floats> sums(3), columns(3);
  each_rank([&](CudaBackend& backend, size_t rank) {
    Backend::Buffer memory[3];
    const TensorView x = put(backend, numbers(4 * 32, rank), 4, &memory[0]);
    for (int i = 0; i < 3; ++i) backend.all_reduce(x);
    sums[rank] = read(backend, x);
    const size_t own = 10 + rank;  // columns
    const TensorView part = put(backend, numbers(2 * own, 5 + rank), 2, &memory[1]);
    const TensorView out = put(backend, Floats(2 * 33, -1.0f), 2, &memory[2]);
    const TensorView none(nullptr, DType::kF32, {2, 33});
    for (int i = 0; i < 2; ++i) backend.gather_columns(part, rank == 1 ? none : out);
    columns[rank] = read(backend, out);
  });
  EXPECT_EQ(errors_, std::vector<std::string>(3));
  const Floats parts[] = {numbers(128, 0), numbers(128, 1), numbers(128, 2)};
  Floats expected(128);
  for (size_t i = 0; i < expected.size(); ++i) {
    float sum = parts[0][i] + parts[1][i] + parts[2][i];
    for (int more = 0; more < 2; ++more) sum = sum + sum + sum;
    expected[i] = sum;
  }
  for (const Floats& sum : sums) EXPECT_EQ(sum, expected);
  EXPECT_EQ(columns[1], Floats(66, -1.0f));
  EXPECT_EQ(columns[2], columns[0]);
  const Floats last = numbers(24, 7);
  EXPECT_EQ(columns[0][21], last[0]);
  EXPECT_EQ(columns[0][33 + 32], last[23]);
}

// A rank that fails between two sums: the others' GPUs stop waiting, and what follows works again.
TEST_F(CudaRanks, AFailureEndsTheWaitsAndIsForgotten) {
  open(2);
  std::vector<Floats> sums(2);
  for (int round = 0; round < 3; ++round) {
    each_rank([&](CudaBackend& backend, size_t rank) {
      Backend::Buffer memory;
      const TensorView x = put(backend, numbers(64, rank), 1, &memory);
      backend.all_reduce(x);
      if (round == 1 && rank == 1) throw_error(ErrorCode::kDevice, "a planted fault");
      backend.all_reduce(x);
      sums[rank] = read(backend, x);
    });
    EXPECT_EQ(errors_[1], round == 1 ? "a planted fault" : "");
    if (round == 1) {
      group_->reset();
      continue;
    }
    EXPECT_EQ(errors_[0], "");
    const Floats a = numbers(64, 0), b = numbers(64, 1);
    for (size_t i = 0; i < a.size(); ++i) {
      const float sum = a[i] + b[i];
      EXPECT_EQ(sums[0][i], sum + sum);
      EXPECT_EQ(sums[1][i], sum + sum);
    }
  }
}

// CUDA may wait for a GPU within calls, and hold up launches for other GPUs, which another model's
// kernel there waits for: that ends first.
TEST_F(CudaRanks, AnotherModelsCallsHoldUpNone) {
  open(2);
  gpu_.api.waits_within_calls = true;
  const auto other = gpu_.backend(DType::kF32);
  Backend::Buffer memory[2], more;
  std::vector<TensorView> x(2);
  each_rank([&](CudaBackend& backend, size_t r) {
    x[r] = put(backend, numbers(8, r), 1, &memory[r]);
    backend.all_reduce(x[r]);  // its kernels are loaded
    read(backend, x[r]);
  });
  const auto sum = [&](size_t r) {
    std::thread([&] {
      backends_[r]->link_ranks();
      backends_[r]->all_reduce(x[r]);
    }).join();
  };
  sum(0);
  std::atomic<bool> taken{false};
  std::thread loads([&] {
    more = other->allocate(size_t{65} << 20);
    taken = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(taken);
  sum(1);
  loads.join();
  for (size_t r = 0; r < 2; ++r) read(*backends_[r], x[r]);
}

// The rest of a half-encoded image follows without a step: the fake runtime looks at the thread's
// device at each launch.
TEST_F(CudaRanks, WhatForgetsAFailureKeepsItsOwnGpu) {
  open(2);
  Backend::Buffer memory[2];
  const TensorView x = put(*backends_[0], numbers(8, 1), 1, &memory[0]);
  const TensorView sum = put(*backends_[0], numbers(8, 2), 1, &memory[1]);
  group_->fail(0);
  group_->reset();
  backends_[0]->add(x, sum);
  const Floats a = numbers(8, 1), b = numbers(8, 2), got = read(*backends_[0], sum);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], a[i] + b[i]);
}

// What NCCL does for them, if it is there: cuda_nccl_test.cc.
TEST_F(CudaRanks, GpusThatReachNoOtherNeedNccl) {
  gpu_.api.reachable = false;
  gpu_.nccl = "/no/such/file";
  open(2);
  each_rank([&](CudaBackend& backend, size_t) { backend.link_ranks(); });
  EXPECT_NE(errors_[0].find("that can't reach each other's memory need NCCL"), std::string::npos)
      << errors_[0];
  EXPECT_NE(errors_[1].find("another device of the model has failed"), std::string::npos);
}

TEST_F(CudaRanks, MoreThanCanMeetAreRefused) {
  const auto backend = gpu_.backend(DType::kF32);
  try {
    backend->join(std::make_shared<RankGroup>(9), 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("on up to 8 GPUs, not on 9"), std::string::npos);
  }
}

// Each rank has half of the table; the second row's token was drawn by the step before, on rank 0.
void CudaRanks::expect_rows_of_drawn_tokens() {
  constexpr int64_t kVocab = 20, kHidden = 16;
  const Floats table = numbers(kVocab * kHidden, 3);
  Floats logits(kVocab, 0.0f);
  logits[13] = 5.0f;
  const std::vector<int32_t> ids = {4, 0}, positions = {0, 1}, lens = {2, 2}, drawn = {-1, 0};
  const std::vector<int32_t> blocks = {0};
  const std::vector<SeqSlice> seqs = {{0, 2, 0, blocks}};
  std::vector<Floats> rows(2);
  each_rank([&](CudaBackend& backend, size_t rank) {
    const auto part = backend.pack_weight({.parts = {{.data = table.data() + rank * 10 * kHidden,
                                                      .n = 10,
                                                      .k = kHidden,
                                                      .row_stride = kHidden}},
                                           .use = WeightUse::kTiedEmbedding});
    Backend::Buffer memory[2];
    StepBatch batch{ids, positions, lens, seqs, {}};
    backend.begin_step(batch);
    if (rank == 0) {
      SampleRow row;
      row.greedy = true;
      backend.begin_sample(put(backend, logits, 1, &memory[0]), kVocab, {&row, 1});
    }
    batch.drawn = drawn;
    backend.begin_step(batch);
    const TensorView out = put(backend, Floats(2 * kHidden, -1.0f), 2, &memory[1]);
    backend.embed_part(*part, static_cast<int32_t>(rank) * 10, out);
    backend.all_reduce(out);
    rows[rank] = read(backend, out);
    if (rank > 0) return;
    SampleResult result;
    backend.end_sample({&result, 1});
    EXPECT_EQ(result.token, 13);
  });
  EXPECT_EQ(errors_, std::vector<std::string>(2));
  Floats expected(table.begin() + 4 * kHidden, table.begin() + 5 * kHidden);
  expected.insert(expected.end(), table.begin() + 13 * kHidden, table.begin() + 14 * kHidden);
  EXPECT_EQ(rows[0], expected);
  EXPECT_EQ(rows[1], expected);
}

TEST_F(CudaRanks, RowsOfTokensThatOneRankHasDrawn) {
  open(2);
  expect_rows_of_drawn_tokens();
}

// What the first one draws, the others are sent, whatever their own trials say.
TEST_F(CudaRanks, AllGoByTheFirstOnesTrials) {
  FakeCudaApi api;
  CudaContext context(api, 0);
  EXPECT_EQ(try_attention(context, attention, false), "");
  EXPECT_EQ(try_code_attention(context, attention), "");
  open(2, api.calls("kernel") + 1);
  EXPECT_TRUE(backends_[0]->runs_ahead());
  ASSERT_FALSE(backends_[1]->runs_ahead());
  expect_rows_of_drawn_tokens();
}

}  // namespace
}  // namespace headrace::cuda
