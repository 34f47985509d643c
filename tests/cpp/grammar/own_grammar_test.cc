// GrammarCompiler's own engine: JSON schemas and regular expressions without a library.

#include "cpp/grammar/own_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace headrace {
namespace {

using testing::expect_error;

TEST_F(OwnGrammar, TokensOfSeveralBytesAreThoseOfTheirBytes) {
  const std::vector<std::string> more = {"\"a",        "\": ", "\"},{\"",    "true}", "1,2",
                                         "\", \"b\":", "ab",   "\xc3\xa9\"", "\xa9",  "[[",
                                         "{}",         " \"",  "  "};
  const VocabularyBytes vocabulary = all_bytes(more);
  GrammarCompiler compiler(vocabulary);
  const auto constraint = compiler.compile(
      GrammarKind::kJsonSchema,
      R"({"type":"array","items":{"anyOf":[{"type":"object"},{"type":"array","items":{"type":
          "integer"}},{"type":"string","maxLength":3}]}})");
  for (const std::string begun : {"", "[", "[\"", "[\"\xc3", "[{\"a", "[{\"a\": 1", "[[1", "[{}"}) {
    const auto matcher = constraint->start();
    for (const char c : begun) matcher->append(static_cast<unsigned char>(c));
    const Ids allowed = ask(*matcher, kWords).tokens;
    for (size_t i = 0; i < more.size(); ++i) {
      const bool expected = judge(*constraint, begun + more[i]) != Verdict::kNo;
      EXPECT_EQ(std::ranges::count(allowed, 256 + static_cast<int32_t>(i)), expected ? 1 : 0)
          << begun << " then " << more[i];
    }
  }
}

TEST_F(OwnGrammar, TokensThatAddSomethingElseAtTheStart) {
  VocabularyBytes words;
  words.tokens = {"a", " a", " ", "", "\xff"};
  words.first_tokens = {{1, "a"}, {2, ""}};
  words.special_tokens = {{3, "<|x|>"}};
  GrammarCompiler compiler(words);
  EXPECT_EQ(compiler.library_version(), "headrace");
  auto matcher = compiler.compile(GrammarKind::kRegex, "a a")->start();
  EXPECT_EQ(ask(*matcher, kWords), (Answer{{0, 1, 2}, false}));
  matcher->append(1);
  EXPECT_EQ(ask(*matcher, kWords), (Answer{{1, 2}, false}));
  matcher->append(1);
  EXPECT_EQ(ask(*matcher, kWords), (Answer{{}, true}));
  matcher = compiler.compile(GrammarKind::kRegex, " a")->start();
  EXPECT_EQ(ask(*matcher, kWords),
            (Answer{{2}, false}));  // a space is needed, and every first one is lost
  matcher->append(2);
  EXPECT_EQ(ask(*matcher, kWords), (Answer{{1, 2}, false}));
  EXPECT_EQ(ask(*compiler.compile(GrammarKind::kRegex, "")->start()), (Answer{{}, true}));
  expect_error(ErrorCode::kInvalidArgument, {"no token", "begin"},
               [&] { compiler.compile(GrammarKind::kRegex, "zzz"); });
  expect_error(ErrorCode::kUnsupported, {"llguidance", "library"},
               [&] { compiler.compile(GrammarKind::kLark, "start: /a/"); });
  words.first_tokens = {{7, "a"}};
  expect_error(ErrorCode::kInvalidArgument, {"first_tokens", "id 7"},
               [&] { GrammarCompiler other(words); });
}

