// Layers with a state through the CUDA backend: the reference's numbers, recorded steps, slots on
// the host.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "backend/reference/reference_backend.h"
#include "cuda/host/memory/device_kv_cache.h"
#include "cuda/host/support/emulated_gpu.h"
#include "cuda/host/support/uploaded.h"

namespace headrace {
namespace {

constexpr int32_t kMostRows = 24, kSlots = 6;
constexpr ConvSpec kConv{40, 4, true};
constexpr DeltaSpec kDelta{1, 3, 8, 8};                // q‖k‖v: 40 columns
constexpr ScanSpec kScan{2, 1, 8, 24, 0.0f, 9.0f};     // x‖B‖C: 64 columns
constexpr int32_t kColumns = 64, kOut = 40 + 24 + 16;  // of a row
constexpr int32_t kFirstLayer = 0, kSecondLayer = 2;   // layer 1 keeps keys and values

CacheLayout layout_with_states() {
  CacheLayout layout;
  layout.block_size = 16;
  layout.groups = {{kv_rows(1, 16, DType::kF32), 1}};
  layout.layers = {{-1, 0}, {0, 0}, {-1, 0}};
  layout.states = {{.channels = 40, .window = 3, .heads = 3, .key_dim = 8, .value_dim = 8},
                   {},
                   {.heads = 2, .key_dim = 24, .value_dim = 8}};
  return layout;
}

/// Rows of a sequence from a position on.
struct Part {
  uint32_t sequence;
  uint32_t position;
  SeqSlice slice;
};

/// The ops with a state on a backend, with a cache of its own.
class Bench {
 public:
  /// `inputs`: what rows are rounded to first.
  Bench(std::shared_ptr<Backend> backend, DType dtype, DType inputs)
      : backend_(std::move(backend)),
        inputs_(inputs),
        cache_(backend_->make_kv_cache(layout_with_states(), 1, kSlots)),
        x_(*backend_, dtype, kMostRows, kColumns),
        gates_(*backend_, DType::kF32, kMostRows, 6),
        conv_(*backend_, dtype, kMostRows, 40),
        delta_(*backend_, dtype, kMostRows, 24),
        scan_(*backend_, dtype, kMostRows, 16),
        weight_(*backend_, DType::kF32, 4, 40, random_values(160, 1, DType::kF32)),
        heads_(*backend_, DType::kF32, 1, 2, random_values(2, 2, DType::kF32)) {}
  Backend& backend() { return *backend_; }
  KvCache& cache() { return *cache_; }

  /// The results of each part's rows, one behind the other. With `room`, of a step that may be
  /// recorded.
  std::vector<float> step(const std::vector<Part>& parts, int64_t room = 0) {
    write_rows(parts);
    const int64_t rows = begin(parts, room);
    backend_->run_step(this, *cache_, [&] { run_ops(rows); });
    std::vector<float> out;
    const auto conv = conv_.read(), delta = delta_.read(), scan = scan_.read();
    for (size_t row = 0; row < ids_.size(); ++row) {
      const auto append = [&](const std::vector<float>& from, size_t columns) {
        const auto first = from.begin() + static_cast<ptrdiff_t>(row * columns);
        out.insert(out.end(), first, first + static_cast<ptrdiff_t>(columns));
      };
      append(conv, 40), append(delta, 24), append(scan, 16);
    }
    return out;
  }
  /// Returns the rows that ops compute.
  int64_t begin(const std::vector<Part>& parts, int64_t room) {
    seqs_.clear();
    int32_t rows = 0;
    for (const Part& part : parts) {
      SeqSlice& seq = seqs_.emplace_back(part.slice);
      seq.first_row = rows;
      seq.blocks = blocks_;
      rows += seq.num_rows;
    }
    ids_.assign(static_cast<size_t>(rows), 0);
    wanted_.clear();
    for (int32_t i = 0; room > 0 && i < rows; ++i) wanted_.push_back(i);
    StepBatch batch{ids_, ids_, ids_, seqs_, wanted_};
    batch.room = room;
    batch.cache = cache_.get();
    backend_->begin_step(batch);
    return backend_->step_rows(batch);
  }
  void run_ops(int64_t rows) {
    const auto first = [rows](const Uploaded& of) { return of.view().first_rows(rows); };
    const TensorView x = first(x_), heads = heads_.vector();
    backend_->causal_conv(x.columns(0, 40), weight_.view(), {}, kConv, *cache_, kFirstLayer,
                          first(conv_));
    backend_->delta_rule(x.columns(24, 40), first(gates_), kDelta, *cache_, kFirstLayer,
                         first(delta_));
    const ScanArgs args{.xbc = x,
                        .dt = x.columns(5, 2),
                        .a_log = heads,
                        .dt_bias = heads,
                        .skip = heads,
                        .spec = kScan};
    backend_->ssm_scan(args, *cache_, kSecondLayer, first(scan_));
  }

