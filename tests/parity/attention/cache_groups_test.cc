// A cache whose layers are several groups, each with block tables of its own: the bits are those of
// one group, also when what a window has left behind is given back and written by others.

#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <numeric>
#include <tuple>
#include <vector>

#include "base/checked_math.h"
#include "parity/attention/attention_harness.h"

namespace headrace::test {
namespace {

constexpr int32_t kWindow = 40, kTokens = 230, kBlock = 16, kKvHeads = 2, kDim = 32;

/// Layer 0 sees all, layer 1 a window.
CacheLayout two_groups(DType dtype) {
  const PagedRows all = kv_rows(kKvHeads, kDim, dtype);
  PagedRows sliding = all;
  sliding.window = kWindow;
  return {kBlock, {{all, 1}, {sliding, 1}}, {{0, 0}, {1, 0}}};
}

/// Layers 0 and 2 see all, with larger rows than layer 1, which has a window.
CacheLayout unlike_groups(DType dtype) {
  PagedRows sliding = kv_rows(kKvHeads, kDim, dtype);
  sliding.window = kWindow;
  return {kBlock, {{kv_rows(1, 80, dtype), 2}, {sliding, 1}}, {{0, 0}, {1, 0}, {0, 1}}};
}

/// A sequence on a cache: blocks come from one pool, in the order of their release.
class Sequence {
 public:
  Sequence(Backend& backend, const CacheLayout& layout, int32_t num_blocks)
      : backend_(backend), cache_(backend.make_kv_cache(layout, num_blocks)) {
    for (int32_t i = 0; i < num_blocks; ++i) free_.push_back(i);
    tables_.resize(layout.groups.size());
  }

  /// Each layer's results [rows][nq*d] of the next rows, whose numbers depend on layer and position
  /// alone.
  std::vector<std::vector<float>> step(int32_t rows) {
    const int32_t end = length_ + rows;
    for (auto& table : tables_) {
      while (static_cast<int32_t>(table.size()) * kBlock < end) {
        table.push_back(free_.front());
        free_.pop_front();
      }
    }
    std::vector<int32_t> positions(static_cast<size_t>(rows));
    std::iota(positions.begin(), positions.end(), length_);
    const std::vector<SeqSlice> seqs = {{0, rows, length_, tables_}};
    StepBatch batch{positions, positions, positions, seqs, {}};
    batch.cache = cache_.get();
    backend_.begin_step(batch);
    std::vector<std::vector<float>> out;
    for (int32_t layer = 0; layer < cache_->layout().num_layers(); ++layer) {
      out.push_back(run(layer, rows));
    }
    length_ = end;
    return out;
  }

  /// Gives back what no later row reads of a sliding group.
  void give_back() {
    const int32_t first = std::max(0, length_ - kWindow + 1) / kCacheTile * kCacheTile;
    for (int32_t i = 0; i < first / kBlock; ++i) {
      int32_t& block = tables_.back()[static_cast<size_t>(i)];
      if (block != kNoBlock) free_.push_back(block);
      block = kNoBlock;
    }
  }

  int32_t blocks_left() const { return static_cast<int32_t>(free_.size()); }

 private:
  std::vector<float> run(int32_t layer, int32_t rows) {
    const PagedRows& kept = cache_->layout().rows(layer);
    const int32_t kv_heads = kept.num_kv_heads, heads = 2 * kv_heads, d = kept.key_dim;
    const int64_t width = (heads + 2 * kv_heads) * d, out_width = heads * d;
    std::vector<float> qkv, out(static_cast<size_t>(rows * out_width));
    for (int32_t i = 0; i < rows; ++i) {
      const uint64_t seed = static_cast<uint64_t>(layer * 1000 + length_ + i);
      const std::vector<float> row = parity::Random(seed).uniforms(width, -1.0f, 1.0f);
      qkv.insert(qkv.end(), row.begin(), row.end());
    }
    const TensorView x(qkv.data(), DType::kF32, {rows, width});
    backend_.rope_kv_write(x, {heads, kv_heads, d, {}, {}, 1e-6f}, RopeSpec{}, TensorView{},
                           *cache_, layer);
    const AttentionSpec spec{heads, kv_heads, d, 0.2f, layer == 1 ? kWindow : 0};
    backend_.attention(x.columns(0, out_width), spec, *cache_, layer,
                       TensorView(out.data(), DType::kF32, {rows, out_width}));
    return out;
  }