TEST_F(OwnGrammar, Objects) {
  expect(R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"}},
             "required":["b"],"additionalProperties":false})",
         {R"({"a":1,"b":null})", R"({ "b" : null })", "{\n  \"b\": null\n}"},
         {"{}", R"({"a":1})", R"({"b":null,"a":1})", R"({"b":null,"b":null})", R"( {"b":null})"});
  expect(R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},
             "c":{"type":"null"}},"minProperties":1,"maxProperties":2,
             "additionalProperties":false})",
         {R"({"a":null})", R"({"a":null,"c":null})", R"({"c":null})"},
         {"{}", R"({"a":null,"b":null,"c":null})"});
  // What must still come is kept room for.
  expect(R"({"properties":{"a":{"type":"null"},"b":{"type":"null"}},"required":["b"],
             "maxProperties":1,"type":"object"})",
         {R"({"b":null})"}, {R"({"a":null)", R"({"b":null,"x":1})"});
  expect(R"({"type":"object","patternProperties":{"^x":{"type":"integer"},"y$":{"minimum":5}},
             "additionalProperties":{"type":"null"}})",
         {R"({"x":1,"y":6,"xy":7,"z":null})", R"({"y":"a"})"},
         {R"({"xy":3})", R"({"z":1})", R"({"x":null})"});
  expect(R"({"type":"object","propertyNames":{"enum":["a","b"]}})", {R"({"a":1,"b":2})", "{}"},
         {R"({"c":1})"});
  expect(R"({"type":"object","properties":{"aa":{"type":"null"},"b":{"type":"null"}},
             "propertyNames":{"pattern":"^a"}})",
         {R"({"aa":null,"ac":1})"}, {R"({"b":null})", R"({"c":1})"});
}

TEST_F(OwnGrammar, NamesAreChosenByTheirTexts) {
  // Of names, one is the beginning of another; some can't have a value.
  expect(R"({"type":"object","properties":{"a":{"type":"null"},"ab":{"type":"null"},"\"":false,
             "b":{"type":"null"},"abc":{"$ref":"#/$defs/e"},"c":{"type":"null"}},"required":["b"],
             "additionalProperties":{"type":"boolean"},
             "$defs":{"e":{"type":"object","properties":{"e":{"$ref":"#/$defs/e"}},
             "required":["e"]}}})",
         {R"({"b":null})", R"({"a":null,"ab":null,"b":null,"c":null})", R"({"ab":null,"b":null})",
          R"({"b":null,"abcd":true,"x":false,"x":false})"},
         {R"({"ab":null,"a":null,"b":null})", R"({"a":null})", R"({"a":null,"c":null})",
          R"({"b":null,"c":true})", R"({"x":true,"b":null})", R"({"b":null,"a":true})",
          R"({"b":null,"x":true,"c":null})"});
  const auto constraint = schema(
      R"({"type":"object","properties":{"\"":false,"abc":{"$ref":"#/$defs/e"},"ab":{}},
          "additionalProperties":false,"$defs":{"e":{"type":"object","properties":
          {"e":{"$ref":"#/$defs/e"}},"required":["e"]}}})");
  EXPECT_EQ(judge(*constraint, R"({"ab)"), Verdict::kBegun);
  EXPECT_EQ(judge(*constraint, R"({"\)"), Verdict::kNo);
  EXPECT_EQ(judge(*constraint, R"({"abc)"), Verdict::kNo);
}

TEST_F(OwnGrammar, BoundsThatNoValueMeetsAreNeverBegun) {
  for (const char* none : {R"({"type":"array","minItems":3,"maxItems":2})",
                           R"({"type":"array","prefixItems":[{}],"minItems":3,"maxItems":2})",
                           R"({"type":"object","minProperties":3,"maxProperties":2})",
                           R"({"type":"object","properties":{"a":{}},"minProperties":3,
                               "maxProperties":2})"}) {
    refuse_schema(ErrorCode::kInvalidArgument, none, {"no finite JSON"});
    const auto constraint = schema(std::string(R"({"anyOf":[{"type":"null"},)") + none + "]}");
    EXPECT_EQ(judge(*constraint, "null"), Verdict::kWhole);
    EXPECT_EQ(judge(*constraint, "["), Verdict::kNo) << none;
    EXPECT_EQ(judge(*constraint, "{"), Verdict::kNo) << none;
  }
}

TEST_F(OwnGrammar, KeywordsThatHoldTogether) {
  expect(R"({"allOf":[{"properties":{"a":{"type":"integer"}}},{"properties":{"a":{"minimum":3}},
             "required":["a"]}],"type":"object"})",
         {R"({"a":3})"}, {R"({"a":2})", "{}", R"({"a":"x"})"});
  expect(R"({"type":"integer","anyOf":[{"minimum":5},{"maximum":-5}],"multipleOf":5})",
         {"5", "-10", "15"}, {"0", "7", "-0"});
  expect(R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"v":{"type":"integer"}},
             "required":["k"]},{"type":"object","properties":{"k":{"const":"b"}},
             "required":["k"]}]})",
         {R"({"k":"a","v":1})", R"({"k":"b","v":null})"}, {R"({"k":"a","v":null})", "{}"});
  expect(R"({"type":"string","pattern":"b$","maxLength":3,"minLength":2})", {R"("ab")", R"("bbb")"},
         {R"("b")", R"("aaab")", R"("ba")"});
  expect(R"({"type":"string","nullable":true})", {"null", R"("")"}, {"1"});
  expect(R"({"enum":["a","abc",3,7.5,null],"maxLength":2,"maximum":5})", {R"("a")", "3", "null"},
         {R"("abc")", "7.5"});
}

