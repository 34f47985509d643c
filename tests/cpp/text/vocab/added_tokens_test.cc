#include "text/vocab/added_tokens.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "headrace/status.h"

namespace headrace::text {
namespace {

AddedToken token_of(const std::string& content) {
  AddedToken token;
  token.content = token.pattern = content;
  return token;
}

AddedTokens built(const std::vector<AddedToken>& tokens, const Vocabulary& vocabulary) {
  AddedTokens added;
  added.add(tokens, vocabulary);
  added.build();
  return added;
}

/// Pieces, tokens in angle brackets.
std::string split(const AddedTokens& added, const std::string& text, bool as_text = false) {
  std::vector<AddedTokens::Piece> pieces;
  added.split(text, false, as_text, &pieces);
  std::string shown;
  for (const AddedTokens::Piece& piece : pieces) {
    const std::string part = text.substr(piece.begin, piece.end - piece.begin);
    shown += piece.id == Vocabulary::kNoId ? "[" + part + "]" : "<" + part + ">";
  }
  return shown;
}

TEST(AddedTokens, IdsAreThoseOfTheVocabularyOrFollowIt) {
  Vocabulary vocabulary(false);
  vocabulary.add(0, "a");
  vocabulary.add(7, "b");
  const AddedTokens added =
      built({token_of("b"), token_of("x"), token_of("y"), token_of("x")}, vocabulary);
  EXPECT_EQ(added.find("b")->id, 7);
  EXPECT_EQ(added.find("x")->id, 2);  // the vocabulary has two entries
  EXPECT_EQ(added.find("y")->id, 3);
  EXPECT_EQ(added.all().size(), 3u);
  EXPECT_EQ(added.find(3)->content, "y");
  EXPECT_EQ(added.find(4), nullptr);
  EXPECT_EQ(added.find("z"), nullptr);
}

TEST(AddedTokens, ATokenThatIsNoWordAloneHidesShorterOnes) {
  const Vocabulary vocabulary(false);
  AddedToken word = token_of("ab");
  word.single_word = true;
  const AddedTokens added = built({word, token_of("a")}, vocabulary);
  EXPECT_EQ(split(added, "abc"), "[abc]");
  EXPECT_EQ(split(added, "ab ac"), "<ab>[ ]<a>[c]");
  EXPECT_EQ(split(added, "éab"), "[éab]");
  EXPECT_EQ(split(added, "²ab²"), "[²]<ab>[²]");  // no letters, as Rust has it
}

TEST(AddedTokens, SpacesGoToTheTokensThatTakeThem) {
  const Vocabulary vocabulary(false);
  AddedToken left = token_of("<l>");
  left.lstrip = true;
  AddedToken right = token_of("<r>");
  right.rstrip = true;
  AddedToken space = token_of(" ");
  const AddedTokens added = built({left, right}, vocabulary);
  EXPECT_EQ(split(added, "a \u3000<l> b"), "[a]<\x20\u3000<l>>[ b]");
  EXPECT_EQ(split(added, "a <r>\n b"), "[a ]<<r>\n >[b]");
  EXPECT_EQ(split(added, "<r>  <l>"), "<<r>  ><<l>>");
  // A token whose spaces are taken is there all the same.
  EXPECT_EQ(split(built({right, space}, vocabulary), "<r>  a"), "<<r>  >< >< >[a]");
  space.lstrip = true;
  EXPECT_EQ(split(built({right, space}, vocabulary), "<r> a"), "<<r> >[a]");
}

TEST(AddedTokens, SpecialTokensMayBeText) {
  const Vocabulary vocabulary(false);
  AddedToken special = token_of("<s>");
  special.special = true;
  const AddedTokens added = built({special, token_of("<t>")}, vocabulary);
  EXPECT_EQ(split(added, "<s><t>"), "<<s>><<t>>");
  EXPECT_EQ(split(added, "<s><t>", true), "[<s>]<<t>>");
  EXPECT_TRUE(added.is_special("<s>"));
  EXPECT_FALSE(added.is_special("<t>"));
}

TEST(AddedTokens, OnePatternForTwoTokensIsAnError) {
  const Vocabulary vocabulary(false);
  AddedToken upper = token_of("AB");
  AddedToken lower = token_of("ab");
  upper.normalized = lower.normalized = true;
  upper.pattern = "ab";
  EXPECT_THROW(built({upper, lower}, vocabulary), Error);
  lower.normalized = false;
  EXPECT_EQ(built({upper, lower}, vocabulary).all().size(), 2u);
  upper.pattern = "";
  EXPECT_THROW(built({upper}, vocabulary), Error);
}

TEST(AddedTokens, RunsOfSpacesAreLookedAtOnce) {
  const Vocabulary vocabulary(false);
  AddedToken space = token_of(" ");
  space.rstrip = true;
  const AddedTokens added = built({space}, vocabulary);
  std::vector<AddedTokens::Piece> pieces;
  added.split(std::string(100'000, ' '), false, false, &pieces);  // minutes, if each looked again
  EXPECT_EQ(pieces.size(), 100'000u);
}

}  // namespace
}  // namespace headrace::text