 private:
  /// Each row's inputs follow from its sequence and position; there is NaN behind the last row.
  void write_rows(const std::vector<Part>& parts) {
    std::vector<float> x, gates;
    for (const Part& part : parts) {
      for (uint32_t i = 0; i < static_cast<uint32_t>(part.slice.num_rows); ++i) {
        const uint32_t seed = 1000 * part.sequence + part.position + i;
        for (const float number : random_values(kColumns, seed, DType::kF32)) {
          x.push_back(round_to(inputs_, 0.3f * number));
        }
        for (const float number : random_values(6, 500 + seed, DType::kF32)) {
          gates.push_back(1.0f / (1.0f + std::exp(-number)));
        }
      }
    }
    x.resize(size_t{kMostRows} * kColumns, std::numeric_limits<float>::quiet_NaN());
    gates.resize(size_t{kMostRows} * 6, std::numeric_limits<float>::quiet_NaN());
    x_.write(x);
    gates_.write(gates);
  }

  std::shared_ptr<Backend> backend_;
  DType inputs_;
  std::unique_ptr<KvCache> cache_;
  Uploaded x_, gates_, conv_, delta_, scan_, weight_, heads_;
  const std::vector<int32_t> blocks_ = {0};
  std::vector<int32_t> ids_, wanted_;
  std::vector<SeqSlice> seqs_;
};

SeqSlice slice(int32_t rows, int32_t from, int32_t to, std::span<const StateSave> saves = {}) {
  return {.num_rows = rows, .state_in = from, .state_out = to, .saves = saves};
}

class CudaStates : public testing::Test {
 protected:
  cuda::EmulatedGpu gpu_;
};

double rounding(DType dtype) {
  return dtype == DType::kBF16 ? 0x1p-8 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-24;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want, DType dtype) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-5 + 1.01 * rounding(dtype) * std::abs(want[i])) << i;
  }
}

// Sums are of a few numbers around 1: float32 is good to 1e-5 of them, behind 12 rows, too.
TEST_F(CudaStates, StepsGiveTheReferencesNumbers) {
  const StateSave saves[] = {{0, 3}, {2, 4}};
  const std::vector<Part> first = {{1, 0, slice(7, kZeroState, 0, saves)},
                                   {2, 0, slice(1, kZeroState, 1)},
                                   {3, 0, slice(5, kZeroState, 2)}};
  const std::vector<Part> second = {{2, 1, slice(4, 1, 1)},
                                    {1, 1, slice(3, 3, 5)},
                                    {1, 7, slice(2, 0, 0)},
                                    {3, 5, slice(1, 2, 2)},
                                    {1, 3, slice(9, 4, 4)}};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    SCOPED_TRACE(dtype_name(dtype));
    Bench gpu(gpu_.backend(dtype), dtype, dtype);
    Bench reference(make_reference_backend(), DType::kF32, dtype);
    for (const auto& parts : {first, second}) {
      expect_near(gpu.step(parts), reference.step(parts), dtype);
    }
  }
}

