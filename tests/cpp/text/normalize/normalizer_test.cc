#include "text/normalize/normalizer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "headrace/status.h"
#include "text/normalize/base64.h"
#include "text/normalize/charsmap.h"
#include "text/normalize/normalizers.h"

namespace headrace::text {
namespace {

NormalText normalize(const std::string& spec, std::string_view text, bool tracked = true) {
  NormalText result(text, 0, tracked);
  Fuel fuel(64 * text.size() + 1'000'000, "this test");
  make_normalizer(json::parse(spec))->apply(&result, &fuel);
  return result;
}

std::string text_of(const std::string& spec, std::string_view text) {
  return std::string(normalize(spec, text).view());
}

std::string sequence(const std::string& steps) {
  return R"({"type":"Sequence","normalizers":[)" + steps + "]}";
}

std::string replace(const std::string& pattern, const std::string& content) {
  return R"({"type":"Replace","pattern":)" + pattern + R"(,"content":")" + content + R"("})";
}

const std::string kPrepend = R"({"type":"Prepend","prepend":"▁"})";
const std::string kBert =
    R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,)"
    R"("strip_accents":null,"lowercase":true})";

TEST(Normalizer, ChainsAndReplacements) {
  EXPECT_EQ(text_of(sequence(""), "as it is"), "as it is");
  EXPECT_EQ(text_of(sequence(kPrepend + "," + replace(R"({"String":" "})", "▁")), " a b"), "▁▁a▁b");
  EXPECT_EQ(text_of(kPrepend, ""), "");
  EXPECT_EQ(text_of(replace(R"({"Regex":"x*"})", "-"), "axb"), "-a-b-");
  EXPECT_EQ(text_of(replace(R"({"String":"."})", "\\\\1"), "a.b"), "a\\1b");
  EXPECT_EQ(text_of(R"({"type":"Lowercase"})", "\u0391\u03a3\u0130"), "\u03b1\u03c3i\u0307");
  EXPECT_EQ(text_of(R"({"type":"Strip","strip_left":false,"strip_right":true})", " a\u3000\u00a0"),
            " a");
  EXPECT_EQ(text_of(R"({"type":"Nmt"})", "a\u200b\u2581\x01z"), "a  z");
  EXPECT_EQ(text_of(R"({"type":"ByteLevel"})", "\u00e9 a"), "\u00c3\u00a9\u0120a");
}

TEST(Normalizer, Bert) {
  EXPECT_EQ(text_of(kBert, "\u00c9t\u00e9\u4e2d\u200d\u0085\u00a0\ufffdX"), "ete 中  x");
  EXPECT_EQ(text_of(kBert, "\u0378"), "\u0378");  // nobody's character stays
}

TEST(Normalizer, OriginsAreThePackages) {
  // "e\u0301" becomes one character that comes from the first; what is put in front comes from it.
  const NormalText text = normalize(
      sequence(R"({"type":"NFC"},)" + kPrepend + "," + replace(R"({"String":"bc"})", "d")),
      "e\u0301abc");
  EXPECT_EQ(text.view(), "▁\u00e9ad");
  EXPECT_EQ(text.origin(0, 3), (Range{0, 1}));
  EXPECT_EQ(text.origin(3, 5), (Range{0, 1}));
  EXPECT_EQ(text.origin(5, 6), (Range{3, 4}));
  EXPECT_EQ(text.origin(6, 7), (Range{5, 6}));  // the last character of what it replaces
}

TEST(Normalizer, KnowsWhetherTheTextBegins) {
  const std::string strip = R"({"type":"Strip","strip_left":true,"strip_right":true})";
  for (const bool tracked : {false, true}) {
    EXPECT_TRUE(normalize(kPrepend, "a", tracked).begins_text());
    EXPECT_FALSE(normalize(strip, " a", tracked).begins_text());
    // What is left comes from the first character, too.
    EXPECT_TRUE(normalize(sequence(R"({"type":"Prepend","prepend":" "},)" + strip), "a", tracked)
                    .begins_text());
    EXPECT_FALSE(NormalText("ab", 0, tracked).part(1, 2).begins_text());
  }
}

/// Rules "a" -> "x", "ab" -> "", "\u00e9" -> "yz", "\u00f1" -> "".
std::string charsmap_bytes() {
  std::vector<uint32_t> words(196);
  words[0] = 4 * (words.size() - 1);
  const std::pair<size_t, uint32_t> units[] = {
      {0, 0x400},    {2, 0x80000002}, {3, 0x80000000}, {5, 0x80000003}, {6, 0x80000006},
      {96, 0x18d61}, {97, 0x18d62},   {173, 0x2a1a9},  {181, 0x2cdb1},  {194, 0x318c3}};
  for (const auto& [place, unit] : units) {
    words[place + 1] = unit;
  }
  std::string bytes(words.size() * sizeof(uint32_t), '\0');
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes + std::string("x\0\0yz\0", 7);
}

TEST(Charsmap, ShortestAndLongestRules) {
  const Charsmap map(charsmap_bytes());
  EXPECT_EQ(map.shortest("abc")->size, 1u);
  EXPECT_EQ(map.shortest("abc")->content, "x");
  EXPECT_EQ(map.longest("abc")->size, 2u);
  EXPECT_EQ(map.longest("abc")->content, "");
  EXPECT_EQ(map.longest("\u00e9a")->content, "yz");
  EXPECT_FALSE(map.longest("b").has_value());
  EXPECT_TRUE(map.begins('a'));
  EXPECT_FALSE(map.begins('b'));
}

TEST(Normalizer, PrecompiledGoesByCluster) {
  const auto apply = [](std::string_view text) {
    NormalText result(text, 0, true);
    Fuel fuel(1'000'000, "this test");
    make_precompiled(Charsmap(charsmap_bytes()))->apply(&result, &fuel);
    return result;
  };
  EXPECT_EQ(apply("ab").view(), "xb");        // not sentencepiece's rule
  EXPECT_EQ(apply("a\u0301b").view(), "xb");  // the mark is lost
  EXPECT_EQ(apply("a\u0301\u0302\u0303").view(), "x\u0301\u0302\u0303");  // over 5 bytes
  // Nothing is in front of what vanishes, so the rest comes from the wrong characters, as there.
  const NormalText gone = apply("\u00f1ccc");
  EXPECT_EQ(gone.view(), "ccc");
  EXPECT_EQ(gone.origin(0, 1), (Range{0, 2}));
  const NormalText text = apply("\u00e9b");
  EXPECT_EQ(text.view(), "yzb");
  EXPECT_EQ(text.origin(1, 2), (Range{0, 2}));
  EXPECT_EQ(text.origin(2, 3), (Range{2, 3}));
}

TEST(Charsmap, RefusesWhatIsNone) {
  const std::string leaf_outside("\x04\0\0\0\0\x01\0\x7f", 8);
  for (const std::string& bytes : {std::string(), std::string(4, '\0'), std::string(4, '\xff'),
                                   leaf_outside, std::string("\x04\0\0\0\0\0\0\0\xff", 9)}) {
    EXPECT_THROW(Charsmap{bytes}, Error);
  }
  EXPECT_THROW(base64_bytes("abc"), Error);
  EXPECT_THROW(base64_bytes("ab=c"), Error);
  EXPECT_EQ(base64_bytes("aGk="), "hi");
}

TEST(Normalizer, RefusesByName) {
  const auto code = [](const std::string& spec) {
    try {
      make_normalizer(json::parse(spec));
    } catch (const Error& error) {
      return std::string(error_code_name(error.code())) + ": " + error.what();
    }
    return std::string();
  };
  EXPECT_EQ(make_normalizer(json::Value()), nullptr);
  EXPECT_NE(code(R"({"type":"Shout"})").find("\"Shout\""), std::string::npos);
  EXPECT_NE(code(R"({"type":"Strip"})").find("\"strip_left\""), std::string::npos);
  std::string doubling = replace(R"({"String":"a"})", "aa");
  for (int i = 0; i < 3; ++i) {
    doubling += "," + std::string(doubling);
  }
  EXPECT_NE(code(sequence(doubling)).find("64 times longer"), std::string::npos);
  std::string nested = kPrepend;
  for (int i = 0; i < 20; ++i) {
    nested = sequence(nested);
  }
  EXPECT_NE(code(nested).find("16 Sequences"), std::string::npos);
}

TEST(NormalTextTest, GrowsOnlySoFar) {
  NormalText text("a", 0, true);
  // Refused before a byte of it is read.
  const std::string_view huge("a", NormalText::kMaxBytes);
  NormalText::Writer writer(text);
  writer.put("a", 0, 1);
  EXPECT_THROW(writer.put(huge, 0, 1), Error);
  EXPECT_THROW(writer.put(huge, 0, 0), Error);
  EXPECT_THROW(text.prepend(huge), Error);
}

}  // namespace
}  // namespace headrace::text
