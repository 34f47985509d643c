#include "text/model/unigram.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/status.h"

namespace headrace::text {
namespace {

using Pieces = std::vector<std::pair<std::string, double>>;

std::unique_ptr<Unigram> make(const Pieces& pieces,
                              const UnigramOptions& options = {
                                  .rules = UnigramOptions::Rules::kTokenizerJson,
                                  .unknown_id = 0,
                                  .byte_fallback = false}) {
  auto vocabulary = std::make_shared<Vocabulary>(false);
  std::vector<double> scores;
  for (const auto& [piece, score] : pieces) {
    vocabulary->add(static_cast<int32_t>(scores.size()), piece);
    scores.push_back(score);
  }
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), options);
}

std::vector<Token> encode(const Unigram& model, std::string_view word, ModelScratch* scratch,
                          uint64_t fuel = 1 << 20) {
  Fuel steps(fuel, "a test");
  std::vector<Token> tokens;
  model.encode(word, true, scratch, &steps, &tokens);
  return tokens;
}

std::vector<int32_t> ids(const Unigram& model, std::string_view word) {
  const auto scratch = model.make_scratch();
  std::vector<int32_t> ids;
  for (const Token& token : encode(model, word, scratch.get())) {
    ids.push_back(token.id);
  }
  return ids;
}

using Ids = std::vector<int32_t>;

TEST(Unigram, TakesTheBestWholeAndOfEqualOnesTheLongestLastToken) {
  const auto model = make({{"<unk>", 0},
                           {"a", 0},
                           {"b", 0},
                           {"c", 0},
                           {"d", 0},
                           {"cd", 1},
                           {"ab", 2},
                           {"abc", 5},
                           {"abcd", 10}});
  EXPECT_EQ(ids(*model, "abcdacdxx"), (Ids{8, 1, 5, 0}));
  const auto ties = make({{"<unk>", -9}, {"a", -1}, {"aa", -2}, {"aaa", -3}});
  EXPECT_EQ(ids(*ties, "aaaa"), (Ids{1, 3}));
}

TEST(Unigram, JoinsUnknownNeighboursAndSpellsThemIfItCan) {
  Pieces pieces = {{"<unk>", 0}, {"a", -1}};
  const auto model = make(pieces);
  const auto scratch = model->make_scratch();
  const auto tokens = encode(*model, "a\u00e9\u4e2da", scratch.get());
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(tokens[1].bytes, (Range{1, 6}));
  EXPECT_EQ(tokens[2].bytes, (Range{6, 7}));

  const UnigramOptions fallback{UnigramOptions::Rules::kTokenizerJson, 0, true};
  pieces.insert(pieces.end(), {{"<0xC3>", 0}, {"<0xA9>", 0}});
  EXPECT_EQ(ids(*make(pieces, fallback), "\u00e9"), (Ids{2, 3}));
  // One byte without a token: none of the neighbours is spelled.
  EXPECT_EQ(ids(*make(pieces, fallback), "\u00e9\u00e8"), (Ids{0}));
}

TEST(Unigram, LongWordsAreCutAsAWhole) {
  const auto model = make({{"<unk>", 0}, {"a", -1}, {"aa", -1.5}, {"b", -1}});
  std::string word;
  Ids expected;
  for (int i = 0; i < 500; ++i) {
    word += i % 7 == 0 ? "aab" : "aaaab\u00e9";
    const Ids more = i % 7 == 0 ? Ids{2, 3} : Ids{2, 2, 3, 0};
    expected.insert(expected.end(), more.begin(), more.end());
  }
  EXPECT_EQ(ids(*model, word), expected);
  EXPECT_EQ(ids(*model, ""), Ids{});
}

TEST(Unigram, WithoutAnUnknownTokenRefusesTheTextAndWorksOn) {
  const auto model = make({{"a", -1}}, {UnigramOptions::Rules::kTokenizerJson, -1, false});
  const auto scratch = model->make_scratch();
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(encode(*model, "ab", scratch.get()), Error);
    EXPECT_EQ(encode(*model, "aa", scratch.get()).size(), 2u);
  }
}