TEST_F(OwnGrammar, Numbers) {
  expect(R"({"type":"number","minimum":-1.5,"exclusiveMaximum":20})",
         {"-1.5", "-1.49", "0", "-0.0", "19.999", "1.05", "7"},
         {"-1.51", "-2", "20", "20.0", "1e1"});
  expect(R"({"type":"number","exclusiveMinimum":0.25,"maximum":0.5})",
         {"0.5", "0.26", "0.2501", "0.3"}, {"0.25", "0.51", "0", "1"});
  expect(R"({"type":"integer","minimum":98,"maximum":1002})", {"98", "100", "999", "1002"},
         {"97", "1003", "098", "9", "10000"});
  expect(R"({"type":"number","multipleOf":0.07})", {"0.07", "0.7", "1.4", "-7", "0"},
         {"0.1", "0.08", "1"});
  expect(R"({"type":"integer","minimum":1e20})", {"100000000000000000000", "200000000000000000000"},
         {"99999999999999999999"});
  expect(R"({"type":"number"})", {"-1.5e+10", "0.1", "1E3"}, {"01", ".5", "1.", "+1", "1e"});
}

TEST_F(OwnGrammar, StringsAreJson) {
  expect(R"({"type":"string","minLength":1,"maxLength":1})",
         {R"("a")", "\"\xc3\xa9\"", "\"\xf0\x9f\x98\x80\"", R"("\n")", R"("\u001f")", R"("\"")"},
         {R"("")", R"("ab")", "\"\n\"", R"("\x")", "\"\xc3\"", "\"\xed\xa0\x80\""});
  expect(R"({"type":"string","format":"date"})", {R"("2024-02-29")"},
         {R"("2024-02-30")", R"("2024-13-01")"});
  expect(R"({"type":"string","format":"ipv6"})",
         {R"("::")", R"("1::")", R"("::1:2.3.4.5")", R"("1:2:3:4:5:6:7:8")", R"("1::8")"},
         {R"("1:2:3:4:5:6:7")", R"("1::2::3")", R"(":::")"});
  expect(R"({"type":"string","format":"uri"})",
         {R"("https://u@a.b-c:80/x/y?q=1#f")", R"("urn:a:b")", R"("http://[::1]/")"},
         {R"("a b")", R"("//x")", R"("http://[x]/")"});
}

TEST_F(OwnGrammar, BracketsOfSchemasAreThoseOfEcmaScript) {
  const auto pattern = [](const std::string& text) {
    return R"({"type":"string","pattern":")" + text + R"("})";
  };
  expect(pattern(R"(^[^[\\]]+$)"), {R"("a(")"}, {R"("[")", R"("a]")", R"("")"});
  expect(pattern("^[a&&b~~c]$"), {R"("a")", R"("&")", R"("~")", R"("c")"}, {R"("d")"});
  expect(pattern("^[+--]$"), {R"("+")", R"(",")", R"("-")"}, {R"(".")"});
  expect(pattern("^[[:x]$"), {R"("[")", R"(":")", R"("x")"}, {R"("y")"});
  expect(pattern("^[^]$"), {R"("a")", R"("\n")", R"("]")"}, {R"("")"});
  refuse_schema(ErrorCode::kInvalidArgument, pattern("^[]$"), {"no finite JSON"});
}

TEST_F(OwnGrammar, RefusedSchemasAreNamed) {
  const auto wrong = ErrorCode::kInvalidArgument;
  const auto unsupported = ErrorCode::kUnsupported;
  refuse_schema(wrong, "{", {"JSON schema can't be used", "byte"});
  refuse_schema(wrong, "[1]", {"must be an object or a bool"});
  refuse_schema(wrong, R"({"type":"mystery"})", {"type at /", "mystery"});
  refuse_schema(wrong, R"({"properties":{"a":{"minLength":-1}}})", {"minLength", "/properties/a"});
  refuse_schema(wrong, R"({"$ref":"#/$defs/x"})", {"#/$defs/x", "names nothing"});
  refuse_schema(wrong, R"({"$ref":"#"})", {"$ref", "leads back"});
  refuse_schema(wrong, R"({"anyOf":[{"type":"null"},{"$ref":"#"}]})", {"leads back"});
  refuse_schema(wrong, R"({"type":"integer","minimum":3,"maximum":2})", {"no finite JSON"});
  refuse_schema(wrong, R"({"type":"string","pattern":"("})", {"pattern at /", "byte 0"});
  refuse_schema(wrong, R"({"multipleOf":0})", {"multipleOf", "more than 0"});
  refuse_schema(unsupported, R"({"$ref":"http://x/y"})", {"http://x/y"});
  refuse_schema(unsupported, R"({"not":{"type":"null"}})", {"not at /"});
  refuse_schema(unsupported, R"({"items":{"minlength":3}})", {"minlength", "/items"});
  refuse_schema(unsupported, R"({"type":"array","uniqueItems":true})", {"uniqueItems"});
  refuse_schema(unsupported, R"({"type":"string","format":"regex"})", {"regex", "pattern"});
  refuse_schema(unsupported, R"x({"type":"string","pattern":"a(?=b)"})x",
                {"look-around", "byte 1"});
  refuse_schema(unsupported, R"({"oneOf":[{"type":"number"},{"type":"integer"}]})",
                {"oneOf", "anyOf"});
  refuse_schema(unsupported, R"({"const":{"a":1},"required":["b"]})", {"const", "beside"});
  // These ask for nothing.
  EXPECT_NE(schema(R"({"uniqueItems":false,"not":false,"dependentRequired":{},"x-own":{"y":1},
                       "if":{"type":"null"},"title":"t","$comment":"c"})"),
            nullptr);
}

TEST_F(OwnGrammar, Patterns) {
  const auto whole = [&](const std::string& pattern, const std::string& text) {
    return judge(*compiler_.compile(GrammarKind::kRegex, pattern), text) == Verdict::kWhole;
  };
  EXPECT_TRUE(whole("a{1,1000000}", std::string(3000, 'a')));
  EXPECT_FALSE(whole("a{4000,1000000}", std::string(3000, 'a')));
  EXPECT_TRUE(
      whole("(?i)stra\xc3\x9f"
            "e",
            "STRA\xe1\xba\x9e"
            "E"));
  EXPECT_TRUE(whole("[\\p{Greek}--\xce\xb1]+", "\xce\xb2\xce\xb3"));
  EXPECT_FALSE(whole("[\\p{Greek}--\xce\xb1]+", "\xce\xb1"));
  refuse(ErrorCode::kUnsupported, GrammarKind::kRegex, "a\\b", {"byte 1", "end of a word"});
  refuse(ErrorCode::kUnsupported, GrammarKind::kRegex, "(a)\\1", {"back reference"});
  refuse(ErrorCode::kUnsupported, GrammarKind::kRegex, "a^b", {"^ or $"});
  refuse(ErrorCode::kInvalidArgument, GrammarKind::kRegex, "[b-a]", {"range"});
  refuse(ErrorCode::kInvalidArgument, GrammarKind::kRegex, "[a&&b]", {"nothing matches"});
}

}  // namespace
}  // namespace headrace
