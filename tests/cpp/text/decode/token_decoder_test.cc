#include "text/decode/token_decoder.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cpp/text/decode/decode_cases.h"
#include "headrace/status.h"

namespace headrace::text {
namespace {

using Strings = std::vector<std::string>;
using Named = std::vector<std::pair<int32_t, std::string>>;

TEST(TokenDecoderTest, SpecialTokensAreSkippedByTheirText) {
  // An ordinary entry of the vocabulary that is spelled as a special token.
  Vocabulary vocabulary(false);
  vocabulary.add(0, "a");
  vocabulary.add(1, "<s>");
  const std::vector<AddedText> added = {{2, "<s>", "<s>", true}, {3, "AB", "ab", true}};
  const TokenDecoder decoder(vocabulary, added, make_decoder({}));
  EXPECT_EQ(decoder.decode(std::vector<int32_t>{0, 1, 2, 0}, true), "a a");
  EXPECT_EQ(decoder.decode(std::vector<int32_t>{0, 1, 2, 0}, false), "a <s> <s> a");
  // A special token that is normalized to something else isn't known as one when it is decoded.
  EXPECT_EQ(decoder.decode(std::vector<int32_t>{3}, true), "ab");
}

TEST(TokenDecoderTest, ShownTokensStay) {
  const auto decoder = decoder_of(kByteLevel, {"a"});
  const Strings shown = {"<t>"};
  EXPECT_EQ(pieces_of(*decoder, {1, 0, 2, 3}, {.skip_special = true, .shown = shown, .after = {}}),
            (Strings{"", "a", "<t>", "<added é>", ""}));
}

TEST(TokenDecoderTest, AnOutputGoesOnFromItsPrompt) {
  const auto llama = decoder_of(kLlama, {"▁a", "<0x41>"});
  const std::vector<int32_t> prompt = {0, 2};
  const DetokenizeOptions behind = {.skip_special = true, .shown = {}, .after = prompt};
  EXPECT_EQ(pieces_of(*llama, {0}), (Strings{"a", ""}));
  EXPECT_EQ(pieces_of(*llama, {0}, behind), (Strings{" a", ""}));
  // Half a character of the prompt is completed by the output.
  const auto bytes = decoder_of(kByteLevel, {"Ã", "©", "a"});
  const std::vector<int32_t> half = {0};
  const DetokenizeOptions broken = {.skip_special = true, .shown = {}, .after = half};
  EXPECT_EQ(pieces_of(*bytes, {1}, broken), (Strings{"é", ""}));
  EXPECT_EQ(pieces_of(*bytes, {2}, broken), (Strings{"a", ""}));
}

TEST(TokenDecoderTest, TextsAndBytesOfTokens) {
  const auto llama = decoder_of(kLlama, {"▁a", "<0xE4>"});
  EXPECT_EQ(llama->token_text(0), " a");
  EXPECT_EQ(llama->token_text(2), "<s>");
  EXPECT_EQ(llama->token_text(99), "");
  EXPECT_EQ(llama->part_bytes(0), std::nullopt);
  EXPECT_EQ(llama->part_bytes(1), "\xE4");
  const auto bytes = decoder_of(kByteLevel, {"Ã", "a▁"});
  EXPECT_EQ(bytes->part_bytes(0), "\xC3");
  EXPECT_EQ(bytes->part_bytes(1), "a▁");
  EXPECT_EQ(bytes->part_bytes(2), std::nullopt);
}

TEST(TokenDecoderTest, TextsDoNotDependOnWhatChainsDoToOtherTokens) {
  const auto suffix = decoder_of(R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "a"}, "content": ""},
      {"type": "BPEDecoder", "suffix": "</w>"}]})",
                                 {"a", "bc</w>"});
  EXPECT_EQ(suffix->token_text(0), "");
  EXPECT_EQ(suffix->token_text(1), "bc");
  const auto words = decoder_of(R"({"type": "WordPiece", "prefix": "a", "cleanup": false})", {"b"});
  EXPECT_EQ(words->token_text(0), " b");
  const auto strip = decoder_of(R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
      {"type": "Strip", "content": "a", "start": 2, "stop": 0}]})",
                                {"ab"});
  EXPECT_EQ(strip->token_text(0), "ab");
  EXPECT_EQ(strip->token_bytes().tokens[0], "ab");
  EXPECT_EQ(strip->token_bytes().first_tokens, (Named{{0, "b"}}));
}