TEST(Unigram, OfSentencePieceUserDefinedPiecesWinAndControlsNeverMatch) {
  auto vocabulary = std::make_shared<Vocabulary>(false);
  vocabulary->add(0, "<unk>", TokenKind::kUnknown);
  vocabulary->add(1, "<s>", TokenKind::kControl);
  vocabulary->add(2, "ab", TokenKind::kUserDefined);
  vocabulary->add(3, "a");
  vocabulary->add(4, "bc");
  vocabulary->add(5, "c");
  vocabulary->add(6, "abc", TokenKind::kUnused);
  const Unigram model(vocabulary, {0, 0, 0, -1, -1, -20, -0.1},
                      {UnigramOptions::Rules::kSentencePiece, 0, false});
  EXPECT_EQ(ids(model, "abc"), (Ids{3, 4}));
  EXPECT_EQ(ids(model, "abab"), (Ids{2, 2}));
  EXPECT_EQ(ids(model, "<s>"), (Ids{0}));
}

TEST(Unigram, OfSentencePieceUserDefinedPiecesScoreByTheirBytes) {
  auto vocabulary = std::make_shared<Vocabulary>(false);
  vocabulary->add(0, "<unk>", TokenKind::kUnknown);
  vocabulary->add(1, "ab", TokenKind::kUserDefined);
  vocabulary->add(2, "a");
  vocabulary->add(3, "b");
  const UnigramOptions options{UnigramOptions::Rules::kSentencePiece, 0, false};
  EXPECT_EQ(ids(Unigram(vocabulary, {0, -9, 0.04, 0.04}, options), "ab"), (Ids{1}));
  EXPECT_EQ(ids(Unigram(vocabulary, {0, 9, 0.06, 0.06}, options), "ab"), (Ids{2, 3}));
}

TEST(Unigram, OfSentencePieceLargeSumsStayPrecise) {
  auto vocabulary = std::make_shared<Vocabulary>(false);
  vocabulary->add(0, "<unk>", TokenKind::kUnknown);
  vocabulary->add(1, "a");
  vocabulary->add(2, "b");
  vocabulary->add(3, "bb");
  // Without starting again the floats around 1e9 are 64 apart: "bb" would be as good as "b", "b".
  const Unigram model(vocabulary, {0, -1e7, -1, -2.5},
                      {UnigramOptions::Rules::kSentencePiece, 0, false});
  Ids expected(100, 1);
  expected.insert(expected.end(), {2, 2});
  EXPECT_EQ(ids(model, std::string(100, 'a') + "bb"), expected);
}

TEST(Unigram, IsBoundedByFuel) {
  Pieces pieces = {{"<unk>", 0}};
  for (size_t size = 1; size < 400; ++size) {
    pieces.emplace_back(std::string(size, 'a'), -1);
  }
  const auto model = make(pieces);
  const auto scratch = model->make_scratch();
  const std::string word(4000, 'a');
  EXPECT_EQ(encode(*model, word, scratch.get()).size(), 11u);
  EXPECT_THROW(encode(*model, word, scratch.get(), 4000), Error);
  EXPECT_EQ(encode(*model, "aa", scratch.get()).size(), 1u);
}

TEST(Unigram, RefusesTablesThatDontFit) {
  EXPECT_THROW(make({{"a", 0}}, {UnigramOptions::Rules::kTokenizerJson, 1, false}), Error);
  EXPECT_THROW(make({{"a", std::numeric_limits<double>::quiet_NaN()}}), Error);
  auto vocabulary = std::make_shared<Vocabulary>(false);
  vocabulary->add(0, "a");
  EXPECT_THROW(Unigram(vocabulary, {0, 0}, {}), Error);
}

}  // namespace
}  // namespace headrace::text
