#include "kv/kv_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "headrace/status.h"

namespace headrace {
namespace {

using Tokens = std::vector<int32_t>;

/// What a scheduler does with blocks, without its rules: sequences that start with a hit, fill
/// blocks, publish them and leave. Knows what every block holds.
class Model {
 public:
  Model(uint64_t seed, int32_t num_blocks, int32_t block_size, bool caching)
      : random_(seed),
        size_(static_cast<size_t>(block_size)),
        blocks_(num_blocks, block_size, caching),
        content_(static_cast<size_t>(num_blocks)),
        released_at_(static_cast<size_t>(num_blocks), 0) {}

  void step() {
    const uint64_t kind = random_() % 8;
    if (kind < 2 || sequences_.empty()) {
      start();
    } else if (kind < 6) {
      fill_one(sequences_[random_() % sequences_.size()]);
    } else if (kind < 7 || random_() % 10 > 0) {
      finish(random_() % sequences_.size());
    } else {
      blocks_.clear_cache();
      EXPECT_EQ(blocks_.pool().num_cached(), 0);
    }
  }

  void finish_all() {
    while (!sequences_.empty()) finish(0);
  }

  void check() const {
    const BlockPool& pool = blocks_.pool();
    const PrefixIndex& index = blocks_.index();
    std::map<int32_t, int32_t> holders, children;
    for (const Sequence& sequence : sequences_) {
      for (size_t i = 0; i < sequence.table.size(); ++i) {
        const int32_t block = sequence.table[i];
        ++holders[block];
        ASSERT_EQ(content_[static_cast<size_t>(block)], chain(sequence, i + 1));
        ASSERT_EQ(blocks_.prefix_caching() && i < sequence.published,
                  blocks_.prefix_caching() && index.contains(block));
      }
    }
    int32_t held = 0, cached = 0, indexed = 0, oldest = KvBlocks::kNone;
    for (int32_t block = 0; block < pool.num_blocks(); ++block) {
      const auto b = static_cast<size_t>(block);
      ASSERT_EQ(pool.holders(block), holders[block]);
      held += holders[block] > 0;
      if (!blocks_.prefix_caching() || !index.contains(block)) {
        ASSERT_FALSE(pool.is_cached(block));
        continue;
      }
      ++indexed;
      ASSERT_EQ(pool.is_cached(block), holders[block] == 0);
      // The entry's chain is what the block holds.
      const Chain& chain = content_[b];
      ASSERT_TRUE(std::equal(chain.tokens.end() - static_cast<int64_t>(size_), chain.tokens.end(),
                             index.tokens(block).begin()));
      const int32_t parent = index.parent(block);
      ASSERT_EQ(parent == KvBlocks::kNone, chain.tokens.size() == size_);
      if (parent != KvBlocks::kNone) {
        ++children[parent];
        ASSERT_TRUE(index.contains(parent)) << "a hole";
        ASSERT_GE(holders[parent], holders[block]);
        ASSERT_EQ(content_[static_cast<size_t>(parent)], chain.without_last(size_));
      }
      if (!pool.is_cached(block)) continue;
      ++cached;
      if (oldest == KvBlocks::kNone ||
          released_at_[b] < released_at_[static_cast<size_t>(oldest)]) {
        oldest = block;
      }
    }
    for (const auto& [block, n] : children) ASSERT_EQ(index.children(block), n);
    ASSERT_EQ(index.size(), indexed);
    ASSERT_EQ(pool.num_held(), held);
    ASSERT_EQ(pool.num_cached(), cached);
    ASSERT_EQ(pool.num_free() + cached + held, pool.num_blocks());
    ASSERT_EQ(blocks_.available(), pool.num_blocks() - held);
    ASSERT_EQ(pool.oldest_cached(), oldest);
    if (oldest != KvBlocks::kNone) {
      ASSERT_EQ(index.children(oldest), 0);
    }
  }

  const KvBlocks& blocks() const { return blocks_; }

 private:
  /// What a block holds is decided by everything up to its end.
  struct Chain {
    uint64_t space = 0;
    Tokens tokens;
    auto operator<=>(const Chain&) const = default;
    Chain without_last(size_t n) const {
      return {space, Tokens(tokens.begin(), tokens.end() - static_cast<int64_t>(n))};
    }
  };
  struct Sequence {
    uint64_t space = 0;
    Tokens tokens;
    std::vector<int32_t> table;  ///< every block full
    size_t published = 0;
  };

  Chain chain(const Sequence& sequence, size_t num_blocks) const {
    return {sequence.space,
            Tokens(sequence.tokens.begin(),
                   sequence.tokens.begin() + static_cast<int64_t>(num_blocks * size_))};
  }

