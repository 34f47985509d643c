// A sequence's rows and states are the same bits in whatever steps they are computed; slots are
// copied bit for bit; and steps that break the contract are refused.

#include <algorithm>
#include <cstring>
#include <limits>

#include "every_case.h"
#include "parity/states/states_harness.h"

namespace headrace::parity {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int32_t kRows = 23, kSequences = 3, kSlots = 12;

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// A sequence, and what computing it row by row, alone, gives.
struct Sequence {
  std::vector<float> x, out;
  std::vector<std::vector<float>> states;  ///< behind each row
};

Sequence row_by_row(const std::string& isa, const StateOp& op, Random& random) {
  Sequence all{op.draw(random, kRows), {}, {}};
  StateBench bench(isa, op.states(), 1, 1);
  const auto width = op.in_columns();
  for (int64_t t = 0; t < kRows; ++t) {
    const std::vector<Slice> one = {{1, t == 0 ? kZeroState : 0, 0}};
    const std::vector<float> row(all.x.begin() + t * width, all.x.begin() + (t + 1) * width);
    const auto out = op.step(bench, one, row);
    all.out.insert(all.out.end(), out.begin(), out.end());
    all.states.push_back(state_numbers(bench, 0));
  }
  return all;
}

/// Runs sequences in random steps: slices of any length in any order, states that stay in their
/// slot or move, saves at any rows, and returns to what was saved. Slots that nothing is in are
/// full of NaN.
class RandomSteps {
 public:
  RandomSteps(const std::string& isa, const StateOp& op, const std::vector<Sequence>& sequences,
              int32_t threads, Random& random)
      : op_(op),
        sequences_(sequences),
        bench_(isa, op.states(), kSlots, threads),
        random_(random),
        live_(sequences.size()) {
    for (int32_t slot = 0; slot < kSlots; ++slot) release(slot);
    live_[0] = {0, take()};  // the state before the first row, as a slot of zeros
    fill_slot(bench_, live_[0].slot, 0.0f);
  }

  void run() {
    while (std::ranges::any_of(live_, [](const State& s) { return s.position < kRows; })) {
      step();
      if (testing::Test::HasFatalFailure()) return;
    }
    for (const auto& [index, state] : saved_) check(state.slot, index, state.position);
  }

 private:
  struct State {
    int32_t position = 0, slot = kZeroState;  ///< behind so many rows
  };
  struct Planned {
    size_t sequence;
    State before;
    Slice slice;
  };

