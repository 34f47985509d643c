#include "kv/kv_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "every_case.h"
#include "headrace/status.h"

namespace headrace {
namespace {

using Tokens = std::vector<int32_t>;
const CacheIdentity kAny;

/// What a scheduler does with blocks, without its rules: sequences that start with a hit, fill
/// blocks, publish them and leave. Knows what every block and host block holds, and makes the
/// copies at the last moment.
class Model {
 public:
  Model(uint64_t seed, int32_t num_blocks, int32_t block_size, bool caching,
        int32_t num_host_blocks = 0)
      : random_(seed),
        size_(static_cast<size_t>(block_size)),
        blocks_(num_blocks, {.block_size = block_size}, caching, num_host_blocks),
        content_(static_cast<size_t>(num_blocks)),
        host_content_(static_cast<size_t>(num_host_blocks)),
        released_at_(static_cast<size_t>(num_blocks), 0),
        used_at_(static_cast<size_t>(num_host_blocks), 0) {}

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
      EXPECT_EQ(blocks_.pool().num_cached() + blocks_.host_pool().num_cached(), 0);
    }
    note_copies();
    if (random_() % 4 == 0) copy();
  }

  void finish_all() {
    while (!sequences_.empty()) finish(0);
  }

  /// REQUIRES: no copy is left to be made.
  void check() {
    copy();
    check_holders();
    check_nodes();
    check_pools();
  }

  const KvBlocks& blocks() const { return blocks_; }
  uint64_t restored() const { return restored_; }

 private:
  static constexpr int32_t kItemRows = 3;
  /// What a block holds is decided by everything up to its end.
  struct Chain {
    uint64_t adapter = 0;
    Tokens tokens;
    Tokens marks;  ///< of each token: its item and its row in that, 0 outside of items
    auto operator<=>(const Chain&) const = default;
    Chain first(size_t n) const {
      const auto count = static_cast<int64_t>(n);
      return {adapter, Tokens(tokens.begin(), tokens.begin() + count),
              Tokens(marks.begin(), marks.begin() + count)};
    }
  };
  struct Sequence {
    CacheIdentity identity;
    Tokens tokens;
    KvTables tables{1};  ///< every block full
    size_t published = 0;
  };

  static const Tokens& table(const Sequence& sequence) { return sequence.tables.groups.front(); }

  Chain chain(const Sequence& sequence, size_t num_blocks) const {
    Chain whole = {sequence.identity.sequence.adapter, sequence.tokens,
                   Tokens(sequence.tokens.size(), 0)};
    for (const MediaItem& item : *sequence.identity.media) {
      for (int32_t p = item.first; p < item.last; ++p) {
        whole.marks[static_cast<size_t>(p)] =
            static_cast<int32_t>(item.digest[1]) * kItemRows + p - item.first;
      }
    }
    return whole.first(num_blocks * size_);
  }

  void check_holders() const {
    std::map<int32_t, int32_t> holders;
    for (const Sequence& sequence : sequences_) {
      for (size_t i = 0; i < table(sequence).size(); ++i) {
        const int32_t block = table(sequence)[i];
        ++holders[block];
        ASSERT_EQ(content_[static_cast<size_t>(block)], chain(sequence, i + 1));
        ASSERT_EQ(blocks_.prefix_caching() && i < sequence.published,
                  blocks_.node_in(block) != KvBlocks::kNone);
      }
    }
    for (int32_t block = 0; block < blocks_.pool().num_blocks(); ++block) {
      ASSERT_EQ(blocks_.pool().holders(block), holders[block]);
    }
  }

  /// Every node is in one place, which holds its chain, behind a parent that is at least as near.
  void check_nodes() const {
    const PrefixIndex& index = blocks_.index();
    std::map<int32_t, const Chain*> nodes;
    std::map<int32_t, int32_t> children;
    for (size_t block = 0; block < content_.size(); ++block) {
      const int32_t node = blocks_.node_in(static_cast<int32_t>(block));
      if (node == KvBlocks::kNone) continue;
      ASSERT_TRUE(nodes.emplace(node, &content_[block]).second) << "in two places";
      const int32_t parent = index.parent(node);
      if (parent != KvBlocks::kNone) {
        ASSERT_FALSE(host_nodes().contains(parent)) << "a hole among the blocks";
      }
    }
    for (const auto& [node, host_block] : host_nodes()) {
      ASSERT_TRUE(nodes.emplace(node, &host_content_[static_cast<size_t>(host_block)]).second);
    }
    for (const auto& [node, chain] : nodes) {
      ASSERT_TRUE(index.contains(node));
      ASSERT_TRUE(std::equal(chain->tokens.end() - static_cast<int64_t>(size_), chain->tokens.end(),
                             index.content(node).tokens.begin()));
      const int32_t parent = index.parent(node);
      ASSERT_EQ(parent == KvBlocks::kNone, chain->tokens.size() == size_);
      if (parent == KvBlocks::kNone) continue;
      ++children[parent];
      ASSERT_TRUE(nodes.contains(parent)) << "a hole";
      ASSERT_EQ(*nodes[parent], chain->first(chain->tokens.size() - size_));
    }
    for (const auto& [node, n] : children) ASSERT_EQ(index.children(node), n);
    ASSERT_EQ(static_cast<size_t>(index.size()), nodes.size());
  }

