#include "text/model/byte_trie.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "headrace/status.h"

namespace headrace::text {

/// Nodes with one child fill the holes that larger ones leave: each of the two looks into few
/// blocks, so that building takes linear time whatever the strings.
class ByteTrieBuilder {
 public:
  ByteTrieBuilder(std::vector<ByteTrie::Entry> entries, std::vector<ByteTrie::Unit>* units)
      : entries_(std::move(entries)), units_(*units) {}

  void build() {
    std::sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
      const int order = a.bytes.compare(b.bytes);
      return order != 0 ? order < 0 : a.id < b.id;
    });
    add_block();
    take(0);
    stack_.push_back({ByteTrie::kRoot, 0, entries_.size(), 0});
    while (!stack_.empty()) {
      const Node node = stack_.back();
      stack_.pop_back();
      expand(node);
    }
  }

 private:
  static constexpr size_t kBlock = 256;
  static constexpr size_t kOpenBlocks = 16;  ///< in which holes are filled
  static constexpr size_t kWideBlocks = 4;   ///< of these the ones for nodes of several children

  struct Node {
    uint32_t unit;
    size_t begin, end;  ///< of the entries that go through it
    size_t depth;
  };
  struct Block {
    std::array<bool, kBlock> taken{};
    size_t free = kBlock;
  };

  void expand(const Node& node) {
    size_t begin = node.begin;
    for (; begin < node.end && entries_[begin].bytes.size() == node.depth; ++begin) {
      units_[node.unit].id = entries_[begin].id;
    }
    labels_.clear();
    starts_.clear();
    for (size_t i = begin; i < node.end; ++i) {
      const auto label = static_cast<uint8_t>(entries_[i].bytes[node.depth]);
      if (labels_.empty() || labels_.back() != label) {
        labels_.push_back(label);
        starts_.push_back(i);
      }
    }
    if (labels_.empty()) {
      return;
    }
    const uint32_t base = find_base();
    units_[node.unit].base = base;
    for (size_t i = 0; i < labels_.size(); ++i) {
      const uint32_t child = base ^ labels_[i];
      take(child);
      units_[child].parent = node.unit;
      const size_t end = i + 1 < labels_.size() ? starts_[i + 1] : node.end;
      stack_.push_back({child, starts_[i], end, node.depth + 1});
    }
  }

  /// A base from which all children's units are free.
  uint32_t find_base() {
    const size_t blocks = units_.size() / kBlock;
    const size_t open = std::min(blocks, labels_.size() == 1 ? kOpenBlocks : kWideBlocks);
    for (size_t block = blocks - open; block < blocks; ++block) {
      const Block& state = recent_[block % kOpenBlocks];
      if (state.free < labels_.size()) {
        continue;
      }
      for (size_t unit = 0; unit < kBlock; ++unit) {
        const size_t base = unit ^ labels_[0];
        if (std::none_of(labels_.begin(), labels_.end(),
                         [&](uint8_t label) { return state.taken[base ^ label]; })) {
          return static_cast<uint32_t>(block * kBlock + base);
        }
      }
    }
    add_block();
    return static_cast<uint32_t>(blocks * kBlock);
  }

  void add_block() {
    if (units_.size() + kBlock > ByteTrie::kMaxUnits) {
      throw Error(ErrorCode::kLimitExceeded,
                  "the vocabulary's tokens are too long in all: their index takes more than " +
                      std::to_string(ByteTrie::kMaxUnits) + " nodes");
    }
    recent_[units_.size() / kBlock % kOpenBlocks] = Block();
    units_.resize(units_.size() + kBlock);
  }

  void take(uint32_t unit) {
    Block& block = recent_[unit / kBlock % kOpenBlocks];
    block.taken[unit % kBlock] = true;
    --block.free;
  }

  std::vector<ByteTrie::Entry> entries_;
  std::vector<ByteTrie::Unit>& units_;
  std::array<Block, kOpenBlocks> recent_;
  std::vector<Node> stack_;
  std::vector<uint8_t> labels_;
  std::vector<size_t> starts_;
};

ByteTrie::ByteTrie(std::vector<Entry> entries) {
  ByteTrieBuilder(std::move(entries), &units_).build();
  units_.shrink_to_fit();
}

}  // namespace headrace::text