  int32_t take() {
    const int32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void release(int32_t slot) {
    fill_slot(bench_, slot, kNaN);
    free_.insert(free_.begin(), slot);
  }
  void check(int32_t slot, size_t sequence, int32_t position) {
    ASSERT_TRUE(same_bits(state_numbers(bench_, slot),
                          sequences_[sequence].states[static_cast<size_t>(position - 1)]))
        << "sequence " << sequence << " behind " << position << " rows";
  }

  Planned plan(size_t index) {
    State& live = live_[index];
    bool was_saved = false;
    if (!saved_.empty() && saved_.front().first == index && random_.integer(0, 3) == 0) {
      if (live.slot != kZeroState) release(live.slot);
      live = saved_.front().second;
      was_saved = true;
    }
    Planned out{index, live, {}};
    out.slice.num_rows =
        static_cast<int32_t>(random_.integer(1, std::min(7, kRows - live.position)));
    out.slice.state_in = live.slot;
    const bool moves = was_saved || live.slot == kZeroState || random_.integer(0, 1) == 0;
    out.slice.state_out = moves && !free_.empty() ? take() : live.slot;
    for (int32_t row = 0; row + 1 < out.slice.num_rows && free_.size() > kSequences; ++row) {
      if (random_.integer(0, 2) == 0) out.slice.saves.push_back({row, take()});
    }
    return out;
  }

  void step() {
    std::vector<Planned> planned;
    std::vector<Slice> slices;
    std::vector<float> x;
    const auto first = static_cast<size_t>(random_.integer(0, kSequences - 1));
    for (size_t i = 0; i < kSequences; ++i) {
      const size_t index = (first + i) % kSequences;
      if (live_[index].position == kRows || random_.integer(0, 3) == 0) continue;
      planned.push_back(plan(index));
      slices.push_back(planned.back().slice);
      const auto from =
          sequences_[index].x.begin() + planned.back().before.position * op_.in_columns();
      x.insert(x.end(), from, from + slices.back().num_rows * op_.in_columns());
    }
    if (planned.empty()) return;
    const auto out = op_.step(bench_, slices, x);
    auto row = out.begin();
    for (const Planned& one : planned) {
      const Sequence& sequence = sequences_[one.sequence];
      const auto count = one.slice.num_rows * op_.out_columns();
      const auto want = sequence.out.begin() + one.before.position * op_.out_columns();
      ASSERT_TRUE(same_bits({row, row + count}, {want, want + count}))
          << "rows of sequence " << one.sequence << " from " << one.before.position;
      row += count;
      commit(one);
    }
    while (saved_.size() > 3) {
      release(saved_.front().second.slot);
      saved_.erase(saved_.begin());
    }
  }

  void commit(const Planned& one) {
    const int32_t end = one.before.position + one.slice.num_rows;
    check(one.slice.state_out, one.sequence, end);
    for (const StateSave& save : one.slice.saves) {
      const int32_t position = one.before.position + save.row + 1;
      check(save.slot, one.sequence, position);
      saved_.emplace_back(one.sequence, State{position, save.slot});
    }
    const auto kept = std::ranges::find_if(
        saved_, [&](const auto& entry) { return entry.second.slot == one.before.slot; });
    if (one.slice.state_out != one.before.slot && one.before.slot != kZeroState &&
        kept == saved_.end()) {
      release(one.before.slot);
    }
    live_[one.sequence] = {end, one.slice.state_out};
  }

  const StateOp& op_;
  const std::vector<Sequence>& sequences_;
  StateBench bench_;
  Random& random_;
  std::vector<State> live_;
  std::vector<std::pair<size_t, State>> saved_;  ///< with the sequences that they are of
  std::vector<int32_t> free_;
};

std::vector<std::unique_ptr<StateOp>> all_ops() {
  std::vector<std::unique_ptr<StateOp>> ops;
  for (const DeltaSpec& spec : {DeltaSpec{2, 6, 8, 8}, {1, 2, 24, 40}, {1, 1, 32, 128}}) {
    ops.push_back(std::make_unique<DeltaOp>(spec));
  }
  ops.push_back(std::make_unique<ScanOp>(ScanSpec{4, 2, 24, 32, 0.0f, 1.0f}));
  ops.push_back(std::make_unique<ConvOp>(ConvSpec{300, 4, true}, true));
  ops.push_back(std::make_unique<ConvOp>(ConvSpec{5, 8, false}, false));
  return ops;
}

class StateSteps : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { HEADRACE_REQUIRE_ISA(GetParam()); }
};

TEST_P(StateSteps, BitsDoNotDependOnSteps) {
  Random random(41);
  SCOPED_TRACE(random.trace());
  const int32_t repeats = every_case() ? 3 : 1;
  for (const auto& op : all_ops()) {
    std::vector<Sequence> sequences;
    for (int32_t i = 0; i < kSequences; ++i) {
      sequences.push_back(row_by_row(GetParam(), *op, random));
    }
    for (const int32_t threads : {1, 2, 3}) {
      if (threads > 1 && GetParam() == "reference") continue;
      for (int32_t repeat = 0; repeat < repeats; ++repeat) {
        RandomSteps(GetParam(), *op, sequences, threads, random).run();
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(StateSteps, SlotsAreCopiedToTheHostAndBack) {
  const DeltaOp op({1, 2, 24, 40});
  Random random(42);
  SCOPED_TRACE(random.trace());
  StateBench bench(GetParam(), op.states(), 3);
  const auto copy = [&bench](std::initializer_list<BlockCopy> copies) {
    bench.backend->copy_blocks(*bench.cache, {copies.begin(), copies.size()});
  };
  EXPECT_THROW(copy({{0, 0, true, true}}), InternalError) << "no host slots";
  const size_t before = bench.backend->bytes_in_use();
  bench.backend->add_host_slots(*bench.cache, 2);
  bench.backend->add_host_blocks(*bench.cache, 1);
  EXPECT_GE(bench.backend->bytes_in_use(),
            before + 2 * bench.backend->state_slot_bytes(bench.cache->layout()));
  EXPECT_THROW(bench.backend->add_host_slots(*bench.cache, 1), InternalError) << "a second time";
  const std::vector<Slice> slices = {{5, kZeroState, 0}, {3, kZeroState, 1}};
  op.step(bench, slices, op.draw(random, 8));
  const auto first = state_numbers(bench, 0), second = state_numbers(bench, 1);
  // Blocks of the same numbers go their own way.
  copy({{0, 1, true, true}, {0, 0, true}, {1, 0, true, true}, {0, 1, false, true}});
  fill_slot(bench, 0, kNaN);
  fill_slot(bench, 1, kNaN);
  copy({{0, 0, false, true}, {0, 0, false}, {2, 1, false, true}});
  EXPECT_TRUE(same_bits(state_numbers(bench, 0), second));
  EXPECT_TRUE(same_bits(state_numbers(bench, 2), first));
  for (const BlockCopy& wrong : {BlockCopy{3, 0, true, true},
                                 {-1, 0, true, true},
                                 {0, 2, false, true},
                                 {1, 0, true, false}}) {
    EXPECT_THROW(copy({wrong}), InternalError) << wrong.block << ", " << wrong.host_block;
  }
}

TEST_P(StateSteps, BrokenContractsAreRefused) {
  const DeltaOp op({1, 1, 8, 8});
  StateBench bench(GetParam(), op.states(), 4);
  const auto begin = [&bench](std::initializer_list<Slice> slices) {
    return bench.begin({slices.begin(), slices.size()});
  };
  EXPECT_EQ(begin({{4, 0, 0, {{0, 1}, {2, 2}}}, {1, 3, 3}}), 5);
  EXPECT_EQ(begin({{1, 0, 1}, {1, 0, 2}}), 2) << "both go on from slot 0";
  EXPECT_THROW(begin({{1, 4, 0}}), InternalError);
  EXPECT_THROW(begin({{1, kZeroState, 4}}), InternalError);
  EXPECT_THROW(begin({{1, 0, kZeroState}}), InternalError) << "its state goes nowhere";
  EXPECT_THROW(begin({{1, 0, 1}, {1, kZeroState, kZeroState}}), InternalError) << "one has a slot";
  EXPECT_THROW(begin({{1, 0, 1}, {1, 2, 1}}), InternalError) << "one slot gets two states";
  EXPECT_THROW(begin({{1, 0, 1}, {1, 1, 2}}), InternalError) << "another slice stores to slot 1";
  EXPECT_THROW(begin({{2, 0, 0, {{0, 0}}}}), InternalError) << "a save in its own slot";
  EXPECT_THROW(begin({{2, 0, 1, {{0, 0}}}}), InternalError) << "a save in what it loads";
  EXPECT_THROW(begin({{2, 0, 0, {{1, 1}}}}), InternalError) << "a save of the last row";
  EXPECT_THROW(begin({{3, 0, 0, {{1, 1}, {0, 2}}}}), InternalError) << "rows that descend";
  EXPECT_THROW(begin({{2, 0, 0, {{0, 4}}}}), InternalError);

  StateBench other(GetParam(), op.states(), 1);
  begin({{1, kZeroState, kZeroState}});
  const Matrix x(*bench.backend, 1, op.in_columns()), out(*bench.backend, 1, op.out_columns());
  const TensorView qkv = x.view().columns(0, 24), gates = x.view().columns(24, 2);
  const auto run = [&](const DeltaSpec& spec, KvCache& cache, int32_t layer) {
    bench.backend->delta_rule(qkv, gates, spec, cache, layer, out.view());
  };
  EXPECT_THROW(run({1, 1, 8, 8}, *bench.cache, 0), InternalError) << "no slots are named";
  begin({{1, kZeroState, 0}});
  EXPECT_THROW(run({1, 1, 8, 8}, *other.cache, 0), InternalError) << "not the step's cache";
  EXPECT_THROW(run({1, 1, 8, 8}, *bench.cache, 1), InternalError) << "it keeps keys and values";
  EXPECT_THROW(run({1, 1, 4, 16}, *bench.cache, 0), InternalError);

  CacheLayout layout = state_layout(op.states());
  layout.states[0].key_dim = 12;
  EXPECT_THROW(bench.backend->make_kv_cache(layout, 1, 1), InternalError);
  layout = state_layout(op.states());
  layout.states.pop_back();
  EXPECT_THROW(bench.backend->state_slot_bytes(layout), InternalError);
  layout = state_layout(op.states());
  layout.groups.clear();
  layout.layers[1].group = -1;
  EXPECT_THROW(bench.backend->make_kv_cache(layout, 1, 1), InternalError) << "no paged group";
  EXPECT_THROW(
      bench.backend->make_kv_cache(CacheLayout::uniform(1, kv_rows(1, 16, DType::kF32), 16), 1, 1),
      InternalError)
      << "slots without states";
}

INSTANTIATE_TEST_SUITE_P(Isas, StateSteps,
                         testing::Values("reference", "baseline", "avx2", "avx512", "avx512_bf16"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace headrace::parity
