// GrammarCompiler's own engine: JSON schemas and regular expressions without a library.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "cpp/engine/expect_error.h"
#include "cpp/grammar/ask.h"
#include "headrace/grammar.h"

namespace headrace {
namespace {

using testing::expect_error;
/// One id for each byte, in order, then some of several.
VocabularyBytes all_bytes(const std::vector<std::string>& more = {}) {
  VocabularyBytes out;
  for (int byte = 0; byte < 256; ++byte) out.tokens.emplace_back(1, static_cast<char>(byte));
  out.tokens.insert(out.tokens.end(), more.begin(), more.end());
  return out;
}

constexpr size_t kWords = 16;  // of a mask: more than any vocabulary here needs

/// Whether a constraint allows a text, byte by byte, and where it may end.
enum class Verdict { kNo, kBegun, kWhole };

Verdict judge(const TokenConstraint& constraint, const std::string& text) {
  const auto matcher = constraint.start();
  for (const char c : text) {
    const auto token = static_cast<int32_t>(static_cast<unsigned char>(c));
    if (!std::ranges::count(ask(*matcher, kWords).tokens, token)) return Verdict::kNo;
    matcher->append(token);
  }
  return ask(*matcher, kWords).may_end ? Verdict::kWhole : Verdict::kBegun;
}

class OwnGrammar : public ::testing::Test {
 protected:
  std::shared_ptr<TokenConstraint> schema(const std::string& text) {
    return compiler_.compile(GrammarKind::kJsonSchema, text);
  }
  void expect(const std::string& text, const std::vector<std::string>& whole,
              const std::vector<std::string>& no) {
    const auto constraint = schema(text);
    for (const std::string& output : whole) {
      EXPECT_EQ(judge(*constraint, output), Verdict::kWhole) << text << " " << output;
    }
    for (const std::string& output : no) {
      EXPECT_NE(judge(*constraint, output), Verdict::kWhole) << text << " " << output;
    }
  }
  void refuse(ErrorCode code, GrammarKind kind, const std::string& text,
              std::initializer_list<const char*> words) {
    expect_error(code, words, [&] { compiler_.compile(kind, text); });
  }
  void refuse_schema(ErrorCode code, const std::string& text,
                     std::initializer_list<const char*> words) {
    refuse(code, GrammarKind::kJsonSchema, text, words);
  }

