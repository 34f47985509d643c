#include "text/model/wordpiece.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "headrace/status.h"

namespace headrace::text {
namespace {

WordPiece make(const WordPieceOptions& options = {}) {
  auto vocabulary = std::make_shared<Vocabulary>(false);
  int32_t id = 0;
  for (const char* token : {"[UNK]", "un", "unaff", "##aff", "##able", "##a", "\u4e2d", "##"}) {
    vocabulary->add(id++, token);
  }
  return WordPiece(std::move(vocabulary), options);
}

std::vector<int32_t> ids(const WordPiece& model, std::string_view word) {
  Fuel fuel(1 << 20, "a test");
  std::vector<Token> tokens;
  const auto scratch = model.make_scratch();
  model.encode(word, true, scratch.get(), &fuel, &tokens);
  std::vector<int32_t> ids;
  uint32_t end = 0;
  for (const Token& token : tokens) {
    EXPECT_EQ(token.bytes.begin, end);
    end = token.bytes.end;
    ids.push_back(token.id);
  }
  EXPECT_EQ(end, word.size());
  return ids;
}

using Ids = std::vector<int32_t>;

TEST(WordPiece, TakesTheLongestFromTheFront) {
  EXPECT_EQ(ids(make(), "unaffable"), (Ids{2, 4}));
  EXPECT_EQ(ids(make(), "una"), (Ids{1, 5}));
  EXPECT_EQ(ids(make(), "##aff"), (Ids{3}));  // as it is written, at the start
  EXPECT_EQ(ids(make(), ""), Ids{});
}

TEST(WordPiece, AWordThatCannotBeCutIsUnknownAsAWhole) {
  EXPECT_EQ(ids(make(), "unx"), (Ids{0}));
  EXPECT_EQ(ids(make(), "unun"), (Ids{0}));
  EXPECT_EQ(ids(make(), "\u4e2d\u4e2d"), (Ids{0}));
}

TEST(WordPiece, CountsCharacters) {
  WordPieceOptions options;
  options.max_characters = 1;
  EXPECT_EQ(ids(make(options), "\u4e2d"), (Ids{6}));
  EXPECT_EQ(ids(make(options), "un"), (Ids{0}));
}

TEST(WordPiece, WithoutAnUnknownTokenRefusesTheText) {
  WordPieceOptions options;
  options.unknown = "<unk>";
  EXPECT_EQ(ids(make(options), "un"), (Ids{1}));
  Fuel fuel(100, "a test");
  std::vector<Token> tokens;
  EXPECT_THROW(make(options).encode("x", false, nullptr, &fuel, &tokens), Error);
}

TEST(WordPiece, PrefixesMayBeAnything) {
  WordPieceOptions options;
  options.prefix = "";
  EXPECT_EQ(ids(make(options), "unun"), (Ids{1, 1}));
  options.prefix = "@@";
  EXPECT_EQ(ids(make(options), "unun"), (Ids{0}));
}

}  // namespace
}  // namespace headrace::text