  void check_pools() const {
    const BlockPool& pool = blocks_.pool();
    int32_t held = 0, cached = 0, oldest = KvBlocks::kNone;
    for (int32_t block = 0; block < pool.num_blocks(); ++block) {
      held += pool.holders(block) > 0;
      const bool indexed = blocks_.node_in(block) != KvBlocks::kNone;
      ASSERT_EQ(pool.is_cached(block), indexed && pool.holders(block) == 0);
      if (!pool.is_cached(block)) continue;
      ++cached;
      const auto age = [&](int32_t b) { return released_at_[static_cast<size_t>(b)]; };
      if (oldest == KvBlocks::kNone || age(block) < age(oldest)) oldest = block;
    }
    ASSERT_EQ(pool.num_held(), held);
    ASSERT_EQ(pool.num_cached(), cached);
    ASSERT_EQ(pool.num_free() + cached + held, pool.num_blocks());
    ASSERT_EQ(blocks_.available(), pool.num_blocks() - held);
    ASSERT_EQ(pool.oldest_cached(), oldest);

    const BlockPool& host = blocks_.host_pool();
    const std::map<int32_t, int32_t> used = host_nodes();
    ASSERT_EQ(static_cast<size_t>(host.num_cached()), used.size());
    ASSERT_EQ(host.num_held(), 0);
    const auto is_older = [&](const auto& a, const auto& b) {
      return used_at_[static_cast<size_t>(a.second)] < used_at_[static_cast<size_t>(b.second)];
    };
    const auto first = std::ranges::min_element(used, is_older);
    ASSERT_EQ(host.oldest_cached(), used.empty() ? KvBlocks::kNone : first->second);
    if (!used.empty()) {
      ASSERT_EQ(blocks_.index().children(first->first), 0) << "forgetting it leaves a hole";
    }
  }

  /// Host block by node.
  std::map<int32_t, int32_t> host_nodes() const {
    std::map<int32_t, int32_t> out;
    for (int32_t b = 0; b < blocks_.host_pool().num_blocks(); ++b) {
      const int32_t node = blocks_.node_in_host(b);
      if (node != KvBlocks::kNone) out[node] = b;
    }
    return out;
  }

  std::set<Chain> findable() const {
    std::set<Chain> out;
    for (size_t b = 0; b < content_.size(); ++b) {
      if (blocks_.node_in(static_cast<int32_t>(b)) != KvBlocks::kNone) out.insert(content_[b]);
    }
    for (const auto& [node, b] : host_nodes()) {
      out.insert(host_content_[static_cast<size_t>(b)]);
    }
    return out;
  }

  void start() {
    copy();
    Sequence sequence;
    sequence.identity.sequence.adapter = random_() % 5 == 0;
    const size_t length = random_() % (6 * size_ + 1);
    for (size_t i = 0; i < length; ++i) sequence.tokens.push_back(random_() % 4 == 0);
    std::vector<MediaItem> items;
    for (int32_t p = 0; random_() % 3 == 0 && p + kItemRows <= static_cast<int32_t>(length);
         p += kItemRows + 1) {
      if (random_() % 2 == 0) items.push_back({{0, 1 + random_() % 2, 0, 0}, p, p + kItemRows});
    }
    sequence.identity.media = std::make_shared<const std::vector<MediaItem>>(std::move(items));
    const std::set<Chain> known = findable();
    size_t longest = 0;
    while ((longest + 1) * size_ <= length && known.contains(chain(sequence, longest + 1))) {
      ++longest;
    }
    sequence.tables = blocks_.acquire_prefix(sequence.identity, sequence.tokens);
    const size_t in_blocks = table(sequence).size();
    if (blocks_.host_pool().num_blocks() == 0) {
      EXPECT_EQ(in_blocks, longest);
    }
    if (random_() % 4 > 0) restore(sequence, longest);
    sequence.published = table(sequence).size();
    sequences_.push_back(sequence);
  }

