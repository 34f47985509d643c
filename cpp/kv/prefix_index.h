#pragma once

// PrefixIndex: which node holds which tokens, given all tokens before them.
//
// A node is a block of tokens, wherever its keys and values are. Nodes form trees: each hangs under
// the node of the block before it; roots belong to a SequenceIdentity. So a node stands for that
// and for a whole chain of token ids, with the media among them. Hashes only find candidates; the
// token ids, the media's digests and the sequence's identity themselves confirm.
// All calls but construction allocate nothing and cost O(block_size + media in the block). A block
// without media has a null pointer for them, and is compared no further. Not thread safe. A broken
// REQUIRES throws InternalError.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/cache_identity.h"

namespace headrace {

class PrefixIndex {
 public:
  static constexpr int32_t kNone = -1;
  using Hash = uint64_t (*)(uint64_t seed, std::span<const int32_t> tokens);

  /// Where a node stands in its chain.
  struct Place {
    SequenceIdentity sequence;  ///< of the whole chain; compared at roots only
    int32_t parent = kNone;     ///< indexed node with the tokens before; kNone: the first block
  };

  /// What a block holds.
  struct Content {
    std::span<const int32_t> tokens;        ///< [block_size] ids
    std::span<const MediaItem> media = {};  ///< CacheIdentity::media_in() of its positions
  };

  /// REQUIRES: num_nodes >= 0, block_size > 0.
  PrefixIndex(int32_t num_nodes, int32_t block_size, Hash hash = &hash_tokens);

  /// The node with this content at this place; kNone if there is none.
  /// REQUIRES: place.parent is indexed or kNone; content.tokens.size() == block_size.
  int32_t find(const Place& place, const Content& content) const;
  /// `owner` keeps content.media alive, which are some of it. The node holds it until it is erased,
  /// if the block has media. REQUIRES: as for find(), which gives kNone; `node` is not indexed.
  void insert(const Place& place, const Content& content, int32_t node,
              const MediaItems& owner = nullptr);
  /// REQUIRES: `node` is indexed and has no children.
  void erase(int32_t node);

  bool contains(int32_t node) const { return entry(node).indexed; }
  int32_t children(int32_t node) const { return entry(node).children; }
  int32_t parent(int32_t node) const { return entry(node).parent; }
  /// REQUIRES: indexed. Valid until it is erased.
  Content content(int32_t node) const;
  int32_t size() const noexcept { return size_; }
  int32_t num_nodes() const noexcept { return static_cast<int32_t>(entries_.size()); }

  static uint64_t hash_tokens(uint64_t seed, std::span<const int32_t> tokens) noexcept;

 private:
  struct Entry {
    uint64_t hash = 0;
    SequenceIdentity sequence;
    int32_t parent = kNone;
    int32_t children = 0;
    int32_t next_in_bucket = kNone;
    bool indexed = false;
    MediaItems owner = nullptr;  ///< null: no media in it
    std::span<const MediaItem> media = {};
  };

  const Entry& entry(int32_t node) const;
  uint64_t hash_at(const Place& place, const Content& content) const;
  int32_t find_hashed(uint64_t hash, const Place& place, const Content& content) const;
  int32_t* bucket(uint64_t hash) { return &buckets_[hash & (buckets_.size() - 1)]; }

  size_t block_size_;
  Hash hash_;
  std::vector<Entry> entries_;    ///< by node
  std::vector<int32_t> tokens_;   ///< [num_nodes, block_size]
  std::vector<int32_t> buckets_;  ///< first node of each; a power of two of them
  int32_t size_ = 0;
};

}  // namespace headrace
