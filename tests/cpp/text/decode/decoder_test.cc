#include "text/decode/decoder.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "cpp/text/decode/decode_cases.h"
#include "headrace/status.h"
#include "text/unicode/utf8.h"

namespace headrace::text {
namespace {

using Strings = std::vector<std::string>;

std::string decode(std::string_view spec, const Strings& tokens) {
  std::vector<int32_t> ids(tokens.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  return decoder_of(spec, tokens)->decode(ids, /*skip_special=*/false);
}

// What the package `tokenizers` gives.
TEST(DecoderTest, DecodesAsThePackageDoes) {
  const std::string replacement(kReplacementText);
  EXPECT_EQ(decode("null", {"a", "b"}), "a b");
  EXPECT_EQ(decode(kByteLevel, {"ĠHi", "â", "Ĥ", "¬", "é", "▁"}), " Hi€" + replacement + "▁");
  EXPECT_EQ(decode(R"({"type": "ByteFallback"})", {"<0xC3>", "<0xA9>", "x", "<0x+F>", "<0xff>"}),
            "éx" + replacement + replacement);
  EXPECT_EQ(decode(kLlama, {"▁", "▁a", "<0xE4>", "b"}), " a" + replacement + "b");
  EXPECT_EQ(decode(R"({"type": "Metaspace", "replacement": "▁"})", {"▁a▁", "▁b"}), "a b");
  EXPECT_EQ(decode(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})",
                   {"▁a▁", "▁b"}),
            " a  b");
  EXPECT_EQ(decode(R"({"type": "WordPiece", "prefix": "##", "cleanup": true})",
                   {"##a", "##b", "c", ".", "do not"}),
            "##ab c. don't");
  EXPECT_EQ(decode(R"({"type": "BPEDecoder", "suffix": "</w>"})", {"a</w>", "b</w>"}), "a b");
  EXPECT_EQ(
      decode(R"({"type": "Strip", "content": " ", "start": 1, "stop": 1})", {"  a  ", " ", "   "}),
      " a  ");
  EXPECT_EQ(
      decode(R"({"type": "Replace", "pattern": {"String": ""}, "content": "x"})", {"é", "ab"}),
      "xéxxaxbx");
}

TEST(DecoderTest, WhatNeedsTheWholeTextComesAtTheEnd) {
  constexpr std::string_view kSpec = R"({"type": "Sequence", "decoders": [
      {"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "ab"}, "content": "-"},
      {"type": "Strip", "content": " ", "start": 0, "stop": 1}]})";
  const auto decoder = decoder_of(kSpec, {"a", "b "});
  EXPECT_EQ(pieces_of(*decoder, {0, 1}), (Strings{"", "", "-"}));
  Detokenizer detokenizer(*decoder, {});
  EXPECT_FALSE(detokenizer.holding());
  std::string text;
  detokenizer.push(0, &text);
  EXPECT_TRUE(detokenizer.holding());
}

ErrorCode refusal(std::string_view spec) {
  try {
    make_decoder(json::parse(spec));
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kOk;
}

TEST(DecoderTest, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(refusal(R"({"type": "CTC", "pad_token": "<pad>"})"), ErrorCode::kUnsupported);
  EXPECT_EQ(refusal(R"({"decoders": []})"), ErrorCode::kCorruptFile);
  EXPECT_EQ(refusal(R"({"type": "Sequence"})"), ErrorCode::kCorruptFile);
  EXPECT_EQ(refusal(R"({"type": "Replace", "content": "a"})"), ErrorCode::kCorruptFile);
  EXPECT_EQ(refusal(R"({"type": "Strip", "content": "ab", "start": 0, "stop": 0})"),
            ErrorCode::kCorruptFile);
  EXPECT_EQ(refusal(R"({"type": "Strip", "content": "a", "start": -1, "stop": 0})"),
            ErrorCode::kCorruptFile);
  EXPECT_EQ(refusal(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "often"})"),
            ErrorCode::kCorruptFile);
  EXPECT_EQ(refusal(R"({"type": "Metaspace", "replacement": "▁", "add_prefix_space": false})"),
            ErrorCode::kCorruptFile);
}

TEST(DecoderTest, RefusesChainsThatBlowTextsUp) {
  const auto chain = [](std::string_view step, int count) {
    std::string spec = R"({"type": "Sequence", "decoders": [)";
    for (int i = 0; i < count; ++i) spec.append(i == 0 ? "" : ", ").append(step);
    return spec + "]}";
  };
  constexpr std::string_view kDoubles =
      R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  EXPECT_EQ(refusal(chain(kDoubles, 6)), ErrorCode::kOk);
  EXPECT_EQ(refusal(chain(kDoubles, 7)), ErrorCode::kLimitExceeded);
  EXPECT_EQ(refusal(chain(R"({"type": "BPEDecoder", "suffix": ""})", 4)),
            ErrorCode::kLimitExceeded);
  EXPECT_EQ(refusal(chain(R"({"type": "ByteFallback"})", 65)), ErrorCode::kLimitExceeded);
}

/// Texts of all pushes are whole characters, and none is missing while nothing is held.
void check_pushes(const TokenDecoder& decoder, const std::vector<int32_t>& ids) {
  Detokenizer detokenizer(decoder, {.skip_special = false, .shown = {}, .after = {}});
  std::string text;
  for (size_t count = 1; count <= ids.size(); ++count) {
    detokenizer.push(ids[count - 1], &text);
    ASSERT_EQ(invalid_utf8_at(text), kValid);
    const std::string whole = decoder.decode(std::span(ids).first(count), false);
    ASSERT_TRUE(whole.starts_with(text));
    if (!detokenizer.holding()) {
      ASSERT_EQ(text, whole);
    }
  }
}

TEST(DecoderTest, PushesAreExact) {
  const Strings tokens = {"a",      "▁b",     "▁",      "##c",    "d</w>",  ".",     "Ġ",
                          "<0xE4>", "<0xBD>", "<0xA0>", "<0x41>", "<0xED>", "ä½ł",   "Ã",
                          "ðŁ",     "Ĭ",      "<0x4g>", " ",      "n't",    "<0x80>"};
  std::mt19937 random(1);
  for (const std::string_view spec :
       {std::string_view("null"), kByteLevel, kLlama,
        std::string_view(R"({"type": "WordPiece", "prefix": "##", "cleanup": true})"),
        std::string_view(R"({"type": "BPEDecoder", "suffix": "</w>"})"),
        std::string_view(R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"},
            {"type": "BPEDecoder", "suffix": "a"}, {"type": "Metaspace", "replacement": "▁"}]})")}) {
    const auto decoder = decoder_of(spec, tokens);
    for (int round = 0; round < 100; ++round) {
      std::vector<int32_t> ids(random() % 12);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % (tokens.size() + 5)) - 1;
      check_pushes(*decoder, ids);
    }
  }
}

}  // namespace
}  // namespace headrace::text