TEST(TokenDecoderTest, BytesForGrammars) {
  const VocabularyBytes llama = decoder_of(kLlama, {"▁a", "<0xE4>", "▁", "b"})->token_bytes();
  EXPECT_EQ(llama.tokens, (Strings{" a", "\xE4", " ", "b", "", "", "<added é>"}));
  EXPECT_EQ(llama.first_tokens, (Named{{0, "a"}, {2, ""}}));
  EXPECT_EQ(llama.special_tokens, (Named{{4, "<s>"}, {5, "<t>"}}));
  EXPECT_FALSE(llama.special_restarts);
  const VocabularyBytes bytes = decoder_of(kByteLevel, {"Ã", "Ġa"})->token_bytes();
  EXPECT_EQ(bytes.tokens, (Strings{"\xC3", " a", "", "", "<added é>"}));
  EXPECT_TRUE(bytes.first_tokens.empty());
  EXPECT_THROW(decoder_of(R"({"type": "BPEDecoder", "suffix": "x"})", {"a"})->token_bytes(), Error);
}

class PiecesTest : public ::testing::Test {
 protected:
  TokenDecoder decoder(const PieceRules& rules) {
    Vocabulary vocabulary(false);
    vocabulary.add(0, "<unk>", TokenKind::kUnknown);
    vocabulary.add(1, "<s>", TokenKind::kControl);
    vocabulary.add(2, "▁");
    vocabulary.add(3, "▁a▁");
    vocabulary.add(4, "<0xE2>", TokenKind::kByte);
    vocabulary.add(5, "<0x82>", TokenKind::kByte);
    vocabulary.add(6, "<0xAC>", TokenKind::kByte);
    const std::vector<AddedText> added = {{1, "<s>", "<s>", true}, {7, "<x>", "<x>", false}};
    return {vocabulary, added, rules};
  }
};

TEST_F(PiecesTest, StretchesBeginBehindCutTokens) {
  const TokenDecoder one = decoder({});
  EXPECT_EQ(pieces_of(one, {3, 3, 7, 3, 1, 2, 3}),
            (Strings{"a ", " a ", "<x>", "a ", "", "", " a ", ""}));
  const TokenDecoder every = decoder({.drops_space = true, .drops_every_space = true});
  EXPECT_EQ(pieces_of(every, {2, 2, 3, 0}), (Strings{"", "", "a ", " \xE2\x81\x87 ", ""}));
  EXPECT_EQ(pieces_of(decoder({.drops_space = false}), {3}), (Strings{" a ", ""}));
}

TEST_F(PiecesTest, BytesSettleAsSoonAsTheyAreCharacters) {
  const std::string bad(kReplacementText);
  const TokenDecoder pieces = decoder({});
  EXPECT_EQ(pieces_of(pieces, {4, 5, 6, 5, 4, 3, 4}),
            (Strings{"", "", "€", bad, "", bad + " a ", "", bad}));
  const std::vector<int32_t> prompt = {3};
  EXPECT_EQ(pieces_of(pieces, {3}, {.skip_special = true, .shown = {}, .after = prompt}),
            (Strings{" a ", ""}));
}

TEST_F(PiecesTest, BytesForGrammars) {
  const VocabularyBytes bytes = decoder({.drops_every_space = true}).token_bytes();
  EXPECT_EQ(bytes.tokens, (Strings{"", "", " ", " a ", "\xE2", "\x82", "\xAC", ""}));
  EXPECT_EQ(bytes.first_tokens, (Named{{2, "\xFF"}, {3, "a "}}));
  EXPECT_EQ(bytes.special_tokens, (Named{{1, "<s>"}, {7, "<x>"}}));
  EXPECT_TRUE(bytes.special_restarts);
}

}  // namespace
}  // namespace headrace::text
