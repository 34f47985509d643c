// Exchanges between ranks, each a thread with memory of its own, against sums and copies made here.

#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <tuple>

#include "cuda/kernels/ranks/all_reduce.h"
#include "cuda/kernels/ranks/gather_columns.h"
#include "cuda/kernels/ranks/reduce_add_norm.h"
#include "cuda/kernels/ranks/send_words.h"
#include "device_data.h"
#if defined(HEADRACE_CUDA_EMULATION)
#include "block_runner.h"
#endif

namespace headrace::cuda {
namespace {

/// Brings the parts of ranks that don't: launches are over when they return.
class Carrier final : public PartsCarrier {
 public:
  Carrier(int32_t rank, std::vector<std::byte*>& shown, std::barrier<>& meeting)
      : rank_(static_cast<size_t>(rank)), shown_(shown), meeting_(meeting) {}

  void all_gather(std::byte* memory, int64_t bytes, Stream) override {
    const auto size = static_cast<size_t>(bytes);
    shown_[rank_] = memory;
    meeting_.arrive_and_wait();
    for (size_t r = 0; r < shown_.size(); ++r) {
      if (r != rank_) std::memcpy(memory + r * size, shown_[r] + r * size, size);
    }
    meeting_.arrive_and_wait();
  }

 private:
  size_t rank_;
  std::vector<std::byte*>& shown_;
  std::barrier<>& meeting_;
};

/// Ranks that reach each other, or have carriers.
class Ranks {
 public:
  /// `schedule`: of every rank's device.
  Ranks(int32_t count, int64_t piece_bytes, int schedule, bool carried = false)
      : schedule_(schedule),
        links_(static_cast<size_t>(count)),
        shown_(static_cast<size_t>(count)),
        meeting_(count) {
    for (int32_t r = 0; r < count; ++r) {
      pieces_.emplace_back(static_cast<size_t>(2 * piece_bytes));
      words_.emplace_back(std::vector<uint32_t>(kMostRanks + 2, 0));
    }
    for (int32_t r = 0; r < count; ++r) {
      RankLinks& links = links_[static_cast<size_t>(r)];
      links.rank = r;
      links.count = count;
      links.piece_bytes = piece_bytes;
      for (int32_t p = 0; p < count; ++p) {
        links.pieces[p] = pieces_[static_cast<size_t>(p)].data();
        links.begun[p] = words_[static_cast<size_t>(p)].data();
      }
      links.exchanges = links.begun[r] + kMostRanks;
      links.counter = reinterpret_cast<int32_t*>(links.begun[r] + kMostRanks + 1);
      links.stop = stop_.data();
      if (carried) carry(links);
    }
  }