  Backend& backend_;
  std::unique_ptr<KvCache> cache_;
  std::deque<int32_t> free_;
  std::vector<std::vector<int32_t>> tables_;
  int32_t length_ = 0;
};

class CacheGroups : public testing::TestWithParam<std::tuple<std::string, DType>> {};

TEST_P(CacheGroups, GiveTheBitsOfOne) {
  const auto& [isa, dtype] = GetParam();
  const auto backend = backend_of(isa);
  constexpr int32_t kAll = ceil_div(kTokens, kBlock);
  Sequence whole(*backend, CacheLayout::uniform(2, kv_rows(kKvHeads, kDim, dtype), kBlock), kAll);
  Sequence parted(*backend, two_groups(dtype), 2 * kAll);
  // All of one group, and what a window, its tile and a chunk need of the other.
  Sequence tight(*backend, two_groups(dtype), kAll + (kWindow + kCacheTile + 33) / kBlock + 1);
  for (int32_t done = 0, rows = 33; done < kTokens; done += rows) {
    rows = done < 160 ? 33 : 1;
    const auto want = whole.step(rows);
    ASSERT_EQ(parted.step(rows), want) << done;
    ASSERT_EQ(tight.step(rows), want) << done;
    tight.give_back();
  }
  EXPECT_EQ(parted.blocks_left(), 0);
}

TEST_P(CacheGroups, OfUnlikeRowsGiveTheBitsOfEachAlone) {
  const auto& [isa, dtype] = GetParam();
  const auto backend = backend_of(isa);
  constexpr int32_t kAll = ceil_div(kTokens, kBlock);
  const CacheLayout unlike = unlike_groups(dtype);
  Sequence both(*backend, unlike, 2 * kAll);
  Sequence large(*backend, CacheLayout::uniform(3, unlike.rows(0), kBlock), kAll);
  Sequence small(*backend, CacheLayout::uniform(3, kv_rows(kKvHeads, kDim, dtype), kBlock), kAll);
  for (int32_t done = 0, rows = 33; done < kTokens; done += rows) {
    rows = done < 160 ? 33 : 1;
    const auto got = both.step(rows), first = large.step(rows), second = small.step(rows);
    ASSERT_EQ(got[0], first[0]) << done;
    ASSERT_EQ(got[1], second[1]) << done;
    ASSERT_EQ(got[2], first[2]) << done;
    both.give_back();
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, CacheGroups,
                         testing::Combine(testing::ValuesIn([] {
                                            std::vector<std::string> isas = kernel_isas();
                                            isas.emplace_back("reference");
                                            return isas;
                                          }()),
                                          testing::Values(DType::kF32, DType::kBF16, DType::kI8)),
                         [](const auto& instance) {
                           return std::get<0>(instance.param) + "_" +
                                  dtype_name(std::get<1>(instance.param));
                         });

TEST(CacheLayouts, HaveBlocksAsLargeAsTheLargestGroups) {
  const auto backend = backend_of("");
  const PagedRows rows = kv_rows(kKvHeads, kDim, DType::kF32);
  const size_t one = backend->kv_block_bytes(CacheLayout::uniform(1, rows, kBlock));
  EXPECT_EQ(one, size_t{2 * kKvHeads * kDim * kBlock * 4});
  EXPECT_EQ(backend->kv_block_bytes(two_groups(DType::kF32)), one);
  EXPECT_EQ(backend->kv_block_bytes(CacheLayout::uniform(5, rows, kBlock)), 5 * one);
}

TEST(CacheLayouts, RefuseGroupsOfOtherDtypesAndPlacesThatAreNotThere) {
  const auto backend = backend_of("");
  CacheLayout layout = two_groups(DType::kF32);
  layout.groups[1].rows.dtype = DType::kBF16;
  EXPECT_THROW(backend->make_kv_cache(layout, 1), InternalError);
  layout = two_groups(DType::kF32);
  layout.layers[1].slot = 1;
  EXPECT_THROW(backend->make_kv_cache(layout, 1), InternalError);
}

TEST(CacheLayouts, AStepUsesTheCacheThatItNames) {
  const auto backend = backend_of("");
  Sequence first(*backend, two_groups(DType::kF32), 8),
      second(*backend, two_groups(DType::kF32), 8);
  const auto want = first.step(20);
  EXPECT_EQ(second.step(20), want);
  EXPECT_EQ(first.step(3), second.step(3)) << "whichever was made last";
}

}  // namespace
}  // namespace headrace::test
