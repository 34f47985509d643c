#include <gtest/gtest.h>

#include <string>

#include "headrace/status.h"
#include "text/json/scanner.h"
#include "text/json/value.h"

namespace headrace::text::json {
namespace {

std::string error_of(std::string_view text, const Limits& limits = {}) {
  try {
    parse(text, limits);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Json, ReadsEveryKindOfValue) {
  const Value value =
      parse(R"( {"n":null,"b":[true,false],"i":-7,"f":1.5e1,"s":"a\u00e9\ud83d\ude00\n",
                                "big":18446744073709551616,"o":{}} )");
  ASSERT_NE(value.object(), nullptr);
  EXPECT_EQ(value.object()->size(), 7u);
  EXPECT_TRUE(value.find("n")->is_null());
  EXPECT_TRUE(*value.find("b")->list()->at(0).boolean());
  EXPECT_EQ(*value.find("i")->integer(), -7);
  EXPECT_EQ(*value.find("f")->real(), 15.0);
  EXPECT_EQ(*value.find("s")->string(), "a\u00e9\U0001F600\n");
  EXPECT_EQ(*value.find("big")->real(), 18446744073709551616.0);
  EXPECT_TRUE(value.find("o")->object()->empty());
  EXPECT_EQ(value.find("x"), nullptr);
  EXPECT_EQ(value.object()->front().first, "n");
}

TEST(Json, LongStringsAreReadWhole) {
  for (size_t size = 0; size < 40; ++size) {
    const std::string plain(size, 'x');
    EXPECT_EQ(*parse('"' + plain + '"').string(), plain);
    EXPECT_EQ(*parse('"' + plain + "\\\"\xC3\xA9" + plain + '"').string(),
              plain + "\"\xC3\xA9" + plain);
  }
}

TEST(Json, WhatMayNotBeInAStringIsFoundAtEveryPlace) {
  for (size_t before = 0; before < 40; ++before) {
    const std::string text = '"' + std::string(before, 'x');
    for (const char wrong : {'\n', '\0', '\x1F', '\x80', '\xFF'}) {
      const std::string error = error_of(text + wrong + std::string(40, 'y') + '"');
      EXPECT_TRUE(error.ends_with("at byte " + std::to_string(before + 1))) << error;
    }
    EXPECT_EQ(error_of(text + "\x7F\xE4\xBD\xA0 \xF0\x9F\x98\x80" + std::string(20, 'y') + '"'),
              "");
  }
}

TEST(Json, SpacesBetweenValuesMayBeMany) {
  for (size_t count = 0; count < 40; ++count) {
    const std::string spaces = "\n" + std::string(count, ' ') + "\r\n\t";
    std::string text = "[";
    for (const char* part : {"1", ",", "\"a\"", "]"}) text += spaces + part;
    EXPECT_EQ(parse(text).list()->size(), 2u);
  }
}

TEST(Json, TheScannerCountsWhatIsAhead) {
  for (const size_t size : {0, 1, 15, 16, 17, 5000}) {
    std::string text(size, 'x');
    for (size_t at = 0; at < size; at += 3) text[at] = '"';
    EXPECT_EQ(Scanner(text, 1, 1).count_ahead('"'), (size + 2) / 3);
  }
}

TEST(Json, WhatIsNoJsonIsAnErrorThatNamesTheByte) {
  for (const char* wrong : {"",        " ",        "{",
                            "[1",      "[1,]",     "[1 2]",
                            "{\"a\"}", "{\"a\":}", "{\"a\":1,}",
                            "{a:1}",   "01",       "1.",
                            "-",       "+1",       "1e",
                            ".5",      "tru",      "nul",
                            "\"",      "\"\\x\"",  "\"\\u12\"",
                            "\"\n\"",  "1 1",      "'a'",
                            "[]]",     "1e999",    "\xEF\xBB\xBF{}",
                            "NaN",     "//x\n1"}) {
    EXPECT_NE(error_of(wrong).find("at byte"), std::string::npos) << wrong << error_of(wrong);
  }
  EXPECT_EQ(error_of("[1,x]"), "not valid JSON: expected a value at byte 3");
}

TEST(Json, LoneSurrogatesAndWrongUtf8AreErrors) {
  for (const char* wrong : {"\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"", "\"\\ud800x\""}) {
    EXPECT_NE(error_of(wrong).find("a lone surrogate"), std::string::npos) << wrong;
  }
  for (const char* wrong : {"\"\xC0\x80\"", "\"\xED\xA0\x80\"", "\"\xF4\x90\x80\x80\"",
                            "\"\xE2\x82\"", "\"\x80\"", "\"\xF0\x82\x82\xAC\"", "\"\xC3"}) {
    EXPECT_NE(error_of(wrong).find("not UTF-8"), std::string::npos) << wrong;
  }
}

TEST(Json, AKeyTwiceIsAnError) {
  EXPECT_NE(error_of(R"({"a":1,"a":2})").find("a key that its object had before"),
            std::string::npos);
  std::string many = "{";
  for (int i = 0; i < 50; ++i) many += "\"k" + std::to_string(i) + "\":0,";
  EXPECT_EQ(error_of(many + "\"z\":0}"), "");
  EXPECT_NE(error_of(many + "\"k7\":0}").find("a key"), std::string::npos);
}

TEST(Json, LimitsHold) {
  Limits limits;
  limits.max_depth = 3;
  EXPECT_EQ(error_of("[[[1]]]", limits), "");
  EXPECT_NE(error_of("[[[[1]]]]", limits).find("nested too deeply"), std::string::npos);
  limits.max_values = 3;
  EXPECT_EQ(error_of(R"({"a":1,"b":2})", limits), "");
  EXPECT_NE(error_of("[1,2,3]", limits).find("too many values"), std::string::npos);
  limits.max_bytes = 4;
  EXPECT_NE(error_of("[1,2]", limits).find("5 bytes"), std::string::npos);
  EXPECT_NE(error_of(std::string(100000, '[')).find("nested too deeply"), std::string::npos);
}

TEST(Json, TheScannerSkipsWhatIsNotWanted) {
  Scanner scanner(R"({"a":[1,{"b":["]}",null]}],"c":"d"} )", 10, 100);
  std::string buffer;
  std::string_view key;
  scanner.enter_object();
  ASSERT_TRUE(scanner.next_key(&buffer, &key));
  EXPECT_EQ(key, "a");
  scanner.skip_value();
  ASSERT_TRUE(scanner.next_key(&buffer, &key));
  EXPECT_EQ(key, "c");
  EXPECT_EQ(scanner.read_string(&buffer), "d");
  EXPECT_FALSE(scanner.next_key(&buffer, &key));
  scanner.finish();
}

}  // namespace
}  // namespace headrace::text::json
