#include "text/model/byte_trie.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace headrace::text {
namespace {

/// kNoId if no string is `text`.
int32_t find(const ByteTrie& trie, std::string_view text) {
  uint32_t node = ByteTrie::kRoot;
  for (const char byte : text) {
    if (!trie.step(&node, byte)) return ByteTrie::kNoId;
  }
  return trie.id_at(node);
}

TEST(ByteTrie, FindsItsStringsAndNoOthers) {
  std::mt19937 random(7);
  const auto word = [&] {
    std::string text(1 + random() % 6, '\0');
    const unsigned letters = random() % 2 == 0 ? 3 : 256;
    for (char& c : text) c = static_cast<char>(random() % letters);
    return text;
  };
  std::unordered_map<std::string, int32_t> known;
  std::vector<std::string> texts(5000);
  for (std::string& text : texts) text = word();
  std::vector<ByteTrie::Entry> entries;
  for (size_t i = 0; i < texts.size(); ++i) {
    entries.push_back({texts[i], static_cast<int32_t>(i)});
    known[texts[i]] = static_cast<int32_t>(i);
  }
  const ByteTrie trie(entries);
  for (const auto& [text, id] : known) EXPECT_EQ(find(trie, text), id);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = word();
    const auto it = known.find(text);
    EXPECT_EQ(find(trie, text), it == known.end() ? ByteTrie::kNoId : it->second);
  }
  EXPECT_LT(trie.memory_bytes(), size_t{1} << 20);
}

TEST(ByteTrie, MayBeEmpty) {
  const ByteTrie trie;
  EXPECT_EQ(find(trie, "a"), ByteTrie::kNoId);
  EXPECT_EQ(find(trie, ""), ByteTrie::kNoId);
}

}  // namespace
}  // namespace headrace::text