  /// job(links, stream) by a thread for each rank.
  void run(const std::function<void(const RankLinks&, Stream)>& job) const {
    std::vector<std::thread> threads;
    for (const RankLinks& links : links_) {
      threads.emplace_back([this, &job, &links] {
        set_device_schedule(schedule_);
        const auto stream = make_stream();
        job(links, stream.get());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  RankLinks& of(size_t rank) { return links_[rank]; }
  const RankLinks& of(size_t rank) const { return links_[rank]; }
  void stop() const { std::atomic_ref(*stop_.data()).store(1); }

 private:
  /// Of all that the ranks share there is one piece each.
  void carry(RankLinks& links) {
    carriers_.push_back(std::make_unique<Carrier>(links.rank, shown_, meeting_));
    const RankLinks own = links;
    links = {.rank = own.rank, .count = own.count, .carrier = carriers_.back().get()};
    links.pieces[0] = own.pieces[own.rank];
    links.piece_bytes = 2 * own.piece_bytes / own.count / 256 * 256;
  }

  int schedule_;
  std::vector<DeviceArray<std::byte>> pieces_;
  std::vector<DeviceArray<uint32_t>> words_;
  DeviceArray<uint32_t> stop_{0u};
  std::vector<RankLinks> links_;
  std::vector<std::byte*> shown_;
  std::barrier<> meeting_;
  std::vector<std::unique_ptr<Carrier>> carriers_;
};

class RankExchange : public KernelTest {
 protected:
  std::vector<DeviceMatrix> parts(int32_t count, DType dtype, int64_t rows, int64_t cols) {
    std::vector<DeviceMatrix> out;
    for (int32_t r = 0; r < count; ++r) {
      out.emplace_back(dtype, rows, cols, random_.uniforms(dtype, rows * cols));
    }
    return out;
  }

  Random random_{71};
};

std::vector<float> sum_in_order(const std::vector<DeviceMatrix>& parts) {
  std::vector<float> sum = parts[0].values();
  for (size_t r = 1; r < parts.size(); ++r) {
    const std::vector<float> more = parts[r].values();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  }
  for (float& x : sum) x = round_to_dtype(parts[0].dtype(), x);
  return sum;
}

// Shapes: aligned and not, of one piece and of several.
TEST_P(RankExchange, SumsAreAddedInTheOrderOfRanks) {
  SCOPED_TRACE(random_.trace());
  for (const auto& [count, carried] : {std::pair{2, false}, {3, false}, {8, false}, {3, true}}) {
    const Ranks ranks(count, 2048, GetParam(), carried);
    for (const DType dtype : kDTypes) {
      for (const auto& [rows, cols] : {std::pair{1, 64}, {3, 37}, {9, 200}}) {
        const auto x = parts(count, dtype, rows, cols);
        const std::vector<float> expected = sum_in_order(x);
        ranks.run([&](const RankLinks& links, Stream stream) {
          const DeviceMatrix& own = x[static_cast<size_t>(links.rank)];
          all_reduce({.links = links, .dtype = dtype, .x = own.matrix()}, stream);
        });
        for (const DeviceMatrix& own : x) {
          EXPECT_EQ(own.values(), expected) << count << " ranks, " << rows << " x " << cols;
        }
      }
    }
  }
}

// Many bytes are added up in shares; in few, each rank adds up all. The first rows of both are the
// same sums.
TEST_P(RankExchange, SharesGiveTheSameBits) {
  SCOPED_TRACE(random_.trace());
  constexpr int64_t kCols = 1024, kMany = 300, kFew = 4;
  const Ranks ranks(4, 1 << 20, GetParam());
  for (const int64_t extra : {0, 3}) {  // the last share is smaller
    const auto x = parts(4, DType::kBF16, 1, kMany * kCols + extra);
    std::vector<DeviceMatrix> few;
    for (const DeviceMatrix& own : x) {
      std::vector<float> first = own.values();
      first.resize(kFew * kCols);
      few.emplace_back(DType::kBF16, kFew, kCols, first);
    }
    const std::vector<float> expected = sum_in_order(x);
    ranks.run([&](const RankLinks& links, Stream stream) {
      const auto r = static_cast<size_t>(links.rank);
      all_reduce({.links = links, .dtype = DType::kBF16, .x = x[r].matrix()}, stream);
      all_reduce({.links = links, .dtype = DType::kBF16, .x = few[r].matrix()}, stream);
    });
    for (size_t r = 0; r < x.size(); ++r) {
      const std::vector<float> all = x[r].values(), some = few[r].values();
      EXPECT_EQ(all, expected);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
    }
  }
}

// And its codes. out may be the delta. Rows that aren't aligned take two ops.
TEST_P(RankExchange, ASumWithItsNormIsTheTwoOps) {
  SCOPED_TRACE(random_.trace());
  const Ranks linked(3, 1 << 16, GetParam()), carried(3, 1 << 16, GetParam(), true);
  for (const DType dtype : kDTypes) {
    const Ranks& ranks = dtype == DType::kF16 ? carried : linked;
    for (const auto& [rows, cols] : {std::pair{1, 64}, {3, 40}, {5, 520}}) {
      const DType weights = rows == 5 ? DType::kF32 : dtype;
      const DeviceMatrix weight(weights, 1, cols, random_.uniforms(weights, cols, 0.5f, 2.0f));
      const auto delta = parts(3, dtype, rows, cols);
      const std::vector<float> before = random_.uniforms(dtype, int64_t{rows} * cols);
      const QuantLayout layout{
          {16, cols, false},
          {.bits = 8,
           .group_size = 128,
           .activations = rows == 3 ? Activations::kFloat8Rows : Activations::kFloat8Groups}};
      const auto bytes = static_cast<size_t>(RoundedRows(layout, rows).bytes());
      std::vector<float> got[2][2];  // [one op, two][residual, out] of rank 1
      std::vector<uint8_t> codes[2];
      for (const bool two : {false, true}) {
        std::vector<DeviceMatrix> residual, own;
        std::vector<DeviceArray<uint8_t>> rounded;
        for (int r = 0; r < 3; ++r) {
          rounded.emplace_back(std::vector<uint8_t>(bytes, 0xee));
          residual.emplace_back(dtype, rows, cols, before, 8);
          own.emplace_back(dtype, rows, cols, delta[static_cast<size_t>(r)].values());
        }
        ranks.run([&](const RankLinks& links, Stream stream) {
          const auto r = static_cast<size_t>(links.rank);
          RmsNormArgs norm{.dtype = dtype,
                           .x = residual[r].matrix(),
                           .delta = own[r].matrix(),
                           .weight = weight.data(),
                           .eps = 1e-5f,
                           .out = own[r].matrix(),
                           .float_weight = weights == DType::kF32};
          if (two) {
            all_reduce({.links = links, .dtype = dtype, .x = own[r].matrix()}, stream);
            rms_norm(norm, stream);
            round_rows({dtype, own[r].matrix(), layout, rounded[r].data()}, stream);
          } else {
            RmsNormArgs odd = norm;
            ++odd.x.stride;
            EXPECT_FALSE(takes_reduce_add_norm({links, odd}));
            norm.rounded = {rounded[r].data(), layout};
            reduce_add_norm({links, norm}, stream);
          }
        });
        got[two][0] = residual[1].values();
        got[two][1] = own[1].values();
        codes[two] = rounded[1].values();
      }
      EXPECT_EQ(got[0][0], got[1][0]) << rows << " x " << cols;
      EXPECT_EQ(got[0][1], got[1][1]) << rows << " x " << cols;
      EXPECT_EQ(codes[0], codes[1]) << rows << " x " << cols;
    }
  }
}

// Blocks that wait are few: a row more takes the two ops, and sums take several rounds of a block.
TEST_P(RankExchange, FewBlocksWait) {
  SCOPED_TRACE(random_.trace());
  constexpr int64_t kRows = 7, kCols = 1024;
  Ranks ranks(2, 1 << 16, GetParam());
  const DeviceMatrix weight(DType::kF32, 1, kCols);
  const auto takes = [&](int64_t rows) {
    const DeviceMatrix x(DType::kF32, rows, 64);
    return takes_reduce_add_norm({ranks.of(0),
                                  {.dtype = DType::kF32,
                                   .x = x.matrix(),
                                   .delta = x.matrix(),
                                   .weight = weight.data(),
                                   .out = x.matrix()}});
  };
  EXPECT_TRUE(takes(kMostExchangeBlocks));
  EXPECT_FALSE(takes(kMostExchangeBlocks + 1));
  for (size_t r = 0; r < 2; ++r) ranks.of(r).most_blocks = 2;
  EXPECT_TRUE(takes(2));
  EXPECT_FALSE(takes(3));
  const auto x = parts(2, DType::kF32, kRows, kCols);
  const std::vector<float> expected = sum_in_order(x);
  ranks.run([&](const RankLinks& links, Stream stream) {
    all_reduce({.links = links, .x = x[static_cast<size_t>(links.rank)].matrix()}, stream);
  });
  for (const DeviceMatrix& own : x) EXPECT_EQ(own.values(), expected);
}

// Of equal and of different widths; a rank may want none.
TEST_P(RankExchange, PartsComeSideBySide) {
  SCOPED_TRACE(random_.trace());
  for (const auto& [count, carried] : {std::pair{2, false}, {4, false}, {4, true}}) {
    const Ranks ranks(count, carried ? 2048 : 1024, GetParam(), carried);
    for (const auto& [rows, cols, more, dtype] : {std::tuple{1, 128, 0, DType::kF32},
                                                  {5, 33, 1, DType::kF32},
                                                  {7, 64, 4, DType::kF32},
                                                  {7, 64, 4, DType::kBF16},
                                                  {5, 40, 8, DType::kF16}}) {
      GatherColumnsArgs args{.dtype = dtype};
      for (int r = 0; r < kMostRanks; ++r)
        args.begins[r + 1] = args.begins[r] + cols + r % 2 * more;
      std::vector<DeviceMatrix> x, out;
      for (int32_t r = 0; r < count; ++r) {
        const int64_t own = cols + r % 2 * more;
        x.emplace_back(dtype, rows, own, random_.uniforms(dtype, rows * own));
        out.emplace_back(dtype, rows, args.begins[count], 8);
      }
      ranks.run([&](const RankLinks& links, Stream stream) {
        const auto r = static_cast<size_t>(links.rank);
        GatherColumnsArgs own = args;
        own.links = links;
        own.part = x[r].matrix();
        if (r != 1) own.out = out[r].matrix();
        gather_columns(own, stream);
      });
      for (int32_t r = 0; r < count; ++r) {
        const DeviceMatrix& all = out[static_cast<size_t>(r)];
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0, p = 0; j < all.cols(); ++j) {
            if (j == args.begins[p + 1]) ++p;
            if (r == 1) {
              ASSERT_TRUE(std::isnan(all.at(i, j)));
            } else {
              ASSERT_EQ(all.at(i, j), x[static_cast<size_t>(p)].at(i, j - args.begins[p]));
            }
          }
        }
      }
    }
  }
}

TEST_P(RankExchange, WordsOfTheFirstRankReachAll) {
  const Ranks linked(3, 1024, GetParam()), carried(3, 2048, GetParam(), true);
  for (const size_t count : {1u, 100u, 256u}) {
    const Ranks& ranks = count == 100u ? carried : linked;
    std::vector<DeviceArray<uint32_t>> words;
    for (uint32_t r = 0; r < 3; ++r) {
      std::vector<uint32_t> own(count);
      for (size_t i = 0; i < count; ++i) own[i] = r << 30 | static_cast<uint32_t>(i) | 0x7f800000u;
      words.emplace_back(own);
    }
    const std::vector<uint32_t> expected = words[0].values();
    ranks.run([&](const RankLinks& links, Stream stream) {
      send_words(
          {links, words[static_cast<size_t>(links.rank)].data(), static_cast<int64_t>(count)},
          stream);
    });
    for (const auto& own : words) EXPECT_EQ(own.values(), expected);
  }
}

// Exchanges follow each other without a word from the host, and ranks may be one ahead.
TEST_P(RankExchange, ManyExchangesInARow) {
  SCOPED_TRACE(random_.trace());
  constexpr int kTimes = 50;
  const Ranks ranks(3, 1024, GetParam());
  const auto x = parts(3, DType::kF32, 1, 96);
  std::vector<float> expected = sum_in_order(x);
  for (int i = 1; i < kTimes; ++i) {
    for (float& v : expected) v = v + v + v;
  }
  ranks.run([&](const RankLinks& links, Stream stream) {
    for (int i = 0; i < kTimes; ++i) {
      all_reduce({.links = links, .x = x[static_cast<size_t>(links.rank)].matrix()}, stream);
    }
  });
  for (const DeviceMatrix& own : x) EXPECT_EQ(own.values(), expected);
}

TEST_P(RankExchange, ARankThatDoesNotComeHoldsUpNobodyOnceStopped) {
  const Ranks ranks(2, 1024, GetParam());
  const DeviceMatrix x(DType::kF32, 1, 64, std::vector<float>(64, 1.0f));
  std::atomic<bool> over{false};
  std::thread waits([&] {
    const auto stream = make_stream();
    all_reduce({.links = ranks.of(0), .x = x.matrix()}, stream.get());
    over = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(over);
  ranks.stop();
  waits.join();
  EXPECT_TRUE(over);
}

#if defined(HEADRACE_CUDA_EMULATION)
TEST_P(RankExchange, ARankThatDoesNotComeIsNotWaitedForForever) {
  const Ranks ranks(2, 1024, GetParam());
  const DeviceMatrix x(DType::kF32, 1, 64, std::vector<float>(64, 1.0f));
  emulation::set_longest_wait_outside(std::chrono::milliseconds(20));
  all_reduce({.links = ranks.of(0), .x = x.matrix()}, nullptr);
  emulation::set_longest_wait_outside(std::chrono::seconds(120));
  EXPECT_EQ(*ranks.of(0).stop, kNoAnswer);
}
#endif

HEADRACE_KERNEL_TESTS(RankExchange);

}  // namespace
}  // namespace headrace::cuda