  GrammarCompiler compiler_{all_bytes()};
};

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

/// `count` items, each made of its number.
template <class Item>
std::string listed(int count, const Item& item) {
  std::string out;
  for (int i = 0; i < count; ++i) out += (i == 0 ? "" : ",") + item(std::to_string(i));
  return out;
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

/// A step costs what differs, not all that there is.
TEST_F(OwnGrammar, ManyNamesAndValues) {
  const auto follow = [&](const std::string& text, const std::vector<std::string>& whole,
                          const std::vector<std::string>& no) {
    const auto constraint = schema(text);
    for (const std::string& output : whole) EXPECT_EQ(judge(*constraint, output), Verdict::kWhole);
    for (const std::string& output : no) EXPECT_NE(judge(*constraint, output), Verdict::kWhole);
  };
  const auto names = [](const std::string& i) { return "\"p" + i + R"(":{"type":"integer"})"; };
  const auto values = [](const std::string& i) {
    return R"({"id":")" + i + R"(","n":[1,)" + i + "]}";
  };
  const auto constants = [](const std::string& i) { return R"({"const":")" + i + "\"}"; };
  const auto quoted = [](const std::string& i) { return '"' + i + '"'; };
  follow(R"({"type":"object","properties":{)" + listed(2000, names) + "}}",
         {R"({"p7":1,"p70":3,"p1999":2,"x":null})", "{\n  \"p1999\":2}", "{}"},
         {R"({"p7":1,"p3":2})", R"({"p1999":"a"})"});
  follow(R"({"type":"object","maxProperties":3,"properties":{)" + listed(1000, names) + "}}",
         {R"({"p7":1,"p999":2,"x":null})"}, {R"({"p7":1,"p8":2,"p9":3,"p10":4})"});
  follow(R"({"enum":[)" + listed(2000, values) + "]}",
         {R"({"id":"1999","n":[1,1999]})", "{ \"id\" : \"0\" , \"n\" : [ 1 , 0 ] }"},
         {R"({"id":"7","n":[1,8]})"});
  follow(R"({"type":"array","items":{"anyOf":[)" + listed(1000, constants) + "]}}",
         {R"(["999","0"])"}, {R"(["1000"])"});
  follow(R"({"type":"object","propertyNames":{"enum":[)" + listed(2000, quoted) + "]}}",
         {R"({"1999":null})"}, {R"({"2000":null})"});
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

TEST_F(OwnGrammar, RecursionOfAnyDepth) {
  const auto constraint = schema(R"({"type":"array","items":{"$ref":"#"}})");
  const auto deep = constraint->start();
  for (int i = 0; i < 20'000; ++i) deep->append('[');
  EXPECT_EQ(ask(*deep, kWords).tokens, (Ids{'\n', '\r', ' ', '[', ']'}));
  EXPECT_EQ(judge(*constraint, "[[],[[]]]"), Verdict::kWhole);
  // What only has endless values is never begun.
  expect(R"({"type":"object","properties":{"a":{"$ref":"#/$defs/e"},"b":{"type":"null"}},
             "$defs":{"e":{"type":"object","properties":{"e":{"$ref":"#/$defs/e"}},
             "required":["e"]}}})",
         {R"({"b":null})"}, {R"({"a":{)"});
  refuse_schema(ErrorCode::kInvalidArgument,
                R"({"type":"object","properties":{"e":{"$ref":"#"}},"required":["e"]})",
                {"no finite JSON"});
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

/// Each compiles or is refused; none takes long, or more of anything than its limits.
TEST_F(OwnGrammar, HostileTexts) {
  GrammarLimits limits;  // a tenth of the usual ones, of which all would take ten times as long
  limits.max_grammar_size /= 10;
  limits.compile_fuel /= 10;
  limits.token_fuel /= 10;
  limits.max_token_items /= 10;
  limits.max_lexer_states /= 10;
  GrammarCompiler compiler(all_bytes(), limits);
  const auto repeated = [](const std::string& text, size_t times) {
    std::string out;
    for (size_t i = 0; i < times; ++i) out += text;
    return out;
  };
  const auto attempt = [&](GrammarKind kind, const std::string& text) {
    try {
      const auto matcher = compiler.compile(kind, text)->start();
      for (int i = 0; i < 50; ++i) {
        const Answer answer = ask(*matcher, kWords);
        if (answer.tokens.empty()) break;
        matcher->append(answer.tokens[answer.tokens.size() / 2]);
      }
    } catch (const InternalError&) {
      throw;
    } catch (const Error&) {
    }
  };
  for (const std::string& pattern :
       {repeated("(", 30'000), repeated("a?", 30'000), repeated("[", 30'000),
        repeated("\\w", 30'000), repeated("(a|", 90) + repeated(")", 90), repeated("a*", 3000),
        "a" + repeated("{9}", 5000), std::string("((((a{1,100}){1,100}){1,100}){1,100}){1,100}b"),
        std::string("(a|b)*a(a|b){500}c"), "[" + repeated("\\w", 20'000) + "]",
        "(?i)" + repeated("[a-z\\w]", 3000), repeated("(?:a|b)*c|", 3000),
        std::string("(.*a){200}")}) {
    attempt(GrammarKind::kRegex, pattern);
    attempt(GrammarKind::kJsonSchema, R"({"type":"string","pattern":")" +
                                          (pattern.find('\\') == std::string::npos ? pattern : "") +
                                          R"(","minLength":3})");
  }
  std::string any_of = R"({"anyOf":[{"minimum":1},{"maximum":3}]})";
  std::string many = "{\"allOf\":[" + any_of;
  for (int i = 0; i < 40; ++i) many += "," + any_of;
  attempt(GrammarKind::kJsonSchema, many + "]}");
  attempt(GrammarKind::kJsonSchema, repeated(R"({"items":)", 5000) + "{}" + repeated("}", 5000));
  attempt(GrammarKind::kJsonSchema, R"({"type":"integer","multipleOf":999999937,"minimum":1})");
  attempt(GrammarKind::kJsonSchema,
          R"({"type":"string","minLength":1000000,"maxLength":2000000,"pattern":"^a*$"})");
  attempt(GrammarKind::kJsonSchema,
          R"({"type":"object","minProperties":1000000000,"properties":{"a":{}}})");
  std::string names = R"({"type":"object","minProperties":1000,"properties":{"a":{})";
  for (int i = 0; i < 3000; ++i) names += ",\"p" + std::to_string(i) + "\":{}";
  attempt(GrammarKind::kJsonSchema, names + "}}");
  std::string patterns = R"({"type":"object","patternProperties":{"a":{})";
  for (int i = 0; i < 40; ++i) patterns += ",\"p" + std::to_string(i) + "\":{\"type\":\"null\"}";
  attempt(GrammarKind::kJsonSchema, patterns + "}}");
  std::string chain = R"({"$ref":"#/$defs/a0","$defs":{"z":{})";
  for (int i = 0; i < 3000; ++i) {
    chain +=
        ",\"a" + std::to_string(i) + "\":{\"$ref\":\"#/$defs/a" + std::to_string(i + 1) + "\"}";
  }
  attempt(GrammarKind::kJsonSchema, chain + ",\"a3000\":{}}}");
}

/// Parts that are long and come into play often: what is found again costs steps, too.
TEST_F(OwnGrammar, LongPartsCountAsOftenAsTheyAreRead) {
  GrammarLimits limits;
  limits.compile_fuel = 50'000;
  GrammarCompiler compiler(all_bytes(), limits);
  const auto compile = [&](const std::string& text) {
    return compiler.compile(GrammarKind::kJsonSchema, text);
  };
  const auto combinations = [&](int count) {
    return R"({"allOf":[{"enum":[")" + std::string(20'000, 'a') + "\"]}," +
           listed(count,
                  [](const std::string&) {
                    return std::string(R"({"anyOf":[{"minLength":1},{"minLength":2}]})");
                  }) +
           "]}";
  };
  const auto names = [&](int count) {
    return R"({"type":"object","minProperties":)" + std::to_string(count) + R"(,"properties":{)" +
           listed(count, [](const std::string& i) { return "\"" + i + R"(":{"type":"null"})"; }) +
           ",\"" + std::string(10'000, 'a') + R"(":true}})";
  };
  const auto separators = [&](int count) {
    return R"({"x-guidance":{"item_separator":")" + std::string(4000, ',') +
           R"("},"type":"array","prefixItems":[)" +
           listed(count, [](const std::string&) { return std::string("true"); }) + "]}";
  };
  EXPECT_NE(compile(combinations(1)), nullptr);
  EXPECT_NE(compile(names(60)), nullptr);  // a tree has its long name once
  EXPECT_NE(compile(separators(3)), nullptr);
  for (const std::string& text : {combinations(6), separators(300)}) {
    expect_error(ErrorCode::kInvalidArgument, {"more steps"}, [&] { compile(text); });
  }
}

// A search for a match that tries the farthest first gets lost in what may be in front of it.
TEST_F(OwnGrammar, LongPatternsWithinALengthAreCheap) {
  const GrammarCompiler compiler(all_bytes(), {.compile_fuel = 200'000});
  for (const char* pattern :
       {"arn:(aws|aws-us-gov):sso:::permissionSet/(sso)?ins-[a-zA-Z0-9-.]{16}/ps-[a-zA-Z0-9-.]{16}",
        "^arn:[^:]{1,63}:ec2:[^:]{0,63}:[^:]{0,63}:vpn/vpn-[0-9a-f]{8,17}$"}) {
    EXPECT_NO_THROW(
        compiler.compile(GrammarKind::kJsonSchema,
                         R"({"type":"string","minLength":10,"maxLength":1224,"pattern":")" +
                             std::string(pattern) + "\"}"))
        << pattern;
  }
}

TEST_F(OwnGrammar, OneOutputsCostIsNobodyElses) {
  GrammarLimits limits;
  limits.max_lexer_states = 300;
  GrammarCompiler compiler(all_bytes(), limits);
  // Each of the last characters is a state's: outputs fill the memory that they share.
  const auto constraint = compiler.compile(GrammarKind::kRegex, "[ab]*a[ab]{9}c");
  const auto small = constraint->start();
  EXPECT_EQ(ask(*small, kWords).tokens, (Ids{'a', 'b'}));
  const auto large = constraint->start();
  expect_error(ErrorCode::kLimitExceeded, {"states"}, [&] {
    uint32_t random = 1;
    for (int i = 0; i < 5000; ++i) {
      random = random * 1664525 + 1013904223;
      large->append((random >> 31) == 0 ? 'a' : 'b');
    }
  });
  for (int i = 0; i < 5; ++i) {
    small->append('b');
    EXPECT_EQ(ask(*small, kWords).tokens, (Ids{'a', 'b'}));
  }
  EXPECT_EQ(judge(*constraint, "abbbbbbbbbc"), Verdict::kWhole);
}

/// An output that runs out of steps leaves behind what it has found out: there is nothing that
/// others have filled, so neither it nor the next one begins again.
TEST_F(OwnGrammar, StepsAreNotSpentTwice) {
  GrammarLimits limits;
  limits.token_fuel = 1500;
  GrammarCompiler compiler(all_bytes(), limits);
  std::string pattern = "a(?:z";
  for (char c = 'a'; c < 'z'; ++c) {
    pattern += std::string("|[") + c + static_cast<char>(c + 1) + "][0-9]" + c;
  }
  const auto constraint = compiler.compile(GrammarKind::kRegex, pattern + ")");
  const auto goes_on = [&] {
    const auto matcher = constraint->start();
    matcher->append('a');
    return ask(*matcher, kWords).tokens.size() == 26;
  };
  expect_error(ErrorCode::kLimitExceeded, {"more steps"}, goes_on);
  int failures = 1;
  for (bool done = false; !done && failures < 20;) {
    try {
      done = goes_on();
    } catch (const Error&) {
      ++failures;
    }
  }
  EXPECT_LT(failures, 20);
}

TEST_F(OwnGrammar, ManyThreadsFollowOne) {
  const auto constraint = schema(R"({"type":"array","items":{"type":"object"}})");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(judge(*constraint, R"([{"a":[1,{}]}, {"b":"x"}])"), Verdict::kWhole);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(OwnGrammar, AMatcherCanBeInterrupted) {
  std::vector<std::string> words;
  for (int i = 0; i < 10'000; ++i) words.push_back("w" + std::to_string(i));
  GrammarCompiler compiler(all_bytes(words));
  const auto matcher = compiler.compile(GrammarKind::kRegex, "a[\\w]*")->start();
  matcher->append('a');
  matcher->interrupt();
  expect_error(ErrorCode::kLimitExceeded, {"takes too long"}, [&] { ask(*matcher, 400); });
}

}  // namespace
}  // namespace headrace