// Three sequences decode in steps that are recorded, padded to four rows, and launched again with
// other slots; each has the bits that it has by itself in one slice.
TEST_F(CudaStates, RecordedStepsHaveTheirSlicesInMemory) {
  constexpr uint32_t kPrompt = 3, kSteps = 6;
  Bench bench(gpu_.backend(DType::kBF16), DType::kBF16, DType::kBF16);
  std::vector<std::vector<float>> whole;
  for (uint32_t i = 0; i < 3; ++i) {
    whole.push_back(bench.step({{i, 0, slice(kPrompt + kSteps, kZeroState, 0)}}));
  }
  std::vector<Part> parts;
  for (uint32_t i = 0; i < 3; ++i) {
    parts.push_back({i, 0, slice(kPrompt, kZeroState, static_cast<int32_t>(i))});
  }
  bench.step(parts);
  for (Part& part : parts) part = {part.sequence, kPrompt, slice(1, part.slice.state_out, 0)};
  for (uint32_t step = 0; step < kSteps; ++step) {
    for (Part& part : parts) {
      // To and fro between two slots, or in place.
      const int32_t from = part.slice.state_in;
      part.slice.state_out = part.sequence == 2 ? from : (from + 3) % 6;
    }
    const auto got = bench.step(parts, 8);
    ASSERT_EQ(got.size(), size_t{3} * kOut);
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      const auto at = static_cast<ptrdiff_t>(i * kOut),
                 place = static_cast<ptrdiff_t>(part.position * kOut);
      const auto& all = whole[part.sequence];
      EXPECT_EQ(std::vector(got.begin() + at, got.begin() + at + kOut),
                std::vector(all.begin() + place, all.begin() + place + kOut))
          << "sequence " << part.sequence << ", position " << part.position;
    }
    for (Part& part : parts) part.slice.state_in = part.slice.state_out, ++part.position;
    std::rotate(parts.begin(), parts.begin() + 1, parts.end());
  }
  EXPECT_EQ(gpu_.api.calls("launch"), int{kSteps} - 1);
}

// Neighbouring columns of wider rows.
TEST_F(CudaStates, RowsGiveTheReferencesNumbers) {
  constexpr int64_t kRows = 3;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    SCOPED_TRACE(dtype_name(dtype));
    const auto run = [&](Backend& backend, DType act) {
      const Uploaded wide(backend, act, kRows, 100, random_values(300, 3, dtype));
      const Uploaded out(backend, act, kRows, 24), gates(backend, DType::kF32, kRows, 6);
      const Uploaded heads(backend, DType::kF32, 1, 3, random_values(3, 4, DType::kF32));
      const Uploaded weight(backend, DType::kF32, 1, 8, random_values(8, 5, DType::kF32));
      const TensorView x = wide.view();
      std::vector<float> all;
      const auto keep = [&all](const Uploaded& from) {
        const std::vector<float> values = from.read();
        all.insert(all.end(), values.begin(), values.end());
      };
      backend.gated_norm(x.columns(0, 24), x.columns(24, 24), weight.vector(),
                         {.group = 8, .gate_first = true}, out.view());
      keep(out);
      backend.multiply(x.columns(1, 24), x.columns(50, 24), out.view());
      keep(out);
      backend.delta_prepare(x.columns(8, 40), x.columns(48, 3), x.columns(51, 3), heads.vector(),
                            heads.vector(), kDelta, gates.view());
      keep(gates), keep(wide);
      return all;
    };
    const auto reference = make_reference_backend();
    expect_near(run(*gpu_.backend(dtype), dtype), run(*reference, DType::kF32), dtype);
  }
}

// Nothing is computed, and one slot may be all slices'.
TEST_F(CudaStates, WhatOnlyTakesMemoryLaunchesNothing) {
  Bench bench(gpu_.backend(DType::kF32), DType::kF32, DType::kF32);
  gpu_.api.reset_calls();
  const std::vector<Part> parts(3, {1, 0, slice(1, kZeroState, 0)});
  bench.backend().reserve([&] { bench.run_ops(bench.begin(parts, 0)); });
  EXPECT_EQ(gpu_.api.calls("kernel"), 0);
  EXPECT_THROW(bench.begin(parts, 0), InternalError);
}

