#include "text/model/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "headrace/status.h"
#include "text/model/bpe_builder.h"
#include "text/unicode/utf8.h"
#include "text/vocab/byte_alphabet.h"

namespace headrace::text {
namespace {

constexpr int32_t kNone = Vocabulary::kNoId;

struct Bench {
  std::shared_ptr<Vocabulary> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;
  BpeOptions options;

  explicit Bench(bool byte_level) : vocabulary(std::make_shared<Vocabulary>(byte_level)) {}

  void token(const std::string& spelling) { vocabulary->add(vocabulary->end(), spelling); }
  void merge(const std::string& left, const std::string& right) {
    if (vocabulary->find_spelling(left + right) == kNone) token(left + right);
    merges.emplace_back(left, right);
  }
  std::unique_ptr<const Model> build() const {
    BpeBuilder builder(vocabulary, options);
    for (const auto& [left, right] : merges) builder.add_merge(left, right);
    return builder.build();
  }
};

std::vector<Token> encode(const Model& model, std::string_view word, ModelScratch* scratch) {
  std::vector<Token> tokens;
  Fuel fuel(1 << 30, "encoding");
  model.encode(word, true, scratch, &fuel, &tokens);
  return tokens;
}

std::vector<std::string> spelled(const Bench& bench, std::string_view word) {
  const std::unique_ptr<const Model> model = bench.build();
  const std::unique_ptr<ModelScratch> scratch = model->make_scratch();
  std::vector<std::string> tokens;
  for (const Token& token : encode(*model, word, scratch.get())) {
    tokens.push_back(bench.vocabulary->spelling(token.id));
  }
  return tokens;
}

/// The definition, in the plainest words.
std::vector<int32_t> merged_plainly(const Bench& bench, std::string_view word) {
  std::map<std::pair<int32_t, int32_t>, std::pair<size_t, int32_t>> ranks;
  for (size_t rank = 0; rank < bench.merges.size(); ++rank) {
    const auto& [left, right] = bench.merges[rank];
    const auto id = [&](const std::string& text) { return bench.vocabulary->find_spelling(text); };
    ranks[{id(left), id(right)}] = {rank, id(left + right)};
  }
  std::vector<int32_t> ids;
  for (size_t at = 0; at < word.size(); at += utf8_size(word[at])) {
    ids.push_back(bench.vocabulary->find(word.substr(at, utf8_size(word[at]))));
  }
  for (;;) {
    size_t best = ids.size();
    std::pair<size_t, int32_t> lowest{SIZE_MAX, 0};
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found != ranks.end() && found->second.first < lowest.first) {
        lowest = found->second;
        best = i;
      }
    }
    if (best == ids.size()) return ids;
    ids[best] = lowest.second;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

std::string random_word(std::mt19937* rng, size_t size) {
  std::string word;
  while (word.size() < size) word.push_back("abcd"[(*rng)() % 4]);
  return word;
}

/// Tokens up to 6 letters of four, in random order.
Bench random_bench(bool byte_level, uint32_t seed) {
  Bench bench(byte_level);
  std::mt19937 rng(seed);
  for (const char* letter : {"a", "b", "c", "d"}) bench.token(letter);
  for (int i = 0; i < 40; ++i) {
    const auto pick = [&] {
      return bench.vocabulary->spelling(
          static_cast<int32_t>(rng() % static_cast<uint32_t>(bench.vocabulary->end())));
    };
    const std::string left = pick();
    const std::string right = pick();
    if (left.size() + right.size() <= 6) bench.merge(left, right);
  }
  return bench;
}

TEST(Bpe, MergesAsDefined) {
  std::mt19937 rng(7);
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const Bench bench = random_bench(seed % 2 == 0, seed);
    const std::unique_ptr<const Model> model = bench.build();
    const std::unique_ptr<ModelScratch> scratch = model->make_scratch();
    for (size_t size : {1, 2, 3, 5, 9, 20, 47, 48, 49, 130}) {
      const std::string word = random_word(&rng, size);
      const std::vector<int32_t> expected = merged_plainly(bench, word);
      for (int pass = 0; pass < 2; ++pass) {  // the second comes from the cache
        const std::vector<Token> tokens = encode(*model, word, scratch.get());
        ASSERT_EQ(tokens.size(), expected.size()) << word;
        uint32_t at = 0;
        for (size_t i = 0; i < tokens.size(); ++i) {
          EXPECT_EQ(tokens[i].id, expected[i]) << word;
          EXPECT_EQ(tokens[i].bytes.begin, at);
          at = tokens[i].bytes.end;
          EXPECT_EQ(word.substr(tokens[i].bytes.begin, at - tokens[i].bytes.begin),
                    bench.vocabulary->bytes(tokens[i].id));
        }
        EXPECT_EQ(at, word.size());
      }
    }
  }
}

TEST(Bpe, OfADuplicateMergeTheLastRankCounts) {
  Bench bench(false);
  for (const char* letter : {"a", "b", "c"}) bench.token(letter);
  bench.merge("a", "b");
  bench.merge("b", "c");
  EXPECT_EQ(spelled(bench, "abc"), (std::vector<std::string>{"ab", "c"}));
  bench.merge("a", "b");
  EXPECT_EQ(spelled(bench, "abc"), (std::vector<std::string>{"a", "bc"}));
}

TEST(Bpe, AWordThatIsATokenIsItIfMergesAreIgnored) {
  Bench bench(false);
  for (const char* letter : {"a", "b", "ab"}) bench.token(letter);
  EXPECT_EQ(spelled(bench, "ab"), (std::vector<std::string>{"a", "b"}));
  bench.options.ignore_merges = true;
  EXPECT_EQ(spelled(bench, "ab"), (std::vector<std::string>{"ab"}));
  EXPECT_EQ(spelled(bench, "aab"), (std::vector<std::string>{"a", "a", "b"}));
}

TEST(Bpe, UnknownCharacters) {
  Bench bench(false);
  for (const char* token : {"a", "<unk>", "<0xC3>", "<0xA9>"}) bench.token(token);
  EXPECT_EQ(spelled(bench, "aéa"), (std::vector<std::string>{"a", "a"}));
  bench.options.unk = 1;
  EXPECT_EQ(spelled(bench, "éé"), (std::vector<std::string>{"<unk>", "<unk>"}));
  bench.options.fuse_unk = true;
  EXPECT_EQ(spelled(bench, "éèa"), (std::vector<std::string>{"<unk>", "a"}));
  bench.options.byte_fallback = true;
  EXPECT_EQ(spelled(bench, "é"), (std::vector<std::string>{"<0xC3>", "<0xA9>"}));
  EXPECT_EQ(spelled(bench, "中"), (std::vector<std::string>{"<unk>"}));
  // As in the `tokenizers` package: what waits to be fused comes behind the bytes.
  EXPECT_EQ(spelled(bench, "a中éa"),
            (std::vector<std::string>{"a", "<0xC3>", "<0xA9>", "<unk>", "a"}));
}

TEST(Bpe, PrefixesAndSuffixes) {
  Bench bench(false);
  bench.options.continuing_subword_prefix = "##";
  bench.options.end_of_word_suffix = "</w>";
  for (const char* token : {"a", "##b", "##c</w>", "a</w>", "ab", "abc</w>"}) bench.token(token);
  bench.merges = {{"a", "##b"}, {"ab", "##c</w>"}};
  EXPECT_EQ(spelled(bench, "abc"), (std::vector<std::string>{"abc</w>"}));
  EXPECT_EQ(spelled(bench, "a"), (std::vector<std::string>{"a</w>"}));
  bench.merges = {{"a", "ab"}};
  EXPECT_THROW(bench.build(), Error);
}

TEST(Bpe, MergesOfTokensThatAreNotThereAreErrors) {
  Bench bench(true);
  for (const char* letter : {"a", "b"}) bench.token(letter);
  bench.merges = {{"a", "b"}};
  try {
    bench.build();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptFile);
    EXPECT_NE(std::string(error.what()).find("the merge of \"a\" and \"b\""), std::string::npos);
  }
}