  void restore(Sequence& sequence, size_t longest) {
    const size_t in_blocks = table(sequence).size();
    const auto available = static_cast<size_t>(blocks_.available());
    const int32_t restored =
        blocks_.restore_prefix(sequence.identity, sequence.tokens, sequence.tables);
    EXPECT_EQ(static_cast<size_t>(restored), table(sequence).size() - in_blocks);
    restored_ += static_cast<uint64_t>(restored);
    copy();
    for (size_t n = longest; n > table(sequence).size(); --n) {
      for (const auto& [node, b] : host_nodes()) {
        const auto host_block = static_cast<size_t>(b);
        if (host_content_[host_block] == chain(sequence, n)) used_at_[host_block] = ++now_;
      }
    }
    const size_t wanted = std::min(longest - in_blocks, available);
    EXPECT_LE(static_cast<size_t>(restored), wanted);
    // Only a chain that fills the host blocks has to make room for what it evicts.
    if (longest - in_blocks < host_content_.size()) {
      EXPECT_EQ(static_cast<size_t>(restored), wanted);
    }
  }

  void fill_one(Sequence& sequence) {
    if (random_() % 2 == 0 && sequence.published < table(sequence).size()) {
      const size_t i = sequence.published++;
      const int32_t own = table(sequence)[i];
      blocks_.publish(sequence.identity, sequence.tables, i,
                      std::span(sequence.tokens).subspan(i * size_, size_));
      if (table(sequence)[i] != own) {
        EXPECT_EQ(blocks_.pool().holders(own), 0) << "the duplicate is given back";
      }
      return;
    }
    const int32_t available = blocks_.available();
    const bool taken = blocks_.take_column(sequence.tables);
    EXPECT_EQ(taken, available > 0);
    if (!taken) return;
    const int32_t block = table(sequence).back();
    while (sequence.tokens.size() < table(sequence).size() * size_) {
      sequence.tokens.push_back(random_() % 4 == 0);
    }
    copy();
    content_[static_cast<size_t>(block)] = chain(sequence, table(sequence).size());
  }

  void finish(size_t i) {
    const Tokens& held = table(sequences_[i]);
    for (size_t k = held.size(); k-- > 0;) released_at_[static_cast<size_t>(held[k])] = ++now_;
    blocks_.release(sequences_[i].tables);
    sequences_.erase(sequences_.begin() + static_cast<int64_t>(i));
  }

  void note_copies() {
    const std::vector<BlockCopy> fresh = blocks_.take_copies();
    for (const BlockCopy& copy : fresh) {
      if (copy.to_host) used_at_[static_cast<size_t>(copy.host_block)] = ++now_;
    }
    to_copy_.insert(to_copy_.end(), fresh.begin(), fresh.end());
  }

  void copy() {
    note_copies();
    for (const BlockCopy& copy : to_copy_) {
      Chain& block = content_[static_cast<size_t>(copy.block)];
      Chain& host_block = host_content_[static_cast<size_t>(copy.host_block)];
      (copy.to_host ? host_block : block) = copy.to_host ? block : host_block;
    }
    to_copy_.clear();
  }

  std::mt19937_64 random_;
  size_t size_;
  KvBlocks blocks_;
  std::vector<Chain> content_, host_content_;
  std::vector<int64_t> released_at_, used_at_;
  std::vector<Sequence> sequences_;
  std::vector<BlockCopy> to_copy_;
  int64_t now_ = 0;
  uint64_t restored_ = 0;
};

TEST(KvBlocks, KeepsItsInvariantsUnderRandomSequences) {
  const uint64_t seeds = every_case() ? 600 : 120;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
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

TEST(KvBlocks, WhatIsEvictedMovesToHostBlocksAndBack) {
  uint64_t restored = 0, moved = 0;
  const uint64_t seeds = every_case() ? 1500 : 300;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Model model(seed, static_cast<int32_t>(1 + seed % 13), static_cast<int32_t>(1 + seed % 3),
                seed % 11 != 0, static_cast<int32_t>(seed % 17));
    for (int step = 0; step < 150; ++step) {
      model.step();
      if (step % 3 == 0) model.check();
      if (HasFailure()) return;
    }
    model.finish_all();
    model.check();
    EXPECT_EQ(model.blocks().moved_from_host(), model.restored());
    if (HasFailure()) return;
    restored += model.restored();
    moved += model.blocks().moved_to_host();
  }
  EXPECT_GT(moved, 10 * seeds / 3);
  EXPECT_GT(restored, 2 * seeds / 3);
}

TEST(KvBlocks, EvictsTheLeafUsedLongestAgo) {
  KvBlocks blocks(4, {.block_size = 1}, true);
  const auto run = [&](const Tokens& tokens) {
    KvTables table = blocks.acquire_prefix(kAny, tokens);
    for (auto i = static_cast<size_t>(table.columns()); i < tokens.size(); ++i) {
      blocks.take_column(table);
      blocks.publish(kAny, table, i, std::span(tokens).subspan(i, 1));
    }
    blocks.release(table);
  };
  const auto hit = [&](const Tokens& tokens) {
    KvTables table = blocks.acquire_prefix(kAny, tokens);
    const int32_t columns = table.columns();
    blocks.release(table);
    return columns;
  };
  run({1, 2, 3});
  run({7});
  EXPECT_EQ(hit({1, 2, 3}), 3);
  run({8});
  EXPECT_EQ(hit({7}), 0);
  run({9});
  EXPECT_EQ(hit({1, 2, 3}), 2) << "the chain is shortened from its end";
  EXPECT_EQ(hit({8}), 1);
}