// The fake GPU runs what it is given as late as it may.
TEST_F(CudaStates, SlotsGoToHostMemoryAndBackInOrder) {
  constexpr int32_t kHostSlots = 3;
  const auto backend = gpu_.backend(DType::kBF16);
  const CacheLayout layout = layout_with_states();
  const auto cache = backend->make_kv_cache(layout, 2, kSlots);
  const size_t bytes = backend->state_slot_bytes(layout);
  EXPECT_EQ(bytes, sizeof(float) * (128 + 192 + 384));  // 3 * 40, 3 * 8 * 8, 2 * 24 * 8 numbers
  EXPECT_EQ(backend->state_slot_bytes(CacheLayout::uniform(1, layout.groups[0].rows, 16)), 0u);
  std::vector<BlockCopy> copies = {{.block = 1, .to_host = true, .is_state = true}};
  EXPECT_THROW(backend->copy_blocks(*cache, copies), InternalError);
  backend->add_host_slots(*cache, kHostSlots);
  EXPECT_THROW(backend->add_host_slots(*cache, kHostSlots), InternalError);
  for (const BlockCopy& wrong : {BlockCopy{kSlots, 0, true, true}, BlockCopy{-1, 0, true, true},
                                 BlockCopy{0, kHostSlots, true, true}, BlockCopy{0, 0, true}}) {
    EXPECT_THROW(backend->copy_blocks(*cache, std::span(&wrong, 1)), InternalError);
  }
  backend->add_host_blocks(*cache, 1);
  std::mt19937 random(5);
  std::vector<std::byte> all(kSlots * bytes), host(kHostSlots * bytes);
  for (std::byte& byte : all) byte = static_cast<std::byte>(random());
  float* const first = dynamic_cast<const cuda::DeviceKvCache&>(*cache).states().windows(0).data;
  backend->upload(all.data(), first, all.size());
  copies.clear();
  for (int32_t i = 0; i < kHostSlots; ++i) copies.push_back({i, i, true, true});
  for (int i = 0; i < 20; ++i) {
    copies.push_back({static_cast<int32_t>(random() % kSlots),
                      static_cast<int32_t>(random() % kHostSlots), random() % 2 == 0, true});
    if (i == 7) copies.push_back({.block = 1, .host_block = 0, .to_host = true});
  }
  backend->copy_blocks(*cache, copies);
  for (const BlockCopy& copy : copies) {
    if (!copy.is_state) continue;
    std::byte* const own = all.data() + static_cast<size_t>(copy.block) * bytes;
    std::byte* const other = host.data() + static_cast<size_t>(copy.host_block) * bytes;
    std::memcpy(copy.to_host ? other : own, copy.to_host ? own : other, bytes);
  }
  std::vector<std::byte> found(all.size());
  backend->read_back(first, found.data(), found.size());
  EXPECT_EQ(found, all);
}

// A copy to the host waits for the step that stores to its slot.
TEST_F(CudaStates, ParkedSlotsGoOn) {
  Bench bench(gpu_.backend(DType::kF32), DType::kF32, DType::kF32);
  const auto whole = bench.step({{1, 0, slice(5, kZeroState, 5)}});
  bench.backend().add_host_slots(bench.cache(), 1);
  bench.step({{1, 0, slice(3, kZeroState, 2)}});
  const BlockCopy out{2, 0, true, true}, in{4, 0, false, true};
  bench.backend().copy_blocks(bench.cache(), std::span(&out, 1));
  bench.step({{2, 0, slice(4, kZeroState, 2)}});
  bench.backend().copy_blocks(bench.cache(), std::span(&in, 1));
  const auto rest = bench.step({{1, 3, slice(2, 4, 4)}});
  EXPECT_EQ(rest, std::vector(whole.begin() + 3 * kOut, whole.end()));
}

}  // namespace
}  // namespace headrace