  void start() {
    Sequence sequence;
    sequence.space = random_() % 5 == 0;
    const size_t length = random_() % (6 * size_ + 1);
    for (size_t i = 0; i < length; ++i) sequence.tokens.push_back(random_() % 4 == 0);
    std::set<Chain> findable;
    for (int32_t block = 0; block < blocks_.pool().num_blocks(); ++block) {
      if (blocks_.prefix_caching() && blocks_.index().contains(block)) {
        findable.insert(content_[static_cast<size_t>(block)]);
      }
    }
    size_t longest = 0;
    while ((longest + 1) * size_ <= length && findable.contains(chain(sequence, longest + 1))) {
      ++longest;
    }
    sequence.table = blocks_.acquire_prefix(sequence.space, sequence.tokens);
    sequence.published = sequence.table.size();
    EXPECT_EQ(sequence.table.size(), longest);
    sequences_.push_back(sequence);
  }

  void fill_one(Sequence& sequence) {
    if (random_() % 2 == 0 && sequence.published < sequence.table.size()) {
      const size_t i = sequence.published++;
      const int32_t own = sequence.table[i];
      blocks_.publish(sequence.space, sequence.table, i,
                      std::span(sequence.tokens).subspan(i * size_, size_));
      if (sequence.table[i] != own) {
        EXPECT_EQ(blocks_.pool().holders(own), 0) << "the duplicate is given back";
      }
      return;
    }
    const int32_t available = blocks_.available();
    const int32_t block = blocks_.take();
    EXPECT_EQ(block == KvBlocks::kNone, available == 0);
    if (block == KvBlocks::kNone) return;
    sequence.table.push_back(block);
    while (sequence.tokens.size() < sequence.table.size() * size_) {
      sequence.tokens.push_back(random_() % 4 == 0);
    }
    content_[static_cast<size_t>(block)] = chain(sequence, sequence.table.size());
  }

  void finish(size_t i) {
    const auto& table = sequences_[i].table;
    for (size_t k = table.size(); k-- > 0;) released_at_[static_cast<size_t>(table[k])] = ++now_;
    blocks_.release(table);
    sequences_.erase(sequences_.begin() + static_cast<int64_t>(i));
  }

  std::mt19937_64 random_;
  size_t size_;
  KvBlocks blocks_;
  std::vector<Chain> content_;
  std::vector<int64_t> released_at_;
  std::vector<Sequence> sequences_;
  int64_t now_ = 0;
};

TEST(KvBlocks, KeepsItsInvariantsUnderRandomSequences) {
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Model model(seed, static_cast<int32_t>(1 + seed % 23), static_cast<int32_t>(1 + seed % 3),
                seed % 7 != 0);
    for (int step = 0; step < 150; ++step) {
      model.step();
      model.check();
      if (HasFailure()) return;
    }
    model.finish_all();
    model.check();
    EXPECT_EQ(model.blocks().available(), model.blocks().pool().num_blocks());
    if (HasFailure()) return;
  }
}

TEST(KvBlocks, EvictsTheLeafUsedLongestAgo) {
  KvBlocks blocks(4, 1, true);
  const auto run = [&](const Tokens& tokens) {
    std::vector<int32_t> table = blocks.acquire_prefix(0, tokens);
    for (size_t i = table.size(); i < tokens.size(); ++i) {
      table.push_back(blocks.take());
      blocks.publish(0, table, i, std::span(tokens).subspan(i, 1));
    }
    blocks.release(table);
    return table;
  };
  const auto hit = [&](const Tokens& tokens) {
    const auto table = blocks.acquire_prefix(0, tokens);
    blocks.release(table);
    return table.size();
  };
  run({1, 2, 3});
  run({7});
  EXPECT_EQ(hit({1, 2, 3}), 3u);
  run({8});
  EXPECT_EQ(hit({7}), 0u);
  run({9});
  EXPECT_EQ(hit({1, 2, 3}), 2u) << "the chain is shortened from its end";
  EXPECT_EQ(hit({8}), 1u);
}

TEST(KvBlocks, DuplicatesAreMergedWhenPublished) {
  KvBlocks blocks(4, 2, true);
  const Tokens tokens = {5, 6, 7, 8};
  std::vector<int32_t> a = {blocks.take(), blocks.take()}, b = {blocks.take(), blocks.take()};
  const std::vector<int32_t> first = a;
  for (size_t i = 0; i < 2; ++i) {
    blocks.publish(0, a, i, std::span(tokens).subspan(i * 2, 2));
    blocks.publish(0, b, i, std::span(tokens).subspan(i * 2, 2));
  }
  EXPECT_EQ(a, first);
  EXPECT_EQ(b, first);
  EXPECT_EQ(blocks.available(), 2);
  EXPECT_EQ(blocks.pool().holders(first[0]), 2);
}

TEST(KvBlocks, WithoutCachingNothingIsFound) {
  KvBlocks blocks(2, 1, false);
  std::vector<int32_t> table = {blocks.take()};
  const Tokens tokens = {3};
  blocks.publish(0, table, 0, tokens);
  EXPECT_TRUE(blocks.acquire_prefix(0, tokens).empty());
  blocks.release(table);
  EXPECT_EQ(blocks.pool().num_free(), 2);
}

}  // namespace
}  // namespace headrace
