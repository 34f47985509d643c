#include "text/split/splitter.h"

#include <gtest/gtest.h>

#include <string>

#include "headrace/status.h"

namespace headrace::text {
namespace {

/// The words, divided by bars, of a text that begins at byte `offset` of its original.
std::string words_of(const std::string& spec, std::string_view text, size_t offset = 0) {
  const SplitterSpec made = make_splitter(json::parse(spec));
  Fuel fuel(1u << 20, "this test");
  Words words;
  words.text = NormalText(text, offset, true);
  words.ranges = {{0, static_cast<uint32_t>(text.size())}};
  if (made.splitter != nullptr) {
    made.splitter->apply(&words, &fuel);
  }
  std::string shown;
  for (const Range& word : words.ranges) {
    shown += shown.empty() ? "" : "|";
    shown += words.text.view().substr(word.begin, word.end - word.begin);
  }
  return shown;
}

std::string split(const std::string& pattern, const std::string& behavior, bool invert = false) {
  return R"({"type": "Split", "pattern": )" + pattern + R"(, "behavior": ")" + behavior +
         R"(", "invert": )" + (invert ? "true}" : "false}");
}

TEST(SplitterTest, Behaviors) {
  const std::string space = R"({"String": " "})";
  const char* text = " a  b ";
  EXPECT_EQ(words_of(split(space, "Removed"), text), "a|b");
  EXPECT_EQ(words_of(split(space, "Isolated"), text), " |a| | |b| ");
  EXPECT_EQ(words_of(split(space, "MergedWithPrevious"), text), " |a | |b ");
  EXPECT_EQ(words_of(split(space, "MergedWithNext"), text), " a| | b| ");
  EXPECT_EQ(words_of(split(space, "Contiguous"), text), " |a|  |b| ");
  EXPECT_EQ(words_of(split(R"({"Regex": "\\w"})", "Removed", true), "a, bc"), "a|b|c");
  EXPECT_EQ(words_of(split(R"({"String": ""})", "Isolated"), "abc"), "a|b|c");
}

TEST(SplitterTest, EachStepSeesEachWordAlone) {
  const std::string spaces = split(R"({"Regex": "\\s+(?!\\S)|\\s+"})", "Isolated");
  const std::string digits = R"({"type": "Digits", "individual_digits": true})";
  const std::string both =
      R"({"type": "Sequence", "pretokenizers": [)" + digits + "," + spaces + "]}";
  EXPECT_EQ(words_of(spaces, "a  1"), "a| | |1");
  EXPECT_EQ(words_of(both, "a  1"), "a|  |1");
}

TEST(SplitterTest, ByteLevel) {
  const char* spec = R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true})";
  EXPECT_EQ(words_of(spec, "Hi  you"), " Hi| | you");
  EXPECT_EQ(words_of(spec, "\nHi"), " |\n|Hi");
  EXPECT_EQ(
      words_of(R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})", "a b"),
      "a b");
  EXPECT_TRUE(make_splitter(json::parse(spec)).byte_level);
}

std::string metaspace(const std::string& scheme, const char* cut) {
  return R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": ")" + scheme +
         R"(", "split": )" + cut + "}";
}

TEST(SplitterTest, Metaspace) {
  EXPECT_EQ(words_of(metaspace("always", "true"), "Hi  you"), "▁Hi|▁|▁you");
  EXPECT_EQ(words_of(metaspace("always", "false"), " Hi you"), "▁Hi▁you");
  EXPECT_EQ(words_of(metaspace("never", "true"), "Hi you"), "Hi|▁you");
  EXPECT_EQ(words_of(metaspace("first", "true"), "Hi you"), "▁Hi|▁you");
  EXPECT_EQ(words_of(metaspace("first", "true"), "Hi you", 3), "Hi|▁you");
}

TEST(SplitterTest, WordsKeepTheirOrigins) {
  const SplitterSpec made = make_splitter(json::parse(metaspace("always", "true")));
  Fuel fuel(1000, "this test");
  Words words;
  words.text = NormalText("é b", 4, true);
  words.ranges = {{0, 4}};
  made.splitter->apply(&words, &fuel);
  ASSERT_EQ(words.ranges.size(), 2u);
  EXPECT_EQ(words.text.origin(words.ranges[0].begin, words.ranges[0].end), (Range{4, 6}));
  EXPECT_EQ(words.text.origin(words.ranges[1].begin, words.ranges[1].end), (Range{6, 8}));
}

TEST(SplitterTest, CharacterKinds) {
  EXPECT_EQ(words_of(R"({"type": "Digits", "individual_digits": false})", "a12²b"), "a|12²|b");
  EXPECT_EQ(words_of(R"({"type": "Digits", "individual_digits": true})", "a12b"), "a|1|2|b");
  EXPECT_EQ(words_of(R"({"type": "Whitespace"})", "Hey, you?!  ok"), "Hey|,|you|?!|ok");
  EXPECT_EQ(words_of(R"({"type": "WhitespaceSplit"})", " Hey, you "), "Hey,|you");
  EXPECT_EQ(words_of(R"({"type": "BertPreTokenizer"})", "a$ b-c!"), "a|$|b|-|c|!");
  EXPECT_EQ(words_of(R"({"type": "Punctuation", "behavior": "Removed"})", "a,b"), "a|b");
  EXPECT_EQ(words_of(R"({"type": "CharDelimiterSplit", "delimiter": "é"})", "aébé"), "a|b");
  EXPECT_EQ(words_of(R"({"type": "FixedLength", "length": 2})", "aébcd"), "aé|bc|d");
  EXPECT_EQ(words_of("null", "a b"), "a b");
}

void expect_error(const std::string& spec, ErrorCode code, const std::string& part) {
  try {
    make_splitter(json::parse(spec));
    ADD_FAILURE() << spec;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(SplitterTest, WrongSpecsSayWhy) {
  expect_error("3", ErrorCode::kCorruptFile, "isn't an object");
  expect_error("{}", ErrorCode::kCorruptFile, "'type'");
  expect_error(R"({"type": "UnicodeScripts"})", ErrorCode::kUnsupported, "UnicodeScripts");
  expect_error(R"({"type": "Sequence"})", ErrorCode::kCorruptFile, "'pretokenizers'");
  expect_error(split(R"({"String": "a"})", "Merged"), ErrorCode::kCorruptFile, "MergedWithNext");
  expect_error(split(R"("a")", "Removed"), ErrorCode::kCorruptFile, "'pattern'");
  expect_error(split(R"({"Regex": "(a)\\1"})", "Removed"), ErrorCode::kUnsupported, "byte 3");
  expect_error(R"({"type": "Digits"})", ErrorCode::kCorruptFile, "'individual_digits'");
  expect_error(R"({"type": "FixedLength", "length": 0})", ErrorCode::kCorruptFile, "'length'");
  expect_error(R"({"type": "Metaspace", "replacement": "ab"})", ErrorCode::kCorruptFile,
               "one character");
  expect_error(
      R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "add_prefix_space": false})",
      ErrorCode::kCorruptFile, "'prepend_scheme'");
  expect_error(
      R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": false},
                   {"type": "WhitespaceSplit"}]})",
      ErrorCode::kUnsupported, "behind ByteLevel");
}

}  // namespace
}  // namespace headrace::text