TEST(KvBlocks, DuplicatesAreMergedWhenPublished) {
  KvBlocks blocks(4, {.block_size = 2}, true);
  const Tokens tokens = {5, 6, 7, 8};
  KvTables a(1), b(1);
  for (KvTables* tables : {&a, &a, &b, &b}) blocks.take_column(*tables);
  const std::vector<int32_t> first = a.groups[0];
  for (size_t i = 0; i < 2; ++i) {
    blocks.publish(kAny, a, i, std::span(tokens).subspan(i * 2, 2));
    blocks.publish(kAny, b, i, std::span(tokens).subspan(i * 2, 2));
  }
  EXPECT_EQ(a.groups[0], first);
  EXPECT_EQ(b.groups[0], first);
  EXPECT_EQ(blocks.available(), 2);
  EXPECT_EQ(blocks.pool().holders(first[0]), 2);
}

/// Computes and publishes what is not there, then leaves. Returns how much came from host blocks.
int32_t run(KvBlocks& blocks, const Tokens& tokens) {
  KvTables table = blocks.acquire_prefix(kAny, tokens);
  const int32_t restored = blocks.restore_prefix(kAny, tokens, table);
  for (auto i = static_cast<size_t>(table.columns()); i < tokens.size(); ++i) {
    blocks.take_column(table);
    blocks.publish(kAny, table, i, std::span(tokens).subspan(i, 1));
  }
  blocks.release(table);
  return restored;
}

TEST(KvBlocks, CopiesComeInTheOrderTheyHaveToBeMadeIn) {
  KvBlocks blocks(2, {.block_size = 1}, true, 4);
  run(blocks, {1, 2});
  run(blocks, {3, 4});  // drives out 2, then 1
  std::vector<BlockCopy> copies = blocks.take_copies();
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_TRUE(copies[0].to_host && copies[1].to_host);
  EXPECT_EQ(run(blocks, {1, 2}), 2);
  copies = blocks.take_copies();
  ASSERT_EQ(copies.size(), 4u);
  for (size_t i = 0; i < 4; i += 2) {
    EXPECT_TRUE(copies[i].to_host) << "a block is left";
    EXPECT_FALSE(copies[i + 1].to_host) << "before another takes it";
    EXPECT_EQ(copies[i].block, copies[i + 1].block);
  }
  EXPECT_TRUE(blocks.take_copies().empty());
}

TEST(KvBlocks, ForgetsTheHostBlockUsedLongestAgo) {
  KvBlocks blocks(1, {.block_size = 1}, true, 2);
  run(blocks, {1});
  run(blocks, {2});
  run(blocks, {3});                // host: 1, 2
  EXPECT_EQ(run(blocks, {1}), 1);  // host: 2, 3
  run(blocks, {4});                // host: 3, 1
  EXPECT_EQ(run(blocks, {2}), 0) << "forgotten";
  EXPECT_EQ(run(blocks, {4}), 1);
}

TEST(KvBlocks, WhatIsComputedAgainLeavesItsHostBlock) {
  KvBlocks blocks(2, {.block_size = 1}, true, 4);
  run(blocks, {1, 2});
  run(blocks, {3, 4});
  EXPECT_EQ(blocks.host_pool().num_cached(), 2);
  const Tokens tokens = {1};
  KvTables table(1);
  blocks.take_column(table);
  blocks.publish(kAny, table, 0, tokens);
  EXPECT_EQ(blocks.host_pool().num_cached(), 2) << "2 still follows 1; 4 is new";
  blocks.release(table);
  EXPECT_EQ(run(blocks, {1, 2}), 1);
}

TEST(KvBlocks, WithoutHostBlocksNothingIsCopied) {
  KvBlocks blocks(1, {.block_size = 1}, true);
  run(blocks, {1});
  run(blocks, {2});
  EXPECT_TRUE(blocks.take_copies().empty());
  EXPECT_EQ(run(blocks, {1}), 0);
}

TEST(KvBlocks, WithoutCachingNothingIsFound) {
  KvBlocks blocks(2, {.block_size = 1}, false);
  KvTables table(1);
  blocks.take_column(table);
  const Tokens tokens = {3};
  blocks.publish(kAny, table, 0, tokens);
  EXPECT_EQ(blocks.acquire_prefix(kAny, tokens).columns(), 0);
  blocks.release(table);
  EXPECT_EQ(blocks.pool().num_free(), 2);
}

}  // namespace
}  // namespace headrace