TEST(Bpe, RanksOfTokensMakeTheSameMergesAsAList) {
  Bench bench(true);
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelling;
    append_utf8(alphabet_char(static_cast<uint8_t>(byte)), &spelling);
    bench.token(spelling);
  }
  bench.merge("a", "b");
  bench.merge("ab", "c");
  BpeBuilder builder(bench.vocabulary, {});
  for (int32_t id = 256; id < bench.vocabulary->end(); ++id) {
    builder.add_splits_of(id, static_cast<uint32_t>(id));
  }
  const std::unique_ptr<const Model> model = builder.build();
  const std::unique_ptr<ModelScratch> scratch = model->make_scratch();
  const std::vector<Token> tokens = encode(*model, "abcab", scratch.get());
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0].id, 257);
  EXPECT_EQ(tokens[1].id, 256);
}

TEST(Bpe, ALongWordTakesLittleMoreThanItsLength) {
  Bench bench(true);
  bench.token("a");
  std::string token = "a";
  for (int i = 0; i < 6; ++i) {
    bench.merge(token, token);
    token += token;
  }
  const std::unique_ptr<const Model> model = bench.build();
  const std::unique_ptr<ModelScratch> scratch = model->make_scratch();
  EXPECT_EQ(encode(*model, std::string(1 << 16, 'a'), scratch.get()).size(), size_t{1} << 10);
  Fuel fuel(10, "encoding");
  std::vector<Token> tokens;
  EXPECT_THROW(model->encode(std::string(11, 'a'), false, scratch.get(), &fuel, &tokens), Error);
}

}  // namespace
}  // namespace headrace::text
